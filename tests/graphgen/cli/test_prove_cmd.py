"""``graphgen prove``: what it prints, and what it exits with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.graphgen.cli.conftest import done, facts, graphgen

MODEL = """\
module @m level=logical {
  input %x : f32[2,8]
  weight %w : f32[4,8]
  output %y : f32[2,4]
}

func @main phase=main {
  arg %x : f32[2,8]
  arg %w : f32[4,8]
  %0 = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : f32[2,4]
  return y = %0
}
"""
SPLIT = """\
module @m level=sharded mesh=tp:2 {
  input %rank : s32[1]
  input %x : f32[2,8]
  weight %w : f32[4,8]
  output %y : f32[2,4]
}

func @main phase=main {
  arg %rank : s32[1]
  arg %x : f32[2,8]
  arg %w : f32[4,8]
  %r = reshape(%rank) shape=[] : s32[]
  %four = constant() value=s32[](4) : s32[]
  %zero = constant() value=s32[](0) : s32[]
  %start = multiply(%r, %four) : s32[]
  %0 = dynamic_slice(%x, %zero, %start) slice_sizes=[2,4] : f32[2,4]
  %1 = dynamic_slice(%w, %zero, %start) slice_sizes=[4,4] : f32[4,4]
  %2 = dot_general(%0, %1) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : f32[2,4]
  %3 = all_reduce(%2) kind=add replica_groups=[[0,1]] : f32[2,4]
  return y = %3
}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.gg").write_text(MODEL)
    (tmp_path / "b.gg").write_text(SPLIT)
    (tmp_path / "wrong.gg").write_text(SPLIT.replace("kind=add", "kind=maximum"))
    return tmp_path


def test_a_product_divided_over_ranks_is_proved_in_real_arithmetic() -> None:
    text = done("prove", "a.gg", "b.gg").stdout
    assert "@main: 1 equal in real arithmetic\n" in text
    assert "rounding differs at: all_reduce" in text


def test_an_unknown_output_names_both_ops_and_exits_with_1() -> None:
    found = graphgen("prove", "a.gg", "wrong.gg", "--json")
    assert found.exit_code == 1
    (claim,) = json.loads(found.stdout)["claims"]
    assert claim["status"] == "undecided"
    assert claim["reason"] == "maximum takes the place of add"
    assert any("all_reduce" in op for op in claim["pair"])


def test_the_same_module_is_proved_to_the_last_bit() -> None:
    assert facts("prove", "a.gg", "a.gg")["claims"][0]["status"] == "proved"
