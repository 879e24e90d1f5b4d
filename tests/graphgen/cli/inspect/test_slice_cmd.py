"""graphgen slice and normalize on the command line: what they write runs, in every form."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.graphgen.cli.conftest import done, error, facts, graphgen
from tests.graphgen.cli.inspect.test_inspect_cmd import step

__all__ = ["step"]


@pytest.mark.parametrize("ending", ["gg", "pb", "hlo", "mlir"])
def test_a_layer_runs_in_every_form(mini: Path, tmp_path: Path, ending: str):
    whole, out = tmp_path / "whole.pb", tmp_path / f"layer.{ending}"
    done("lower", mini, "--program", "decode", "--to", "hlo", "-o", whole)
    result = done("slice", whole, "--layer", "1", "-o", out)
    assert "inputs," in result.stderr
    shown = facts("run", out)
    assert {item["role"] for item in shown["outputs"]} == {"output", "state"}
    assert all(item["nan"] == 0 for item in shown["outputs"])


def test_two_ops_as_json(step: Path, tmp_path: Path):
    found = facts("slice", step, "--op", "%y", "--op", "%new", "-o", tmp_path / "o.gg")
    assert [item["name"] for item in found["inputs"]] == ["x", "w", "cache", "n"]
    assert [item["name"] for item in found["outputs"]] == ["cache", "output2"]
    assert found["ops"] == 2


def test_an_output_by_position(step: Path, tmp_path: Path):
    out = tmp_path / "y.gg"
    done("slice", step, "--output", "2", "-o", out)
    text = out.read_text()
    assert "return output2 = %y" in text
    assert "custom_call" not in text


def test_what_goes_wrong(step: Path, tmp_path: Path):
    assert graphgen("slice", step, "-o", tmp_path / "a.gg").exit_code == 2
    assert "does not say in which form" in error(
        "slice", step, "--op", "y", "-o", tmp_path / "a.txt"
    )
    text = error("slice", step, "--op", "nw", "-o", tmp_path / "a.gg")
    assert text.startswith("error[GG0202]: nw is not made in @main")
    assert "did you mean" in text


def test_normalized_texts_are_equal(mini: Path, tmp_path: Path):
    texts: list[str] = []
    for to, ending in (("hlo", "pb"), ("stablehlo", "mlir"), ("hlo-text", "hlo")):
        lowered = tmp_path / f"m.{ending}"
        done("lower", mini, "--program", "decode", "--to", to, "-o", lowered)
        texts.append(done("normalize", lowered).stdout)
    assert texts[0].replace('"hlo"', "") == texts[1] == texts[2]
    assert "# " not in texts[0]


def test_normalized_hlo_is_normal(mini: Path, tmp_path: Path):
    lowered, once, twice = (tmp_path / f"{name}.pb" for name in ("a", "b", "c"))
    done("lower", mini, "--program", "decode", "--to", "hlo", "-o", lowered)
    done("normalize", lowered, "-o", once)
    found = facts("normalize", once, "-o", twice)
    assert found["functions"][0]["name"] == "program0"
    assert once.read_bytes() == twice.read_bytes()
    assert done("diff", lowered, once).stdout.startswith("equal: ")
