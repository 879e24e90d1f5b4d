"""The search without switches is as cheap as with those of its mesh; what the script counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.partition_search import (
    NONE,
    PHASES,
    SHAPES,
    Cost,
    Shape,
    dearer,
    line,
    measured,
    settings,
)
from graphgen.lowering.plan.short_bounds import sent_cost
from graphgen.passes.spmd.partition import Partition
from graphgen.text import parse

PLAIN = Cost("m", NONE, True, 100, 10, 1000)
PROGRAM = """module @m level=sharded mesh=tp:2 {
  input %x : f32[4]
  weight %w : f32[4]
  output %y : f32[4]
}

func @f phase=decode {
  arg %rank : s32[1]
  arg %x : f32[4]
  arg %w : f32[4]
  %0 = negate(%w) : f32[4]
  %1 = add(%x, %0) : f32[4]
  %y = all_reduce(%1) kind=add replica_groups=[[0,1]] : f32[4]
  %unread = exponential(%x) : f32[4]
  return y = %y
}
"""


def test_costs_are_bytes_collectives_and_work_of_what_runs():
    """An all-reduce of 16 bytes sends as many; prepared weights and unread values are not run."""
    module = parse(PROGRAM)
    work = (3 * 16) // Partition.memory + (2 * 16) // Partition.memory
    function = module.function("f")
    assert sent_cost(module, function, list(function.block)) == 16 + Partition.latency + work


def test_a_cheaper_setting_of_the_same_mesh_is_found():
    other = replace(PLAIN, setting="other")
    assert dearer([PLAIN, other]) == []
    cheaper = replace(other, decode=9)
    assert dearer([PLAIN, cheaper]) == [("decode", cheaper)]
    assert dearer([PLAIN, replace(cheaper, same_mesh=False)]) == []
    assert dearer([PLAIN, replace(cheaper, decode=0, refused="GG0304")]) == []
    assert "0.900 other" in line([PLAIN, cheaper], "decode")


def test_the_settings_of_a_shape():
    names = [setting.name for setting in settings(Shape("smollm2-135m", 4, 128, 128, 2))]
    assert len(names) == len(set(names))
    assert {"sequence parallel", "flash decoding over 4", "cp 2 gather, mlp 2"} <= {*names}
    assert "attention dp 2, cp 4" in names
    assert "attention dp 4" not in names
    assert len(SHAPES) == 20


@pytest.mark.parametrize(
    "number", [4, 6, *[pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 5, 8, 16)]]
)
def test_no_switch_is_as_cheap_as_any_of_its_mesh(number: int):
    shape = SHAPES[number]
    costs = [measured(shape, setting) for setting in settings(shape) if setting.same_mesh]
    assert dearer(costs) == []
    assert all(cost.of(phase) for cost in costs for phase in PHASES)
