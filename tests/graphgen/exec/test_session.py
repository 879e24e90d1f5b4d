"""Runs of programs whose ranks hold what is theirs: outputs that every rank has, or not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.exec.session import ProgramCall, Runner, Workload
from graphgen.ir import Role, dtype
from graphgen.models import build, known_shape
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse

ON_TWO_RANKS = """\
module @m level=target mesh=tp:2 {
  input %x : f32[2]
  output %y : f32[2]
}

func @f phase=main {
  arg %x : f32[2]
  %y = log(%x) : f32[2]
  return y = %y
}
"""


def result_of(*of_ranks: list[float]) -> list[object]:
    """The output of ranks that are given ``e ** n`` for each number: ``n`` on each rank, or all."""
    parts = {"x": [np.exp(np.array(numbers, np.float32)) for numbers in of_ranks]}
    parts = {"x": [np.where(np.isnan(x), np.float32(-1), x) for x in parts["x"]]}
    call = ProgramCall("main", {}, {}, parts=parts)
    (outcome,) = Runner(parse(ON_TWO_RANKS), Workload({}, (call,))).outcomes()
    return np.round(outcome["y"], 3).tolist()


@pytest.mark.parametrize(
    ("first", "second", "whole"),
    [
        ([1, 2], [1, 2], [1, 2]),
        # Rounding: the rank that is furthest from rank 0.
        ([1, 2], [1, 2.019], [1, 2.019]),
        ([1, 2], [1, 2.021], [[1, 2], [1, 2.021]]),
        ([0, 0], [0, 1], [[0, 0], [0, 1]]),
        ([0, 0], [0, 0], [0, 0]),
    ],
)
def test_an_output_is_one_array_where_ranks_agree_up_to_rounding(
    first: list[float], second: list[float], whole: list[object]
):
    assert result_of(first, second) == whole


def test_ranks_that_hold_nan_in_the_same_places_agree():
    nan = float("nan")
    same, other = result_of([1, nan], [1, nan]), result_of([1, nan], [nan, 1])
    np.testing.assert_array_equal(same, [1, nan])
    np.testing.assert_array_equal(other, [[1, nan], [nan, 1]])
    np.testing.assert_array_equal(result_of([1, 1], [1, nan]), [[1, 1], [1, nan]])


ONE_ROW_A_TOKEN = """\
module @m level=logical {
  input %positions : s32[B,S]
  input %x : f32[B,S]
  output %y : f32[B,S]
  output %z : f32[B,S,2]
}

func @f phase=decode {
  arg %positions : s32[B,S]
  arg %x : f32[B,S]
  %y = negate(%x) : f32[B,S]
  %z = broadcast_in_dim(%x) shape=[B,S,2] dimensions=[0,1] : f32[B,S,2]
  return y = %y
  return z = %z
}
"""


def test_rows_of_padding_are_masked_and_rows_that_do_not_matter_left_out():
    inputs = {
        "positions": np.array([[0, 1], [-1, 3], [5, 6]], np.int32),
        "x": np.arange(6, dtype=np.float32).reshape(3, 2),
    }
    calls = [
        ProgramCall("decode", {"B": 3, "S": 2}, inputs, active=active) for active in (None, (0, 1))
    ]
    module = parse(ONE_ROW_A_TOKEN)
    every, some = Runner(module, Workload({}, tuple(calls))).outcomes()
    assert np.ma.getmaskarray(every["y"]).tolist() == [[False] * 2, [True, False], [False] * 2]
    np.testing.assert_array_equal(every["y"].data, -inputs["x"])
    hidden = np.ma.getmaskarray(every["z"])
    assert hidden.tolist() == [[[False] * 2] * 2, [[True] * 2, [False] * 2], [[False] * 2] * 2]
    assert some["y"].shape == (2, 2)


@pytest.mark.parametrize(
    ("phase", "help_"),
    [
        ("prefill", "no program has the phase prefill"),
        ("decode", "its programs have B=2,S=1; B=4,S=1"),
    ],
)
def test_a_program_of_other_sizes_is_refused_with_those_there_are(phase: str, help_: str):
    text = ONE_ROW_A_TOKEN.split("\nfunc ")[0]
    for rows in (2, 4):
        text += f"""
func @decode.{rows} phase=decode dims={{B={rows},S=1}} {{
  arg %x : f32[{rows},1]
  %y = negate(%x) : f32[{rows},1]
  return y = %y
}}
"""
    call = ProgramCall(phase, {"B": 3}, {})
    with pytest.raises(GraphgenError, match=f"no {phase} program for B=3") as refused:
        list(Runner(parse(text), Workload({}, (call,))).calls())
    assert (refused.value.code, refused.value.help) == ("GG0402", help_)


def test_states_after_the_last_call_only():
    module = build(known_shape("llama-3.1-8b"), dtype("f32"), mini=True)
    workload = make_workload(module)
    every = Runner(module, workload).outcomes()
    last = Runner(module, workload, last_states=True).outcomes()
    states = {row.name for row in module.entries(Role.STATE)}
    assert [states & one.keys() for one in last[:-1]] == [set()] * (len(every) - 1)
    for one, other in zip(every, last, strict=True):
        for name, array in other.items():
            assert np.array_equal(one[name], array)
    assert every[-1].keys() == last[-1].keys()


def test_states_of_the_last_call_alone_are_the_same_and_leave_those_given():
    module = build(known_shape("llama-3.1-8b"), dtype("bf16"), mini=True)
    workload = make_workload(module, 3)
    rng = np.random.default_rng(5)
    states = {
        row.name: rng.standard_normal(row.logical.bind(workload.dims).dims)
        for row in module.entries(Role.STATE)
    }
    workload = replace(workload, states=states)
    before = {name: array.copy() for name, array in states.items()}
    every = Runner(module, workload).outcomes()
    last = Runner(module, workload, last_states=True).outcomes()
    assert not any(name in outcome for outcome in last[:-1] for name in states)
    for one, other in zip(every, last, strict=True):
        for name, array in other.items():
            np.testing.assert_array_equal(array, one[name])
    for name, array in states.items():
        np.testing.assert_array_equal(array, before[name])
