"""Limits of files: each is stated with its option, and holds as the user sets it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import typer
from typer.testing import CliRunner

from graphgen import limits
from graphgen.cli.command_table import commands
from graphgen.cli.main import app
from graphgen.errors import GraphgenError
from graphgen.ir.dims import parse_dim
from graphgen.json_value import JsonError, parse_json
from graphgen.limits import ENVIRONMENT, JSON_DEPTH, LAYERS, LIMITS, change_limits, read_limits
from graphgen.models.config_reader import ConfigReader
from graphgen.read_file import read_file
from graphgen.runtime.tokenizer.chat_template import render_chat
from graphgen.text.grammar import parse_type
from graphgen.worker_process import WorkerProcess

ROOT = Path(limits.__file__).parent.parent


def _file(folder: Path) -> None:
    (folder / "a").write_bytes(bytes(100))
    read_file(folder / "a")


# A use of a limit, the number that refuses it, and one that takes it.
USES: dict[str, tuple[int, int, Callable[[Path], object]]] = {
    "json-bytes": (3, 9, lambda _: parse_json("[1, 2]")),
    "json-depth": (2, 300, lambda _: parse_json("[" * 210 + "]" * 210)),
    "json-objects": (5, 999, lambda _: parse_json("[" + "[]," * 300 + "[]]")),
    "text-bytes": (99, 100, _file),
    "layers": (9, 20_000, lambda _: ConfigReader({"layers": 11_000}).integer("layers")),
    # Types of other tests are kept.
    "dims": (2, 3, lambda _: parse_type("f32[91,92,93]")),
    "dim-parts": (4, 5, lambda _: parse_dim.__wrapped__("A+B+C+D+E")),
}


@pytest.mark.parametrize("name", USES)
def test_a_limit_is_stated_with_its_option(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    low, high, use = USES[name]
    monkeypatch.setenv(ENVIRONMENT, f"{name}={low}")
    with pytest.raises((GraphgenError, JsonError), match=rf"at most {low} \(--limits {name}=N\)"):
        use(tmp_path)
    monkeypatch.setenv(ENVIRONMENT, f"{name}={high}")
    use(tmp_path)


def test_every_limit_is_used_and_documented():
    guide = (ROOT / "docs" / "security.md").read_text()
    rows = dict(re.findall(r"^\| `([\w-]+)` \| ([\d,]+) \|", guide, re.MULTILINE))
    assert {name: int(number.replace(",", "")) for name, number in rows.items()} == {
        name: limit.default for name, limit in LIMITS.items()
    }
    places = [path for room in ("graphgen", "passes", "lowering", "runtime")
              for path in (ROOT / room).glob("**/*.py") if path.name != "limits.py"]  # fmt: skip
    text = "\n".join([path.read_text() for path in places])
    for constant, value in vars(limits).items():
        if isinstance(value, limits.Limit):
            assert re.search(rf"\b{constant}\b", text), constant


def test_limits_of_processes_that_are_started(monkeypatch: pytest.MonkeyPatch):
    turns = [{"role": "user", "content": "hi"}]
    monkeypatch.setenv(ENVIRONMENT, "")
    assert render_chat("{{ 'a' * 50 }}", turns, bos_token=None, eos_token=None) == "a" * 50
    change_limits("template-characters=10")
    assert (LIMITS["template-characters"].most, LAYERS.most) == (10, LAYERS.default)
    from graphgen.runtime.tokenizer import chat_template

    renderer = WorkerProcess(chat_template._command)
    monkeypatch.setattr(chat_template, "_RENDERER", renderer)
    try:
        with pytest.raises(GraphgenError, match=r"at most 10 \(--limits template-characters=N\)"):
            render_chat("{{ 'a' * 50 }}", turns, bos_token=None, eos_token=None)
    finally:
        renderer.close()


@pytest.mark.parametrize(
    "text",
    [
        "layer=1",
        "layers",
        "layers=",
        "layers=0",
        "layers=-1",
        "layers=²",
        "layers=1e3",
        "layers=" + "9" * 30,
        "=3",
        "x=1,layers=2",
    ],
)
def test_limits_that_are_refused(text: str, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(GraphgenError) as caught:
        read_limits(text)
    assert (caught.value.code, "--limits" in caught.value.what) == ("GG0705", True)
    monkeypatch.setenv(ENVIRONMENT, text)
    with pytest.raises(GraphgenError, match=ENVIRONMENT):
        _ = JSON_DEPTH.most
    assert read_limits(" layers=3 , ,dims=4,") == {"layers": 3, "dims": 4}
    assert not read_limits("")


def test_the_option_of_every_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # Set and taken back, since the option changes the environment.
    monkeypatch.setenv(ENVIRONMENT, "")
    group = typer.main.get_command(cast(typer.Typer, app))
    found = [cast(Any, group).get_command(None, name) for name in commands()]
    while found:
        command = found.pop()
        inner = getattr(command, "commands", None)
        found += inner.values() if inner else []
        assert inner or "--limits" in {name for param in command.params for name in param.opts}
    path = tmp_path / "config.json"
    path.write_text("[" * 205 + "]" * 205)
    run = lambda *words: CliRunner().invoke(cast(typer.Typer, app), ["config", str(path), *words])  # noqa: E731
    assert "--limits json-depth=N" in run().stderr
    assert "too deeply" not in run("--limits", "json-depth=210").stderr
    bad = run("--limits", "json-dept=3")
    assert (bad.exit_code, "did you mean 'json-depth'" in bad.stderr) == (1, True)
