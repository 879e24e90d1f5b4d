"""Coverage of inputs: situations, ids, positions and slots of hand-made calls."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from graphgen.exec.session import ProgramCall, Workload
from graphgen.ir import Module
from graphgen.ir.dtype import f32
from graphgen.models import build, known_shape
from graphgen.passes.workload.coverage import InputCoverage, IntegerRange
from graphgen.passes.workload.coverage_input import input_coverage
from graphgen.text import parse

SIZES = {"R": 3, "M": 8}
PAD = -1


@cache
def module() -> Module:
    return build(known_shape("llama-3.1-8b"), f32, mini=True)


def call(
    phase: str,
    positions: Sequence[Sequence[int]],
    seq_ids: Sequence[int],
    ids: Sequence[Sequence[int]] | None = None,
    attended: int = 4,
) -> ProgramCall:
    """A call of rows with these positions; lengths follow from them."""
    places = np.array(positions, np.int32)
    inputs = {
        "tokens": np.array(ids, np.int32) if ids is not None else np.ones_like(places),
        "positions": places,
        "lengths": places.max(axis=1).astype(np.int32) + 1,
        "seq_ids": np.array(seq_ids, np.int32),
    }
    dims = {**SIZES, "B": len(places), "S": places.shape[1], "C": attended}
    return ProgramCall(phase, dims, inputs)


def covered(*calls: ProgramCall) -> InputCoverage:
    return input_coverage(module(), Workload({}, calls, SIZES))


PLAIN = call("prefill", [[0, 1, PAD], [0, PAD, PAD]], [0, 1])


@pytest.mark.parametrize(
    ("calls", "situation"),
    [
        ([call("prefill", [[PAD, 0, 1]], [0])], "padding on the left"),
        ([call("prefill", [[0, 1, PAD]], [0])], "padding on the right"),
        ([call("prefill", [[0, 1, 2]], [0])], "prompt as long as its bucket"),
        ([PLAIN, call("prefill", [[2, 3, PAD]], [0])], "prefill on a prefix"),
        ([call("prefill", [[0, PAD], [PAD, PAD]], [0, 3])], "idle row in prefill"),
        ([PLAIN, call("decode", [[2], [PAD]], [0, 3])], "idle row in decode"),
        ([PLAIN, call("decode", [[3]], [0])], "last slot of a bucket"),
        ([PLAIN, call("decode", [[7]], [0], attended=16)], "last slot of the cache"),
        ([PLAIN, call("prefill", [[0, PAD, PAD]], [1])], "row of the cache used again"),
        ([call("prefill", [[0, PAD], [0, PAD]], [1, 0])], "rows in another order than the cache"),
        ([PLAIN, call("decode", [[2]], [0])], "different numbers of rows"),
        ([call("prefill", [[0, PAD]], [0], [[0, 5]])], "first id of the vocabulary"),
        ([call("prefill", [[0, PAD]], [0], [[256, 5]])], "last id of the vocabulary"),
        ([call("prefill", [[0, PAD]], [0], [[257, 5]])], "id outside of the vocabulary"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_a_situation_is_seen_where_it_is(calls: list[ProgramCall], situation: str):
    assert covered(*calls).situations[situation]
    # None of these is in the plain prefill, save for its padding.
    assert covered(PLAIN).situations[situation] == (situation == "padding on the right")


def test_padding_counts_neither_as_id_nor_as_position():
    found = covered(call("prefill", [[0, 1, PAD]], [0], [[7, 9, 256]]))
    assert found.ids == IntegerRange(7, 9, 257)
    assert found.positions == IntegerRange(0, 1, 8)
    assert found.ranges["positions"] == (-1, 1)
    assert not found.situations["last id of the vocabulary"]


def test_shares_of_slots():
    found = covered(PLAIN, call("decode", [[2], [PAD]], [0, 3]))
    # Of 3 rows of 8 slots: 0, 1, 2 of the first row and 0 of the second.
    assert {state.written for state in found.states} == {4 / 24}
    assert {state.read for state in found.states} == {4 / 24}
    assert {state.initial for state in found.states} == {"zeros"}
    assert (found.calls, found.rows) == ({"prefill": 1, "decode": 1}, (2,))


ACCUMULATOR = """\
module @m level=logical {
  input %x : f32[2]
  state %s : f32[2]
  output %y : f32[2]
}

func @f phase=main {
  arg %x : f32[2]
  arg %s : f32[2]
  %y = add(%x, %s) : f32[2]
  return s = %y
  return y = %y
}
"""


def test_inputs_of_any_module():
    calls = tuple(
        ProgramCall("main", {}, {"x": np.array([low, 1.0], np.float32)}) for low in (0.0, -3.0)
    )
    states = {"s": np.ones(2, np.float32)}
    found = input_coverage(parse(ACCUMULATOR), Workload({}, calls, {}, states))
    assert (found.ids, found.positions, found.situations) == (None, None, {})
    assert found.ranges == {"x": (-3.0, 1.0)}
    (state,) = found.states
    assert (state.written, state.read, state.initial) == (1.0, 1.0, "given")
