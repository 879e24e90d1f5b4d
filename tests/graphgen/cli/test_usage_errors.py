"""Mistakes on the command line look like all other errors: a code, the option, a line of help."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from graphgen.cli.console import write_stdout_bytes
from graphgen.cli.main import app
from graphgen.errors import GraphgenError
from graphgen.ops import OPS
from graphgen.ops.suggestions import SYNONYMS
from tests.graphgen.cli.conftest import ROOT, done, error, graphgen

CASES = {
    "lower m.gg --to mlir": "--to: 'mlir' is not one of 'stablehlo', 'hlo', 'hlo-text'",
    "run m.gg --seed a": "--seed: not an integer",
    "run m.gg --seed -1": "--seed: must be at least 0",
    "lower": "Missing argument 'FILE'",
    "run m.gg --sed 3": "No such option: --sed",
}


@pytest.mark.parametrize("words", CASES)
def test_one_style(words: str):
    result = graphgen(*words.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error[GG0705]: {CASES[words]}")
    assert result.stderr.endswith("--help\n")
    assert "Value error" not in result.stderr
    assert "Usage:" not in result.stderr


@pytest.mark.parametrize(
    ("words", "dash", "flag"),
    [
        ("serve -\u2014model X", "2014", "--model"),
        ("serve \u2014model X", "2014", "--model"),
        ("generate m --prompt a \u2013\u2013seq-len=8", "2013", "--seq-len=8"),
        ("cache list \u2014json", "2014", "--json"),
        ("run m.gg -\u2014sed 3", "2014", "--sed"),
        ("\u2014version", "2014", "--version"),
    ],
)
def test_dashes_of_printed_text_are_named_with_the_flag(words: str, dash: str, flag: str):
    result = graphgen(*words.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"starts with the dash U+{dash}, which is not a hyphen" in result.stderr
    assert result.stderr.splitlines()[1].startswith(f"  help: write {flag}: ")


def test_dashes_of_a_value_are_text():
    # The file is missing, and no word is refused.
    for words in (("m.gg", "--program", "\u2014what is it"), ("--", "\u2014json")):
        assert "which is not a hyphen" not in graphgen("run", *words).stderr


def test_an_unknown_command():
    result = graphgen("buld")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error[GG0705]: No such command 'buld'. Did you mean 'build'?")


def test_names_of_other_libraries():
    assert set(SYNONYMS.values()) <= set(OPS)
    assert not set(SYNONYMS) & set(OPS)
    assert "graphgen ops dot_general" in error("ops", "einsum")
    assert "b.softmax(...)" in error("ops", "softmax")


def test_a_pipeline_is_explained_where_passes_are():
    assert done("passes", "default").stdout == done("pipeline", "default").stdout


def test_binary_output_never_reaches_a_terminal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with pytest.raises(GraphgenError, match="standard output is a terminal"):
        write_stdout_bytes([b"\x0a\x03\xff\x00"])


def options() -> Iterator[tuple[str, Any]]:
    """Every command with each of its options."""
    group: Any = typer.main.get_command(app)
    for name in group.list_commands(None):
        for option in group.get_command(None, name).params:
            yield name, option


def test_output_is_what_is_written_in_all_commands():
    found = {name: option for name, option in options() if "-o" in option.opts}
    assert {"opt", "lower", "slice", "normalize", "build", "import", "trace", "bisect"} <= set(
        found
    )
    for name, option in found.items():
        assert option.opts == ["-o", "--output"], name
        assert re.search(r"File to write|folder|FILE|Write", option.help), name
    assert not [name for name, option in options() if option.opts == ["--output"]]


def test_commands_about_a_device_have_one_default():
    found = {name: option.default for name, option in options() if "--target" in option.opts}
    asks = {name for name, default in found.items() if default == "trn2"}
    # An instance names a target, too.
    assert found.pop("plan") == ""
    assert asks == {"check", "cost", "hash", "compile", "inspect"}
    # What makes a program, or shows how it runs here: as generate and run, for this CPU.
    # speculate measures on it, and profile has rates of where it ran, if no device is asked for.
    others = {"build": "cpu", "lower": "cpu", "config": "cpu", "speculate": None, "profile": None}
    assert {name: found[name] for name in found.keys() - asks} == others


def test_lower_writes_no_bytes_to_a_terminal(small: Path):
    here, there = os.openpty()
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "graphgen", "lower", str(small), "--to", "hlo", "--dims", "N=2"],
            stdout=there,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    finally:
        os.close(there)
        os.close(here)
    assert ran.returncode == 1
    assert (
        "error[GG0704]: these bytes are not text, and standard output is a terminal" in ran.stderr
    )
