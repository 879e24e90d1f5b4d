"""A compilation does not become more work than recorded; that it takes longer is not measured."""

from __future__ import annotations

from copy import deepcopy
from functools import cache

from graphgen.ir import Function, Op, tensor
from graphgen.ir.dtype import f32
from tests.compile_work.__main__ import counted, recorded, table
from tests.compile_work.count_work import (
    COUNTS_CALLS,
    Work,
    WorkCounter,
    comparable,
    increases,
)


@cache
def present() -> dict[str, Work]:
    """The counts of this tree."""
    return comparable(counted())


def test_no_pass_does_more_work_than_recorded():
    """`python -m tests.compile_work --update` records more, and the commit says why."""
    assert increases(comparable(recorded()), present()) == []


def test_an_increase_of_more_than_two_percent_is_named():
    before = {"m": {"cse": {"visited": 1000, "calls": 500}}}
    now = deepcopy(before)
    now["m"]["cse"] |= {"visited": 1020, "calls": 511}
    now["m"]["dce"] = {"visited": 1}
    assert increases(before, now) == ["m: cse: calls 500 -> 511", "m: dce: visited 0 -> 1"]
    assert increases(now, before) == []
    assert [line.split() for line in table(before, now).splitlines()] == [
        ["m", "cse", "visited", "1000", "1020"],
        ["m", "cse", "calls", "500", "511"],
        ["m", "dce", "visited", "0", "1"],
    ]


def test_ops_that_are_made_visited_and_erased_are_counted_by_step():
    counter = WorkCounter()
    with counter.counting():
        function = Function("f")
        x = function.block.add_arg(tensor(f32, ()), "x")
        with counter.step("a"):
            for _ in range(3):
                function.block.append(Op("negate", (x,), (x.type,)))
        with counter.step(counter.numbered("a")):
            for op in reversed(function.block):
                function.block.erase(op)
    kinds = [{k: n for k, n in work.items() if k != "calls"} for work in counter.steps.values()]
    assert list(counter.steps) == ["a", "a.2"]
    assert kinds == [{"created": 3}, {"visited": 3, "erased": 3}]
    assert not COUNTS_CALLS or counter.steps["a"]["calls"] >= 6


def test_passes_with_nothing_to_do_look_at_each_op_once():
    work = present()["llama-3.1-405b"]
    for idle in ("absorb-latent-projections", "dispatch-experts"):
        assert work[idle]["visited"] <= work["cse"]["visited"]
        assert not work[idle].keys() & {"created", "erased", "attempts"}
        assert not COUNTS_CALLS or work[idle]["calls"] <= 3 * work[idle]["visited"]
