"""Tensors computed part by part are those that are evaluated whole."""

from __future__ import annotations

import re
import tracemalloc

import numpy as np
import pytest

from graphgen.eval import Array, evaluate_output, rank_index
from graphgen.runtime.weights import computed_plan
from graphgen.runtime.weights.computed_plan import ComputedPlan
from graphgen.runtime.weights.copy_plan import from_array
from graphgen.runtime.weights.copy_planner import plan_output
from graphgen.text import parse

PROGRAM = """module @m level=sharded {
}

func @weights.global {
  arg %w : s32[4,24]
  arg %x : f32[6,10]
  arg %rank : s32[1]
  %wide = broadcast_in_dim(%w) shape=[4,8,24] dimensions=[0,2] : s32[4,8,24]
  %places = constant() value=s32[8](0,4,8,12,16,20,24,28) : s32[8]
  %spread = broadcast_in_dim(%places) shape=[4,8,24] dimensions=[1] : s32[4,8,24]
  %moved = shift_right_logical(%wide, %spread) : s32[4,8,24]
  %low = constant() value=s32[](15) : s32[]
  %mask = broadcast_in_dim(%low) shape=[4,8,24] dimensions=[] : s32[4,8,24]
  %all = and(%moved, %mask) : s32[4,8,24]
  %flat = reshape(%all) shape=[32,24] : s32[32,24]
  %few = convert(%flat) dtype=u4 : u4[32,24]
  %turned = transpose(%few) permutation=[1,0] : u4[24,32]
  %both = concatenate(%turned, %turned) dimension=0 : u4[48,32]
  %pairs = reshape(%both) shape=[6,8,16,2] : u4[6,8,16,2]
  %packed = bitcast_convert(%pairs) dtype=u8 : u8[6,8,16]
  %top = slice(%x) start_indices=[0,0] limit_indices=[4,10] strides=[1,1] : f32[4,10]
  %rest = slice(%x) start_indices=[2,0] limit_indices=[6,10] strides=[1,1] : f32[4,10]
  %sum = add(%top, %rest) : f32[4,10]
  %odd = slice(%x) start_indices=[0,0] limit_indices=[6,10] strides=[2,1] : f32[3,10]
  %three = reshape(%odd) shape=[30] : f32[30]
  %torn = reshape(%x) shape=[15,4] : f32[15,4]
  %more = exponential(%torn) : f32[15,4]
  %same = reshape(%more) shape=[4,15] : f32[4,15]
  %both_torn = multiply(%same, %same) : f32[4,15]
  %bits = bitcast_convert(%x) dtype=u16 : u16[6,10,2]
  %flipped = not(%bits) : u16[6,10,2]
  %back = bitcast_convert(%flipped) dtype=u32 : u32[6,10]
  %none = slice(%x) start_indices=[0,0] limit_indices=[0,10] strides=[1,1] : f32[0,10]
  %nothing = exponential(%none) : f32[0,10]
  %number = reshape(%rank) shape=[] : s32[]
  %half = convert(%number) dtype=f32 : f32[]
  %add = broadcast_in_dim(%half) shape=[6,10] dimensions=[] : f32[6,10]
  %ranked = add(%x, %add) : f32[6,10]
  return packed = %packed
  return sum = %sum
  return odd = %three
  return torn = %both_torn
  return back = %back
  return nothing = %nothing
  return half = %half
  return ranked = %ranked
}
"""
OUTPUTS = ["packed", "sum", "odd", "torn", "back", "nothing", "half", "ranked"]


def given() -> dict[str, Array]:
    rng = np.random.default_rng(1)
    return {
        "w": rng.integers(-(1 << 31), 1 << 31, (4, 24)).astype(np.int32),
        "x": rng.standard_normal((6, 10)).astype(np.float32),
    }


@pytest.mark.parametrize("part", [1, 7, 40, 1 << 17])
@pytest.mark.parametrize("output", OUTPUTS)
def test_parts_are_the_whole(output: str, part: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(computed_plan, "_PART", part)
    function, arrays = parse(PROGRAM).function("weights.global"), given()
    wanted = evaluate_output(function, output, {**arrays, "rank": rank_index(3)})
    values = {v: rank_index(3) if v.name == "rank" else arrays[v.name or ""] for v in function.args}
    made = ComputedPlan(dict(function.outputs)[output], values)
    seen: list[int] = []
    home = np.empty(made.shape, made.dtype)
    made.fill(home, lambda part: seen.append(part.size))
    np.testing.assert_array_equal(home, wanted)
    assert home.dtype == wanted.dtype
    assert sum(seen) == home.size
    np.testing.assert_array_equal(made.array(), wanted)


def test_what_is_between_is_small(monkeypatch: pytest.MonkeyPatch):
    """Numbers of 4 bits are s32 on the way to bytes: eight times their own size."""
    monkeypatch.setattr(computed_plan, "_PART", 1 << 12)
    # The number of rows is one of whole parts: one across both halves would need all of them.
    text = re.sub(r"\b24\b(?!,28)", "24576", PROGRAM).replace("[48,", "[49152,")
    text = text.replace("6,8,16", "6144,8,16")
    function = parse(text).function("weights.global")
    words = np.arange(4 * 24576, dtype=np.int32).reshape(4, -1)
    made = plan_output(function, "packed", 0, lambda _: from_array(words))
    home = np.empty(made.shape, made.dtype)
    tracemalloc.start()
    made.fill(home)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert home.nbytes == 2 * words.nbytes
    assert peak < words.nbytes
