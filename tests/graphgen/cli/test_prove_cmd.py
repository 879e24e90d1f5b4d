"""``graphgen prove``: what it prints, and what it exits with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.graphgen.cli.conftest import done, facts, graphgen
from tests.oracles.split_product import SPLIT, WHOLE


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.gg").write_text(WHOLE)
    (tmp_path / "b.gg").write_text(SPLIT)
    (tmp_path / "wrong.gg").write_text(SPLIT.replace("kind=add", "kind=maximum"))
    return tmp_path


def test_a_product_divided_over_ranks_is_proved_in_real_arithmetic() -> None:
    text = done("prove", "a.gg", "b.gg").stdout
    assert "@main: 1 equal in real arithmetic\n" in text
    assert "rounding differs at: all_reduce" in text


def test_a_wrong_output_is_refuted_with_an_element_and_both_ops() -> None:
    found = graphgen("prove", "a.gg", "wrong.gg", "--json")
    assert found.exit_code == 1
    (claim,) = json.loads(found.stdout)["claims"]
    assert claim["status"] == "refuted"
    assert "instead of" in claim["counterexample"]
    assert claim["reason"] == "maximum takes the place of add"
    assert any("all_reduce" in op for op in claim["pair"])


def test_numbers_in_a_named_narrow_type_are_told_apart(folder: Path) -> None:
    kept = WHOLE.replace(
        "return y = %0",
        "%1 = convert(%0) dtype=f16 : f16[2,4]\n"
        "  %2 = convert(%1) dtype=f32 : f32[2,4]\n  return y = %2",
    )
    (folder / "kept.gg").write_text(kept)
    assert graphgen("prove", "a.gg", "kept.gg").exit_code == 1
    assert graphgen("prove", "a.gg", "kept.gg", "--narrow", "bf16").exit_code == 1
    text = done("prove", "a.gg", "kept.gg", "--narrow", "f16").stdout
    assert "@main: 1 equal but for narrow numbers\n" in text
    assert "assumed: no number that is kept in f16 is beyond its range" in text
    assert graphgen("prove", "a.gg", "wrong.gg", "--narrow", "f16").exit_code == 1
    assert graphgen("prove", "a.gg", "kept.gg", "--narrow", "f32").exit_code == 2


def test_the_same_module_is_proved_to_the_last_bit() -> None:
    assert facts("prove", "a.gg", "a.gg")["claims"][0]["status"] == "proved"


def test_what_no_numbers_tell_is_unknown_with_the_first_pair_of_ops(folder: Path) -> None:
    # Equal for all numbers: nothing refutes it, and no rule says it.
    same = WHOLE.replace(
        "return y = %0", "%1 = tanh(%0) : f32[2,4]\n  %2 = negate(%1) : f32[2,4]\n  return y = %2"
    )
    other = WHOLE.replace(
        "return y = %0", "%1 = negate(%0) : f32[2,4]\n  %2 = tanh(%1) : f32[2,4]\n  return y = %2"
    )
    (folder / "same.gg").write_text(same)
    (folder / "other.gg").write_text(other)
    found = graphgen("prove", "same.gg", "other.gg", "--json")
    assert found.exit_code == 1
    (claim,) = json.loads(found.stdout)["claims"]
    assert (claim["status"], claim["counterexample"]) == ("undecided", None)
    assert all(claim["pair"])


SINGLE = """\
module @f {
  func.func public @main(%t: tensor<3xi32>, %w: tensor<4x2xf32>) -> tensor<3x2xf32> {
    %0 = "stablehlo.gather"(%w, %t) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 2>}> : (tensor<4x2xf32>, tensor<3xi32>) -> tensor<3x2xf32>
    return %0 : tensor<3x2xf32>
  }
}
"""  # noqa: E501
RANKS = """\
module @f attributes {mhlo.num_partitions = 2 : i32} {
  func.func public @main(%t: tensor<3xi32>, %w: tensor<4x1xf32>) -> tensor<3x1xf32> {
    %0 = "stablehlo.gather"(%w, %t) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1>}> : (tensor<4x1xf32>, tensor<3xi32>) -> tensor<3x1xf32>
    return %0 : tensor<3x1xf32>
  }
}
"""  # noqa: E501


def test_a_program_of_another_tool_is_related_as_the_user_says(folder: Path) -> None:
    (folder / "single.mlir").write_text(SINGLE)
    (folder / "ranks.mlir").write_text(RANKS)
    said = facts("prove", "single.mlir", "ranks.mlir", "--relate", "w:{-,tp}")
    assert said["claims"][0]["status"] == "proved"
    assert said["relation"] == "given; inferred from types"
    said = facts("prove", "single.mlir", "ranks.mlir", "--domain", "t=[0,3]")
    assert said["assumptions"] == ["the elements of t=[0,3]"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("a.gg",), "give two modules, or --check"),
        (("--check", "c.json", "a.gg"), "takes no modules"),
        (("a.gg", "b.gg", "--relate", "x:{tp,-}"), "is for a program of another tool"),
        (("a.gg", "b.gg", "--domain", "z=[0,1]"), "no input 'z'"),
        (("--check", "a.gg"), "GG0710"),
        (("--check", "none.json"), "GG0705"),
    ],
)
def test_usage_errors_of_proofs(words: tuple[str, ...], text: str) -> None:
    ended = graphgen("prove", *words)
    assert ended.exit_code == 2
    assert text in ended.stderr
