"""Weights in other layouts: IR in, IR out, and programs that compute the same."""

from __future__ import annotations

import pytest

from graphgen.errors import GraphgenError
from graphgen.ops import verify
from graphgen.passes.equiv.equiv import equivalent
from graphgen.passes.weights.weight_layouts import LayoutStep, apply_weight_layouts
from graphgen.text import parse, print_module

BEFORE = """\
module @m level=target {
  input %x : f32[4]
  weight %w : f32[2,4]
  weight %v : f32[4,4]
  output %y : f32[4]
  param %w.prepared : f32[4,2]
}

func @weights.global {
  arg %w : f32[2,4]
  %t = transpose(%w) permutation=[1,0] : f32[4,2]
  return w.prepared = %t
}

func @f phase=decode {
  arg %x : f32[4]
  arg %w.prepared : f32[4,2]
  arg %v : f32[4,4]
  %a = dot_general(%x, %w.prepared) lhs_contracting_dims=[0] rhs_contracting_dims=[0] dtype=f32 : f32[2]
  %b = dot_general(%w.prepared, %a) lhs_contracting_dims=[1] rhs_contracting_dims=[0] dtype=f32 : f32[4]
  %y = dot_general(%b, %v) lhs_contracting_dims=[0] rhs_contracting_dims=[0] dtype=f32 : f32[4]
  return y = %y
}
"""  # noqa: E501
AFTER = """\
module @m level=target {
  input %x : f32[4]
  weight %w : f32[2,4]
  weight %v : f32[4,4]
  output %y : f32[4]
  param %w.prepared.laid_out : f32[2,2,2]
  param %v.laid_out : f32[4,4]
}

func @weights.global {
  arg %w : f32[2,4]
  arg %v : f32[4,4]
  %t = transpose(%w) permutation=[1,0] : f32[4,2]
  %0 = reshape(%t) shape=[2,2,2] : f32[2,2,2]
  %1 = transpose(%0) permutation=[1,2,0] : f32[2,2,2]
  %2 = transpose(%v) permutation=[1,0] : f32[4,4]
  return w.prepared.laid_out = %1
  return v.laid_out = %2
}

func @f phase=decode {
  arg %x : f32[4]
  arg %w.prepared.laid_out : f32[2,2,2]
  arg %v.laid_out : f32[4,4]
  %v = transpose(%v.laid_out) permutation=[1,0] : f32[4,4]
  %0 = transpose(%w.prepared.laid_out) permutation=[2,0,1] : f32[2,2,2]
  %w.prepared = reshape(%0) shape=[4,2] : f32[4,2]
  %a = dot_general(%x, %w.prepared) lhs_contracting_dims=[0] rhs_contracting_dims=[0] dtype=f32 : f32[2]
  %b = dot_general(%w.prepared, %a) lhs_contracting_dims=[1] rhs_contracting_dims=[0] dtype=f32 : f32[4]
  %y = dot_general(%b, %v) lhs_contracting_dims=[0] rhs_contracting_dims=[0] dtype=f32 : f32[4]
  return y = %y
}
"""  # noqa: E501
SPLIT = (LayoutStep("reshape", (2, 2, 2)), LayoutStep("transpose", (1, 2, 0)))
TURN = (LayoutStep("transpose", (1, 0)),)


def test_a_weight_and_a_prepared_one_are_laid_out():
    module = parse(BEFORE)
    names = apply_weight_layouts(module, {"w.prepared": SPLIT, "v": TURN})
    assert names == {"w.prepared": "w.prepared.laid_out", "v": "v.laid_out"}
    verify(module)
    assert print_module(module) == AFTER
    assert equivalent(parse(BEFORE), module).difference.relative == 0


@pytest.mark.parametrize("line", ["%v = transpose(%v.laid_out)", "%2 = transpose(%v) "])
def test_a_weight_that_is_turned_twice_or_not_at_all_is_seen(line: str):
    # A square weight: shapes do not show it, numbers do.
    wrong = "\n".join(
        row.replace("permutation=[1,0]", "permutation=[0,1]") if line in row else row
        for row in AFTER.splitlines()
    )
    assert wrong != AFTER.rstrip()
    assert not equivalent(parse(BEFORE), parse(wrong)).equal


@pytest.mark.parametrize(
    ("name", "layout", "what"),
    [
        ("x", TURN, "x is not a weight"),
        ("nothing", TURN, "nothing is not a weight"),
        ("v", (LayoutStep("reshape", (3, 5)),), r"reshape \[3, 5\] does not fit \[4, 4\]"),
        ("v", (LayoutStep("transpose", (0, 0)),), r"transpose \[0, 0\] does not fit"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, layout: tuple[LayoutStep, ...], what: str):
    with pytest.raises(GraphgenError, match=what) as caught:
        apply_weight_layouts(parse(BEFORE), {name: layout})
    assert caught.value.code == "GG0302"
