"""Each option alone is proved from the model to the programs, but for those listed as open."""

from __future__ import annotations

import pytest

from graphgen.ir import attrs_of
from graphgen.passes.proof.refinement import prove_refinement
from tests.matrix.axes import AXES, Cell, label
from tests.matrix.cells import cell_run, compiled
from tests.matrix.holes import hole_of
from tests.matrix.proofs import (
    BASE,
    NARROW,
    OPEN,
    Report,
    alone,
    cells_alone,
    is_open,
    nearest,
    proved,
)

# Each value alone, but for families, which benchmarks.proofs has.
PROVED = [c for c in cells_alone() if c["family"] == BASE["family"] and not is_open(c)]


@pytest.mark.slow
@pytest.mark.parametrize("cell", PROVED, ids=label)
def test_a_value_alone_is_proved(cell: Cell) -> None:
    row = proved(cell, refute=False)
    assert (row["unknown"], row["refuted"], row["error"]) == (0, 0, "")
    assert sum(int(str(row[name])) for name in ("proved", "real", "narrow")) > 0


# Pairs of values that need rules beyond those of each alone, or more steps.
PAIRS: tuple[Cell, ...] = (
    {"caches": "paged", "numbers of caches": "f8e4m3 a tensor"},
    {"experts": "capacity", "ranks": "4"},
    {"ranks": "3", "activations": "static"},
)


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_values_together_are_proved(pair: Cell) -> None:
    cell = nearest(pair)
    assert cell is not None
    row = proved(cell, refute=False)
    assert (row["unknown"], row["refuted"], row["error"]) == (0, 0, "")


def test_every_value_has_a_cell_that_is_in_no_hole() -> None:
    for axis, values in AXES.items():
        for value in values:
            cell = alone(axis, value)
            assert cell is not None
            assert cell[axis] == value
            assert hole_of(cell) is None


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["slot", "rank"])
def test_an_adapter_in_another_slot_or_of_another_rank_is_not_proved(wrong: str) -> None:
    """A row takes the adapter of its number, and a rank its part of each adapter."""
    cell = alone("adapters", "two of rank 3")
    assert cell is not None
    run = cell_run({**cell, "phases": "decode alone"})
    module = compiled(run)
    if wrong == "slot":
        ops = [op for f in module.programs() for op in f.block if op.name == "compare"]
        for op in ops:
            if op.attrs["direction"] == "EQ":
                op.attrs = attrs_of({**op.attrs, "direction": "NE"})
    else:
        maker = module.function("adapter.rank")
        start = next(op for op in maker.block if op.name == "multiply")
        maker.replace_uses(start.result, start.operands[1])
    assert not prove_refinement(run.module, module).complete


def test_open_and_narrow_values_are_of_axes() -> None:
    for table in (OPEN, NARROW):
        assert all(set(values) <= set(AXES[axis]) for axis, values in table.items())


def test_a_report_is_good_only_where_what_is_not_open_is_proved() -> None:
    row = {
        "proved": 1,
        "real": 2,
        "narrow": 0,
        "unknown": 0,
        "refuted": 0,
        "error": "",
        "seconds": 0.5,
    }
    row |= {"cell": label(BASE), "reasons": {}, "places": {}}
    cells = {label(BASE): BASE}
    assert Report(cells, [row]).good
    assert not Report(cells, []).good
    for more in ({"unknown": 1}, {"refuted": 1}, {"error": "GG0302"}):
        assert not Report(cells, [{**row, **more}]).good
    rolled = {**BASE, "caches": "rolled"}
    lost = {
        **row,
        "cell": label(rolled),
        "narrow": 1,
        "unknown": 4,
        "reasons": {"why": 4},
        "places": {"why": "@"},
    }
    report = Report({label(rolled): rolled}, [lost])
    assert report.good
    assert report.share == 0.5
    lines = list(report.lines())
    assert any(line.startswith("caches rolled") for line in lines)
    assert lines[-1] == "1 of 1 cells, 50.0% proved, 37.5% without narrow numbers"
