"""Simulated steps against times that are added up by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks.simulation.step_simulation import (
    HostFigures,
    Task,
    chrome_trace,
    op_key,
    program_tasks,
    simulate_step,
)
from graphgen.text import parse

SUM = Task("sum", 1.0, rounds=2, round_seconds=0.5, wire_seconds=0.25)


def test_ranks_with_a_core_each_work_side_by_side():
    step = simulate_step([Task("a", 2.0), Task("b", 1.0)], 2, 2)
    assert (step.seconds, step.busy) == (3.0, (3.0, 3.0))


def test_ranks_that_share_a_core_wait_for_each_other():
    step = simulate_step([Task("a", 2.0), Task("b", 1.0)], 4, 2)
    assert (step.seconds, step.busy) == (6.0, (6.0, 6.0))


def test_a_round_waits_for_the_message_of_the_rank_before():
    # 1 s, the first round, the way, the second round: nobody waits but for the way.
    assert simulate_step([SUM], 2, 2).seconds == 1.0 + 0.5 + 0.25 + 0.5


def test_rings_side_by_side_do_not_wait_for_each_other():
    # Ranks 2 and 3 begin when 0 and 1 have had their first round on the same cores.
    pairs = Task("sum", 0.0, rounds=2, round_seconds=0.5, wire_seconds=4.0, rings=((0, 1), (2, 3)))
    assert ends(pairs) == [5.0, 5.0, 5.5, 5.5]
    # In one ring rank 0 needs what rank 3 sends.
    assert ends(replace(pairs, rings=())) == [5.5, 5.0, 5.0, 5.5]


def ends(task: Task) -> list[float]:
    """When each of four ranks on two cores has done a task."""
    spans = simulate_step([task], 4, 2).spans
    return [max(span.end for span in spans if span.rank == rank) for rank in range(4)]


def test_a_collective_waits_for_the_slowest():
    # On one core the second rank begins after all that the first can do without it.
    step = simulate_step([Task("a", 3.0), SUM], 2, 1)
    assert step.busy == (2 * (3.0 + 1.0 + 2 * 0.5),)
    # The last round of the second rank waits for nothing: all messages are there by then.
    assert step.seconds == step.busy[0]


def test_what_one_rank_waits_for_another_one_uses():
    slow = Task("sum", 0.0, rounds=2, round_seconds=0.5, wire_seconds=10.0)
    step = simulate_step([slow, Task("b", 1.0)], 2, 1)
    assert step.seconds == pytest.approx(0.5 + 10.0 + 2 * 0.5 + 2.0)


def test_a_lone_rank_has_no_rounds():
    assert simulate_step([Task("sum", 1.0)], 1, 2).busy == (1.0, 0.0)


def test_the_trace_has_each_span_on_its_core():
    events = json.loads(chrome_trace(simulate_step([SUM], 2, 2)))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert {(event["pid"], event["tid"]) for event in spans} == {(0, 0), (1, 1)}
    assert max(event["ts"] + event["dur"] for event in spans) == 2.25e6


PROGRAM = """\
module @m level=target mesh=tp:4 {
}

func @f {
  arg %x : f32[1,8]
  arg %w : f32[8,8]
  %a = multiply(%x, %x) : f32[1,8]
  %b = add(%a, %x) : f32[1,8]
  %y = dot_general(%b, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : f32[1,8]
  %v = reshape(%y) shape=[8] : f32[8]
  %z = all_reduce(%v) kind=add replica_groups=[[0,1,2,3]] : f32[8]
  return z = %z
}
"""


def test_the_tasks_of_a_program():
    function = parse(PROGRAM).function("f")
    (dot,) = (op for op in function.block if op.name == "dot_general")
    figures = HostFigures({op_key(dot): 5.0}, 1.0, 10.0, 0.5, 2.0, 0.25, 0.125)
    assert [*program_tasks(function, figures)] == [
        Task("launch", 11.0),
        # The product of x with itself is a part of the sum that is read.
        Task("add", 1.0),
        Task("dot_general", 5.0),
        # 6 rounds with a quarter of 32 bytes each.
        Task("all_reduce", 2.0, 6, 0.25 + 0.125 * 8, rings=((0, 1, 2, 3),)),
    ]


def test_a_sum_in_stages_has_rings_of_its_groups():
    text = PROGRAM.replace("[[0,1,2,3]]", "[[0,2],[1,3]]")
    function = parse(text).function("f")
    (dot,) = (op for op in function.block if op.name == "dot_general")
    figures = HostFigures({op_key(dot): 5.0}, 1.0, 10.0, 0.5, 2.0, 0.25, 0.125)
    # 2 rounds with a half of 32 bytes each.
    rings = ((0, 2), (1, 3))
    assert [*program_tasks(function, figures)][-1] == Task(
        "all_reduce", 2.0, 2, 0.25 + 0.125 * 16, rings=rings
    )
