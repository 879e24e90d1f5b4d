"""Errors about options say which, and what they were given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.graphgen.cli.conftest import error

ASK = ("generate", "smollm2", "--prompt", "x")


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (("--top-k", "4"), "--top-k 4"),
        (("--do-sample", "--temperature", "-1"), "--temperature -1"),
        (("--do-sample", "--min-p", "2"), "--min-p 2"),
        (("--no-repeat-ngram-size", "-1"), "--no-repeat-ngram-size -1"),
        (("--dtype", "float 32"), "--dtype 'float 32'"),
        (("--do-sample", "--deterministic", "--seed", "3"), "--seed 3 --deterministic"),
        (("--num-return-sequences", "2"), "--num-return-sequences 2"),
    ],
)
def test_options_of_generate(arguments: tuple[str, ...], place: str):
    assert f"\n  --> {place}\n" in error(*ASK, *arguments) + "\n"


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (("opt", "-p", "canonicalise"), "--pipeline canonicalise"),
        (("opt", "-p", "default{tp=0}"), "--pipeline 'default{tp=0}'"),
        (("opt", "-p", "specialize{context=[0]}"), "--pipeline 'specialize{context=[0]}'"),
        (("lower", "--target", "trn9"), "--target trn9"),
        (("run", "--program", "decod"), "--program decod"),
        (("run", "--program", "decode", "--dims", "B=0"), "--dims B=0"),
    ],
)
def test_options_of_commands_on_modules(mini: Path, arguments: tuple[str, ...], place: str):
    command, *options = arguments
    assert f"\n  --> {place}\n" in error(command, mini, *options) + "\n"


def test_an_error_with_a_place_keeps_it(mini: Path, tmp_path: Path):
    broken = tmp_path / "broken.gg"
    broken.write_text(mini.read_text().replace("silu", "sliu"))
    assert f"  --> {broken}:" in error("opt", broken, "-p", "dce")
