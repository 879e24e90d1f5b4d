"""Cells of the matrix are compiled and compared, holes are refused, docs/families.md is true."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from graphgen.analysis import fingerprint
from graphgen.config.compile_config import CompileConfig
from graphgen.config.fields import fields_of
from graphgen.errors import GraphgenError
from graphgen.exec.decode_steps import STEPS
from graphgen.passes.equiv.deviation import MEANING_BUDGET
from graphgen.passes.validate import validate
from tests.matrix.axes import AXES, AXIS_OF_OPTION, OPTIONS_WITHOUT_AXIS, Cell, label
from tests.matrix.cells import cell_run, compiled, relative_difference
from tests.matrix.covering import covering_cells, is_possible, possible_choices
from tests.matrix.holes import HOLES, Hole, hole_of
from tests.matrix.page import page
from tests.oracles.family_groups import VARIANTS
from tests.oracles.planted_bugs import Bug, Planted, attribute

SLOW = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "families.md"


PLAIN = {axis: values[0] for axis, values in AXES.items()}


def _slow_variants(cells: Sequence[Cell]) -> list[Cell | ParameterSet]:
    """Cells; slow are those of nothing but a family whose structure another family has."""
    alone = [{**PLAIN, "family": family} for family in VARIANTS]
    return [pytest.param(cell, marks=SLOW) if cell in alone else cell for cell in cells]


@pytest.mark.parametrize("cell", _slow_variants(covering_cells(1)), ids=label)
def test_each_value(cell: Cell):
    assert relative_difference(cell_run(cell)) <= MEANING_BUDGET


@pytest.mark.one_in(6)
@pytest.mark.slow
@pytest.mark.parametrize("cell", covering_cells(2), ids=label)
def test_each_pair_pass_by_pass(cell: Cell):
    if _chooses_groups_in_another_order(cell):
        pytest.skip("its logits are compared in tests/runtime/session/test_context_parallel.py")
    run = cell_run(cell)
    verdicts = validate(run.module, run.passes, run.workload)
    assert [verdict.pass_text for verdict in verdicts if not verdict.means_the_same] == []
    beyond = [verdict for verdict in verdicts if not verdict.within_budget]
    if cell["ranks of a prompt"] != PLAIN["ranks of a prompt"]:
        # Tokens of a divided prompt choose experts on ranks of their own: such a choice has no
        # counterpart that could be replayed, and rounding may send a token to another expert.
        beyond = [verdict for verdict in beyond if not verdict.choices.alone]
    assert [verdict.pass_text for verdict in beyond] == []


def _chooses_groups_in_another_order(cell: Cell) -> bool:
    """Whether tokens choose groups of experts in an order that a pass changes.

    Choices are compared, and replayed, in the order of tokens: those of groups would be another
    token's.
    """
    return cell["family"] == "deepseek_v3" and cell["ranks of a prompt"].endswith("balanced ring")


def test_a_cell_of_a_wrong_pass_fails():
    run = cell_run(PLAIN)
    op = next(op for op in run.module.function("decode").ops if op.name == "rms_norm")
    bug = Bug("epsilon", "rms_norm", "decode", op.loc.scope, attribute(epsilon=0.5))
    assert relative_difference(run) <= MEANING_BUDGET
    run.passes.insert(0, Planted(bug))
    assert relative_difference(run) > MEANING_BUDGET


@pytest.mark.parametrize("sampling", ["best", "drawn"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"layers": "outlined", "caches": "paged"},
        {"family": "mistral", "ranks": "2", "caches": "rolled", "rows": "4"},
        {"family": "qwen3_moe", "ranks": "2", "interface": "features"},
        {"kernels": "selected", "interface": "hidden states", "phases": "decode alone"},
    ],
    ids=lambda more: label({**PLAIN, **more}),
)
@pytest.mark.one_in(3)
def test_launches_of_several_steps_pass_by_pass(more: Cell, sampling: str):
    """Where nothing rounds to less than f32, a launch is a call of the cell."""
    cell = {**PLAIN, **more, "sampling": sampling, "launches": "several steps"}
    run = cell_run(cell, one_layer=True)
    assert run.workload.calls[-1].phase == STEPS
    verdicts = validate(run.module, run.passes, run.workload)
    assert [verdict.pass_text for verdict in verdicts if not verdict.passed] == []


def in_hole(hole: Hole) -> Cell:
    """The first cell of a hole whose other values are plain."""
    for values in product(*[AXES[axis] for axis in hole.axes]):
        part = {**PLAIN, **dict(zip(hole.axes, values, strict=True))}
        if hole_of(part) is hole:
            return part
    raise AssertionError(f"no combination is in the hole: {hole.reason}")


@pytest.mark.parametrize("hole", [h for h in HOLES if h.code], ids=lambda hole: hole.words)
def test_a_hole_is_refused(hole: Hole):
    with pytest.raises(GraphgenError) as caught:
        compiled(cell_run(in_hole(hole)))
    assert caught.value.code == hole.code
    assert hole.words in str(caught.value)


@pytest.mark.parametrize("hole", [h for h in HOLES if not h.code], ids=lambda hole: hole.words)
def test_a_hole_without_a_refusal_means_nothing_new(hole: Hole):
    cell = in_hole(hole)
    plain = {**cell, hole.words: PLAIN[hole.words]}
    assert fingerprint(compiled(cell_run(cell))) == fingerprint(compiled(cell_run(plain)))


@pytest.mark.parametrize("strength", [1, 2])
def test_cells_hold_every_choice_there_is(strength: int):
    cells = [frozenset(cell.items()) for cell in covering_cells(strength)]
    assert all(any(choice <= cell for cell in cells) for choice in possible_choices(strength))
    assert all(hole_of(cell) is None for cell in covering_cells(strength))


def test_every_value_occurs():
    values = {(axis, value) for axis, values in AXES.items() for value in values}
    assert {item for choice in possible_choices(1) for item in choice} == values


def test_a_choice_is_left_out_only_in_a_hole():
    assert not is_possible({"ranks": "1", "heads": "SHARD_OVER_HEADS"})
    # Two ranks, or more, need two rows, or more: the hole is seen through the third axis.
    assert not is_possible({"heads": "SHARD_OVER_BATCH", "rows": "1"})
    assert is_possible({"heads": "SHARD_OVER_BATCH", "rows": "4"})


def test_every_option_of_a_compilation_has_an_axis_or_a_reason():
    options = set(fields_of(CompileConfig))
    assert AXIS_OF_OPTION.keys() | OPTIONS_WITHOUT_AXIS.keys() == options
    assert AXIS_OF_OPTION.keys().isdisjoint(OPTIONS_WITHOUT_AXIS)
    assert set(AXIS_OF_OPTION.values()) <= set(AXES)


def test_the_page_says_what_is_run():
    if os.environ.get("GRAPHGEN_UPDATE_GOLDEN"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page()
