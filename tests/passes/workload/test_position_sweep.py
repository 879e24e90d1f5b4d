"""Faults at one position, in one row or in one layer: the calls at all places find them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import pytest

from graphgen.build import Builder
from graphgen.exec.session import Workload
from graphgen.ir import Module, Op, Value, dtype
from graphgen.ir.dtype import s32
from graphgen.models import build, known_shape
from graphgen.passes.core import NoMatch, Pass, Rewriter, no_match, rule
from graphgen.passes.validate import validate
from graphgen.passes.workload.coverage import Coverage
from graphgen.passes.workload.make_workload import workload_for
from graphgen.passes.workload.place_coverage import ranges
from graphgen.passes.workload.position_sweep import missed_places, planned_positions
from graphgen.runtime.accuracy.validate_model import (
    ModuleVerdicts,
    ValidationOptions,
    validate_module,
    validate_wide,
    wide_twin,
)

NUMBERS = ValidationOptions(dtype="f32", each_rewrite=False)


@dataclass(frozen=True)
class Hide(Pass):
    """Hides slot 0 from the tokens of decode steps at some places; right everywhere else.

    Attributes:
        low, high: positions of these tokens.
        row: of the call; -1 for all.
        layer: -1 for all.
    """

    name: ClassVar[str] = "hide"

    low: int
    high: int
    row: int = -1
    layer: int = -1

    def run(self, module: Module, rewriter: Rewriter) -> None:
        @rule("attention")
        def hide(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
            if "hide" in op.loc.via:
                return no_match("it is done", op.result)
            mask = op.operands[3]
            if b.function.phase == "decode" and self._here(op.loc.scope):
                assert mask.op is not None
                mask = b.and_(mask, b.not_(self._hidden(b, mask, *mask.op.operands)))
            operands = (*op.operands[:3], mask, *op.operands[4:])
            return b.emit(op.name, operands, dict(op.attrs)).results

        for function in module.functions.values():
            rewriter.apply_rules(function, [hide])

    def _here(self, scope: str) -> bool:
        return self.layer < 0 or f"layers.{self.layer}." in f"{scope}."

    def _hidden(self, b: Builder, mask: Value, positions: Value, keys: Value) -> Value:
        there = b.and_(
            b.compare(positions, b.full(self.low, positions.type), "GE"),
            b.compare(positions, b.full(self.high, positions.type), "LE"),
        )
        if self.row >= 0:
            rows = b.iota(s32, positions.type.shape, 0)
            there = b.and_(there, b.compare(rows, b.full(self.row, rows.type), "EQ"))
        first = b.compare(keys, b.full(0, keys.type), "EQ")
        shape = mask.type.shape
        return b.and_(
            b.broadcast_in_dim(there, shape, [0, 1]), b.broadcast_in_dim(first, shape, [0, 2])
        )


@cache
def mini() -> Module:
    return build(known_shape("llama-3.1-8b"), dtype("f32"), twin="mini")


def right(item: Pass, workload: Workload) -> bool:
    (verdict,) = validate(mini(), [item], workload)
    return verdict.means_the_same


@pytest.mark.parametrize("position", [3, 6, 11, 13])
def test_a_fault_at_one_position_of_decode_is_found(position: int):
    item = Hide(position, position)
    assert not right(item, workload_for(mini(), [item], script="auto"))


@pytest.mark.parametrize("row", range(5))
def test_a_fault_at_one_position_in_one_row_is_found(row: int):
    item = Hide(9, 9, row=row)
    assert not right(item, workload_for(mini(), [item], script="auto"))


def test_the_situations_alone_leave_places_out():
    item = Hide(9, 9, row=4)
    assert right(item, workload_for(mini(), [item], script="quick"))


def test_a_right_pass_is_right_at_all_places():
    item = Hide(5, 4)
    assert right(item, workload_for(mini(), [item], script="auto"))


def of_wide(item: Pass) -> ModuleVerdicts:
    found = validate_wide(mini(), lambda _: [item], NUMBERS)
    assert found is not None
    assert found.twin == "wide"
    return found


def test_a_fault_of_the_second_layer_at_large_positions_shows_in_the_wide_twin_of_a_file():
    item = Hide(32_768, 1 << 20, layer=1)
    assert validate_module(mini(), [item], NUMBERS, twin="mini").passed
    found = of_wide(item)
    assert [verdict.state for verdict in found.verdicts] == ["WRONG"]
    assert not found.whole


def test_a_right_pass_is_compared_once_on_the_wide_twin():
    found = of_wide(Hide(5, 4))
    assert (found.whole, found.passed, found.not_covered) == (True, True, False)


def test_only_the_module_of_a_configuration_has_a_wide_twin():
    wide = wide_twin(mini())
    assert wide is not None
    assert wide_twin(wide) is None
    other = build(known_shape("llama-3.1-8b"), dtype("f32"), twin="mini")
    del other.meta["config"]
    assert wide_twin(other) is None


def test_planned_places():
    assert planned_positions(16) == tuple(range(16))
    assert planned_positions(100) == (0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 98, 99)
    assert planned_positions(32_773) == (0, 255, 256, 32_767, 32_768, 32_772)
    every = {(position, row) for position in range(8) for row in range(2)}
    assert missed_places(8, 2, every - {(3, 1)}) == [(3, 1)]
    # Of a larger program any row counts.
    seen = {(position, 1) for position in planned_positions(100)}
    assert missed_places(100, 2, seen) == []
    assert [place for place, _ in missed_places(100, 2, seen - {(64, 1)})] == [64]
    assert ranges([0, 1, 2, 5, 7, 8]) == "0..2 5 7..8"


def coverage_of(workload: Workload) -> Coverage:
    (verdict,) = validate(mini(), [Hide(5, 4)], workload)
    assert verdict.coverage is not None
    return verdict.coverage


def test_all_places_are_counted_and_a_hole_is_not_covered():
    item = Hide(5, 4)
    workload = workload_for(mini(), [item], script="auto")
    places = {each.phase: each.places for each in coverage_of(workload).programs}
    decode = places["decode"]
    assert decode is not None
    assert decode.text == "positions 0..15 of 16 in rows 0..4"
    assert len(decode.seen) == 16 * 5
    assert coverage_of(workload).complete

    def reaches(position: int, row: int) -> bool:
        return position == 11 and row == 3

    kept = [
        call
        for call in workload.calls
        if call.phase != "decode"
        or not any(reaches(int(p), row) for row, (p, *_) in enumerate(call.inputs["positions"]))
    ]
    with_hole = replace(workload, calls=tuple(kept))
    (verdict,) = validate(mini(), [item], with_hole)
    assert verdict.coverage is not None
    assert not verdict.coverage.complete
    (hole,) = [each for each in verdict.coverage.holes() if each.kind == "place"]
    assert "position" in hole.text
    assert "11" in hole.text
    assert "row 3" in hole.text
    assert (verdict.state, verdict.left_open) == ("not covered", {"not-covered"})
    # Calls that nobody planned for all places leave them untried, which does not count.
    untried = replace(with_hole, exhaustive=False)
    assert validate(mini(), [item], untried)[0].ok
