"""graphgen slice and normalize on the command line: what they write runs, in every form."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.graphgen.cli.conftest import done, error, facts, graphgen
from tests.graphgen.cli.test_grep_cmd import nested
from tests.graphgen.cli.test_inspect_cmd import step

__all__ = ["nested", "step"]


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
    done("slice", step, "--result", "2", "-o", out)
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


@pytest.mark.parametrize("name", ["%y", "@inner_body/%y", "%r.branch1/%w.0.body/%y"])
def test_an_op_of_a_loop_in_a_branch(nested: Path, tmp_path: Path, name: str):
    out = tmp_path / "y.gg"
    found = facts("slice", nested, "--op", name, "--depth", "2", "-o", out)
    assert [item["name"] for item in found["inputs"]] == ["x", "v"]
    text = out.read_text()
    assert "func @inner_body phase=main" in text
    assert [word for word in ("dot_general", "exponential", "sine") if f"{word}(" in text] == [
        "dot_general",
        "exponential",
        "sine",
    ]
    assert all(item["nan"] == 0 for item in facts("run", out)["outputs"])


def test_a_loop_of_a_branch_and_an_op_of_a_fusion(nested: Path, tmp_path: Path):
    done("slice", nested, "--op", "@else/%w.0", "-o", tmp_path / "w.gg")
    assert "while(%z, %p.1, %p.1)" in (tmp_path / "w.gg").read_text()
    done("slice", nested, "--op", "%e", "-o", tmp_path / "e.gg")
    assert "exponential(%d)" in (tmp_path / "e.gg").read_text()


def test_a_place_that_does_not_exist(nested: Path, tmp_path: Path):
    missing = error("slice", nested, "--op", "@nowhere/%y", "-o", tmp_path / "y.gg")
    assert "@main runs nothing at @nowhere" in missing
    assert "@inner_body" in missing


def test_a_name_in_several_functions(tmp_path: Path):
    file = tmp_path / "scan.gg"
    file.write_text(SCAN.replace("%n = ", "%one = ").replace("(%i, %n)", "(%i, %one)"))
    several = error("slice", file, "--op", "%one", "-o", tmp_path / "one.gg")
    assert "%one is made in @condition, @body" in several
    assert "choose one: @condition/%one" in several


def test_a_layer_inside_of_a_loop(tmp_path: Path):
    file = tmp_path / "scan.gg"
    file.write_text(SCAN)
    done("slice", file, "--layer", "layers.1", "-o", tmp_path / "layer.gg")
    text = (tmp_path / "layer.gg").read_text()
    assert "func @body phase=main" in text
    assert "cosine(%a)" in text
    assert "sine(%x) : f32[2]" not in text.replace("cosine", "")


# Two layers in a turn of a loop.
SCAN = """module @scan level=logical {
  input %x0 : f32[2]
  output %y : f32[2]
}

func @condition {
  arg %x : f32[2]
  arg %i : s32[]
  %n = constant() value=s32[](3) : s32[]
  %less = compare(%i, %n) direction=LT : pred[]
  return 0 = %less
}

func @body {
  arg %x : f32[2]
  arg %i : s32[]
  %one = constant() value=s32[](1) : s32[]
  %next = add(%i, %one) : s32[]
  %a = sine(%x) : f32[2]  # net.py:1 layers.0
  %b = cosine(%a) : f32[2]  # net.py:2 layers.1
  return 0 = %b
  return 1 = %next
}

func @main phase=main {
  arg %x0 : f32[2]
  %zero = constant() value=s32[](0) : s32[]
  %y, %count = while(%x0, %zero) condition=condition body=body : f32[2], s32[]
  return y = %y
}
"""
