"""Arrays of planned calls: where tokens stand, which ids are drawn, what idle rows get."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.passes.workload.call_plan import CallPlan, Span
from graphgen.passes.workload.draw_calls import CallDrawer, slot_of_row
from graphgen.passes.workload.program_shapes import ProgramShape, ServingSizes
from graphgen.passes.workload.value_ranges import normal_numbers
from graphgen.text import parse

VOCABULARY, ROWS, SLOTS = 200, 4, 16
SHAPE = ProgramShape("prefill", 8, 6, 3)
INPUTS = """\
module @m level=logical {
  input %tokens : s32[B,S]
  input %positions : s32[B,S]
  input %lengths : s32[B]
  input %seq_ids : s32[B]
  input %random : f32[B]
  input %top_p_min_tokens : s32[B]
}
"""
DRAWER = CallDrawer(
    ServingSizes((SHAPE,), ROWS, SLOTS), parse(INPUTS).interface, VOCABULARY, normal_numbers
)


def test_tokens_stand_at_either_end_and_idle_rows_have_none():
    plan = CallPlan("", SHAPE, ((2, Span(3, 4)), None, (0, Span(0, 2, left=True))))
    (call,) = DRAWER.draw(0, [plan])
    assert call.inputs["positions"].tolist() == [
        [3, 4, 5, 6, -1, -1],
        [-1] * 6,
        [-1, -1, -1, -1, 0, 1],
    ]
    assert call.inputs["lengths"].tolist() == [7, 0, 2]
    assert call.inputs["seq_ids"].tolist() == [2, ROWS, 0]
    assert call.active == (0, 2)
    assert dict(call.dims) == {"R": ROWS, "M": SLOTS, "B": 3, "S": 6, "C": 8}
    assert {len(call.inputs[name]) for name in ("random", "top_p_min_tokens")} == {3}


@pytest.mark.parametrize(
    ("ids", "first"),
    [
        ("outside", [-1, VOCABULARY, -(2**31), 2**31 - 1]),
        ("ends", [0, VOCABULARY - 1, 1, 127, 128]),
    ],
)
def test_chosen_ids_are_those_of_the_first_tokens_that_are_no_padding(ids: str, first: list[int]):
    spans = ((2, Span(0, 2, left=True)), (1, Span(0, 3)), (0, Span(4, 1)))
    assert ids in ("outside", "ends")
    (call,) = DRAWER.draw(0, [CallPlan("", SHAPE, spans, ids)])
    tokens, real = call.inputs["tokens"], call.inputs["positions"] >= 0
    assert tokens[real][: len(first)].tolist() == first
    inside = np.concatenate([tokens[real][len(first) :], tokens[~real]])
    assert ((inside >= 0) & (inside < VOCABULARY)).all()


def test_random_ids_reach_the_whole_vocabulary_and_rows_may_be_equal():
    plans = [CallPlan("", SHAPE, ((0, Span(0, 6)),) * 3, equal=equal) for equal in (False, True)]
    calls = DRAWER.draw(1, plans * 60)
    drawn = np.concatenate([call.inputs["tokens"].ravel() for call in calls])
    assert set(drawn.tolist()) == set(range(VOCABULARY))
    for number, call in enumerate(calls):
        tokens = call.inputs["tokens"]
        assert (tokens == tokens[0]).all() == (number % 2 == 1)


def test_ids_outside_go_on_from_call_to_call_of_a_phase():
    step = ProgramShape("decode", 8, 1, 3)
    plans = [CallPlan("", step, ((0, Span(at, 1)), None, None), "outside") for at in range(4)]
    plans.insert(1, CallPlan("", SHAPE, ((0, Span(0, 5)), None, None), "outside"))
    calls = DRAWER.draw(0, plans)
    ids = [int(call.inputs["tokens"][0, 0]) for call in calls if call.phase == "decode"]
    assert ids == [-1, VOCABULARY, -(2**31), 2**31 - 1]
    assert set(ids) < set(calls[1].inputs["tokens"][0].tolist())


def test_adapter_slots_are_those_there_are_and_others():
    rows = np.arange(8)
    slots = slot_of_row(rows, 7, 3)
    assert slots.tolist() == [-1, 2, 0, 3, 2**31 - 1, 1, -1, -1]
    assert (slot_of_row(rows, 7, 3) == slots).all()
    assert slot_of_row(rows, 7, 3, 1).tolist() != slots.tolist()


def test_inputs_with_a_domain_are_drawn_inside_of_it():
    text = INPUTS.replace("}", "  input %kind : s32[B] domain={3,8}\n}")
    sizes = ServingSizes((SHAPE,), ROWS, SLOTS)
    drawer = CallDrawer(sizes, parse(text).interface, VOCABULARY, normal_numbers)
    plans = [CallPlan("", SHAPE, ((0, Span(at, 1)), None, None)) for at in range(6)]
    drawn = {x for call in drawer.draw(0, plans) for x in call.inputs["kind"].tolist()}
    assert drawn == {3, 8}
