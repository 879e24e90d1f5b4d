"""Recording of one run: functions entered, branches, turns of loops, ranges of results.

Results are keyed by the function and the place of the op in it, which stay the same when a program
is bound to the sizes of a call or copied to inline what it calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite

import numpy as np

from graphgen.eval import Array, Columns, numpy_dtype
from graphgen.eval.arithmetic import ends, is_integer, widened
from graphgen.ir import Function, Op
from graphgen.ir.dtype import lowest
from graphgen.ops import Trait, has_trait
from graphgen.ops.control import CONTROL

# A function, and the number of an op in it.
Site = tuple[str, int]


class RangeRecord:
    """Smallest and largest number of one op's results."""

    __slots__ = ("high", "infinite", "limit", "low", "nan")

    def __init__(self, op: Op) -> None:
        self.low: float = np.inf
        self.high: float = -np.inf
        self.nan = self.infinite = False
        kind = op.results[0].dtype
        self.limit = -lowest(kind) if kind.is_float else np.inf

    def see(self, given: Columns, results: Columns) -> None:
        """Take in one execution."""
        for column in results:
            for array in column:
                if array.size and array.dtype.kind not in "bc":
                    self._widen(array)

    def _widen(self, array: Array) -> None:
        low = np.minimum.reduce(array, axis=None)
        high = np.maximum.reduce(array, axis=None)
        if not (isfinite(low) and isfinite(high)):
            array = widened(array)
            self.nan = self.nan or bool(np.isnan(array).any())
            self.infinite = self.infinite or bool(np.isinf(array).any())
            finite = array[np.isfinite(array)]
            low, high = finite.min(initial=np.inf), finite.max(initial=-np.inf)
        if low < self.low:
            self.low = low
        if high > self.high:
            self.high = high

    @property
    def filled(self) -> bool:
        """True if a number was seen."""
        return self.low <= self.high

    @property
    def beyond(self) -> bool:
        """True if a number has no finite value in the op's own type."""
        return max(float(self.high), -float(self.low)) > self.limit

    @property
    def zero(self) -> bool:
        """True if there were no numbers but zeros."""
        return self.low == self.high == 0 and not self.nan and not self.infinite


class ChoiceRecord:
    """Outcomes of a select by its predicate, or of a comparison by its result."""

    __slots__ = ("false", "of_result", "true")

    def __init__(self, op: Op) -> None:
        self.of_result = op.name != "select"
        self.true = self.false = False

    def see(self, given: Columns, results: Columns) -> None:
        """Take in one execution."""
        if self.true and self.false:
            return
        for array in results[0] if self.of_result else given[0]:
            count = int(np.count_nonzero(array))
            self.true = self.true or count > 0
            self.false = self.false or count < array.size

    def outcomes(self) -> dict[str, bool]:
        """Outcomes by name, True for those that were seen."""
        return {"true": self.true, "false": self.false}


class SaturationRecord:
    """Elements below, inside and above the bounds of a clamp or of a convert to integers."""

    __slots__ = ("above", "below", "bounds", "inside")

    def __init__(self, op: Op) -> None:
        self.below = self.inside = self.above = False
        self.bounds = None if op.name == "clamp" else ends(numpy_dtype(op.result.dtype))

    def see(self, given: Columns, results: Columns) -> None:
        """Take in one execution."""
        if self.below and self.inside and self.above:
            return
        for rank, array in enumerate(given[0 if self.bounds else 1]):
            x = widened(array)
            low, high = self.bounds or (widened(given[0][rank]), widened(given[2][rank]))
            under, over = x < low, x > high
            self.below = self.below or bool(np.any(under))
            self.above = self.above or bool(np.any(over))
            self.inside = self.inside or not bool(np.all(under | over))

    def outcomes(self) -> dict[str, bool]:
        """Outcomes by name, True for those that were seen."""
        return {"below": self.below, "inside": self.inside, "above": self.above}


@dataclass(slots=True)
class ControlRecord:
    """Branches that a choice took, turns that a loop made."""

    executed: int = 0
    taken: set[int] = field(default_factory=set[int])
    least: int = -1
    most: int = -1

    def add_trip_counts(self, counts: Sequence[int]) -> None:
        """Take in one execution of a loop: its turns on each rank."""
        self.executed += len(counts)
        least = min(counts)
        self.least = least if self.least < 0 else min(self.least, least)
        self.most = max(self.most, *counts)


PredicateRecord = ChoiceRecord | SaturationRecord
ValueRecord = RangeRecord | PredicateRecord


def _record(op: Op) -> ValueRecord | None:
    """A record for what is worth recording of an op; ``None`` for one that only moves data."""
    if op.name in ("select", "compare", "attention_mask", "tree_mask"):
        return ChoiceRecord(op)
    if op.name == "clamp":
        return SaturationRecord(op)
    if op.name == "convert":
        operand, result = op.operands[0].dtype, op.result.dtype
        if operand.is_float and is_integer(numpy_dtype(result)):
            return SaturationRecord(op)
        return RangeRecord(op) if result.is_float and result.bits < operand.bits else None
    if op.name in CONTROL or not op.results or has_trait(op, Trait.DATA_MOVEMENT):
        return None
    if op.results[0].dtype.name in ("pred", "c64"):
        return None
    return RangeRecord(op)


class CoverageRecorder:
    """Observer of evaluations: see :class:`~graphgen.eval.Observer`. It replaces nothing.

    Attributes:
        programs: the program of each call, in order.
        entered: functions that were run, by name.
        values: record of each op with one, by its site.
        controls: record of each loop and choice that was reached, by its site.
        ops: the op at each site, as it was when it was last run.
    """

    def __init__(self) -> None:
        self.programs: list[str] = []
        self.entered: set[str] = set()
        self.values: dict[Site, ValueRecord] = {}
        self.controls: dict[Site, ControlRecord] = {}
        self.ops: dict[Site, Op] = {}
        # Functions as they are run now, and the records of their ops.
        self._live: dict[str, Function] = {}
        self._value_of: dict[Op, ValueRecord] = {}
        self._control_of: dict[Op, ControlRecord] = {}

    def enter(self, function: Function, ranks: Sequence[int]) -> None:
        """Note the function, and find the records of its ops."""
        if function.phase:
            self.programs.append(function.name)
        if self._live.get(function.name) is function:
            return
        self.entered.add(function.name)
        for op in old.block if (old := self._live.get(function.name)) else ():
            self._value_of.pop(op, None)
            self._control_of.pop(op, None)
        self._live[function.name] = function
        for number, op in enumerate(function.block):
            site = function.name, number
            if op.name in CONTROL:
                self._control_of[op] = self.controls.setdefault(site, ControlRecord())
                continue
            found = self.values.get(site) or _record(op)
            if found is not None:
                self.values[site] = self._value_of[op] = found
                self.ops[site] = op

    def made(self, op: Op, ranks: Sequence[int], given: Columns, results: Columns) -> Columns:
        """Take in the operands and results of an op."""
        found = self._value_of.get(op)
        if found is not None:
            found.see(given, results)
        return results

    def branch(self, op: Op, number: int, ranks: Sequence[int]) -> None:
        """Note a branch that was taken."""
        found = self._control_of[op]
        found.executed += len(ranks)
        found.taken.add(number)

    def loop(self, op: Op, turns: Sequence[int]) -> None:
        """Note the turns of a loop."""
        self._control_of[op].add_trip_counts(turns)
