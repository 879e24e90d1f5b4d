"""The fuzzer: inputs depend on their number alone, and a defect is found and told."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from tests.fuzz.__main__ import defect, defects
from tests.fuzz.mutations import MUTATORS, mutated
from tests.fuzz.targets import TARGETS, Target, seeds_of


def test_an_input_is_made_of_its_number():
    seeds = [b'{"a": 12, "b": [3]}', b"other"]
    made = [mutated(seeds, "x", place) for place in range(200)]
    assert made == [mutated(seeds, "x", place) for place in range(200)]
    assert made[:2] == seeds
    assert len(set(made)) > 100
    assert made[5:] != [mutated(seeds, "y", place) for place in range(5, 200)]
    assert len(MUTATORS) > 5


@pytest.mark.parametrize("name", ["ir", "safetensors", "template", "adapter", "body"])
def test_right_inputs_are_read(name: str, tmp_path: Path):
    for seed in seeds_of(name):
        assert defect(name, tmp_path, seed) == ""
        path = tmp_path / TARGETS[name].file
        TARGETS[name].read(path)


def test_what_is_no_error_of_the_house_is_a_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class PanicError(BaseException):
        pass

    def read(path: Path) -> None:
        data = path.read_bytes()
        if data == b"panic":
            raise PanicError("of a foreign library")
        if data == b"defect":
            raise KeyError("x")
        raise GraphgenError("GG0201", "refused")

    monkeypatch.setitem(TARGETS, "planted", Target("x", read, list))
    assert defect("planted", tmp_path, b"") == ""
    assert defect("planted", tmp_path, b"panic") == "PanicError: of a foreign library"
    assert defect("planted", tmp_path, b"defect").startswith("KeyError")


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_some_damaged_inputs_are_read_or_refused(name: str):
    assert defects(name, 0, 60) == {}
