"""Checks of rewrites that rebuild a whole function: value by value, each on right operands.

The function before runs first, in a call of a workload. Then the one after runs in the same call,
op by op. Each value that the journal relates to one before is compared with it; one that differs is
put right before the run goes on, so that a fault shows where it is made and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, NATIVE, Arithmetic, Array, evaluate_ranks
from graphgen.exec.session import CallResult, Runner, Workload
from graphgen.ir import Dim, Function, Module, Op, Value, symbol
from graphgen.ir.clone import Cloner
from graphgen.passes.core.journal import Journal, Rewrite
from graphgen.passes.core.relation import EQUAL, Relation
from graphgen.passes.equiv.deviation import MEANING_BUDGET, difference
from graphgen.passes.equiv.relate import RankGrid, apply, meet
from graphgen.passes.equiv.value_trace import trace
from graphgen.passes.validate.boundary_values import redrawn_floats
from graphgen.passes.validate.legal_calls import workloads
from graphgen.passes.validate.window_check import UNFIT, Differing, differing

Columns = Sequence[Sequence[Array]]


@dataclass(frozen=True, slots=True)
class Original:
    """The value that one of a rebuilt function stands for.

    Attributes:
        value: the value before.
        relation: of the value after to it.
    """

    value: Value
    relation: Relation


@dataclass(frozen=True, slots=True)
class RebuiltDifference:
    """A value of a rebuilt function that differs from its original.

    Attributes:
        op: the op after.
        original: the value before.
        call: the sizes of the call.
        origin: the workload that the call is from.
        difference: the element that differs most.
    """

    op: Op
    original: Value
    call: Mapping[str, Dim]
    origin: str
    difference: Differing


@dataclass(frozen=True, slots=True)
class FunctionBefore:
    """A function as it was before a pass replaced its block.

    Attributes:
        function: its name, arguments, ops and outputs then.
    """

    function: Function

    @classmethod
    def of(cls, function: Function) -> FunctionBefore:
        """Keep what ``function`` holds now."""
        kept = Function(function.name, function.phase, dict(function.dims))
        kept.block, kept.outputs = function.block, list(function.outputs)
        return cls(kept)


def originals_of(journal: Journal) -> dict[Value, Original]:
    """The original of each value that the journal has one of: copies and replacements."""
    found = {new: Original(old, journal.relations.get(new, EQUAL)) for old, new in journal.copies}
    for item in journal.applications:
        found.update({new: Original(old, how) for old, new, how in item.replaced})
    return found


def owners_of(function: Function, applications: Sequence[Rewrite]) -> dict[Op, int]:
    """The rewrite that each op of a rebuilt function belongs to, by its place in the journal.

    An op that no rewrite lists, such as a collective in front of one that is, belongs to the next
    that is listed; without any, to the rewrite of the whole function.
    """
    made = {op: number for number, item in enumerate(applications) for op in item.created}
    whole = [n for n, item in enumerate(applications) if item.function == function.name]
    out: dict[Op, int] = {}
    following = whole[0] if whole else 0
    for op in reversed(function.block):
        following = made.get(op, following)
        out[op] = following
    return out


_ROWS = symbol("B")
# More rows than calls have.
_ALL_ROWS = 1 << 30


@dataclass(slots=True)
class _Comparing:
    """Observes a run, and puts right what differs.

    Attributes:
        originals: of values of this run.
        reference: per value before, one array a rank.
        grid: the ranks.
        arithmetic, budget: of this run.
        active: rows of the call that are not idle, ``None`` for all; an idle row may differ.
        compared: ops of which a value was compared.
        found: ops and the first difference of each.
    """

    originals: Mapping[Value, Original]
    reference: Mapping[Value, Sequence[Array]]
    grid: RankGrid
    arithmetic: Arithmetic
    budget: float
    active: Sequence[int] | None = None
    compared: set[Op] = field(default_factory=set[Op])
    found: dict[Op, tuple[Value, Differing]] = field(
        default_factory=dict[Op, tuple[Value, Differing]]
    )

    def enter(self, function: Function, ranks: Sequence[int]) -> None:
        """A program or body begins."""

    def made(self, op: Op, ranks: Sequence[int], given: Columns, results: Columns) -> Columns:
        """Compare results that have originals; the run goes on with the right ones."""
        out: list[Sequence[Array]] = []
        for place, (value, parts) in enumerate(zip(op.results, results, strict=True)):
            original = self.originals.get(value)
            known = original is not None and original.value in self.reference
            right = self._right(op, place, original, parts) if original and known else parts
            out.append(right)
        return out

    def _right(
        self, op: Op, place: int, original: Original, parts: Sequence[Array]
    ) -> Sequence[Array]:
        reference = self.reference[original.value]
        try:
            a, b = self._met(original.relation, reference, parts)
        except GraphgenError:
            return parts
        self.compared.add(op)
        if self.active is not None and original.value.type.shape[:1] == (_ROWS,):
            axis = int(original.relation == EQUAL)
            a, b = (np.take(each, self.active, axis) for each in (a, b))
        gap = difference("", 0, a, b)
        if gap.within(self.budget):
            return parts
        rounding = self.arithmetic is NATIVE
        worst = differing(place, a, b, gap, self.budget, rounding=rounding)
        self.found.setdefault(op, (original.value, worst))
        return self._expected(original.relation, reference, parts)

    def _met(
        self, relation: Relation, reference: Sequence[Array], parts: Sequence[Array]
    ) -> tuple[Array, Array]:
        if relation == EQUAL:
            whole = list(reference) * (len(parts) // len(reference))
            return np.stack(whole), np.stack(list(parts))
        return meet(relation, reference[0], parts, self.grid)

    def _expected(
        self, relation: Relation, reference: Sequence[Array], parts: Sequence[Array]
    ) -> Sequence[Array]:
        if relation == EQUAL:
            right = list(reference) * (len(parts) // len(reference))
        else:
            right = apply(relation, reference[0], self.grid)
        same = [a.shape == b.shape for a, b in zip(right, parts, strict=True)]
        if not all(same):
            return parts
        return [a.astype(b.dtype) for a, b in zip(right, parts, strict=True)]

    def branch(self, op: Op, number: int, ranks: Sequence[int]) -> None:
        """A branch begins."""

    def loop(self, op: Op, turns: Sequence[int]) -> None:
        """A loop has ended."""


@dataclass(slots=True)
class RebuiltFunctions:
    """Compares functions rebuilt by a pass with the functions before it.

    Attributes:
        before: the module before, with functions of the same names and arguments.
        after: the module after.
        kept: the functions before, whose values the journal names, by name.
        originals: see :func:`originals_of`.
        budget: of rounding.
        compared: ops whose values were compared.
        found: the first difference of each op that differs in the calls of the workload.
        drawn: the same with weights and caches drawn with zeros, ties and numbers far from 1.
    """

    before: Module
    after: Module
    kept: Mapping[str, FunctionBefore]
    originals: Mapping[Value, Original]
    budget: float
    compared: set[Op] = field(default_factory=set[Op])
    found: dict[Op, RebuiltDifference] = field(default_factory=dict[Op, RebuiltDifference])
    drawn: dict[Op, RebuiltDifference] = field(default_factory=dict[Op, RebuiltDifference])

    def run(self, workload: Workload) -> None:
        """Compare over a workload, and over calls of programs that it does not run."""
        for each, origin in workloads(self.after, workload):
            drawn = replace(
                each,
                weights=redrawn_floats(each.weights, 2 * each.seed),
                states=redrawn_floats(each.states, 2 * each.seed + 1),
            )
            for given, arithmetic, budget, found in (
                (each, MEANING, MEANING_BUDGET, self.found),
                (each, NATIVE, self.budget, self.found),
                (drawn, MEANING, MEANING_BUDGET, self.drawn),
            ):
                try:
                    self._over(given, origin, arithmetic, budget, found)
                except UNFIT:
                    # A call that cannot be made of both modules compares nothing.
                    continue

    def rebuilt(self) -> list[Function]:
        """The programs that have another block than before."""
        blocks = [one.function.block for one in self.kept.values()]
        return [f for f in self.after.programs() if not any(f.block is block for block in blocks)]

    def _over(
        self,
        workload: Workload,
        origin: str,
        arithmetic: Arithmetic,
        budget: float,
        found: dict[Op, RebuiltDifference],
    ) -> None:
        ours = Runner(self.before, workload, arithmetic=arithmetic).calls()
        theirs = Runner(self.after, workload, arithmetic=arithmetic).calls()
        rebuilt = {function.name for function in self.rebuilt()}
        # One call of each program: its values are right whatever the calls before it did.
        chosen = _fullest_calls(workload)
        for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            if number in chosen and b.function.name in rebuilt and a.function.name in self.kept:
                self._call(a, b, origin, arithmetic, budget, found)
            if number >= max(chosen):
                return

    def _call(
        self,
        a: CallResult,
        b: CallResult,
        origin: str,
        arithmetic: Arithmetic,
        budget: float,
        found: dict[Op, RebuiltDifference],
    ) -> None:
        old, new = self.kept[a.function.name].function, self.after.function(b.function.name)
        bound_old, now_old = _bound(old, a.call.dims)
        bound_new, now_new = _bound(new, b.call.dims)
        values = trace(self.before, bound_old, a.given, arithmetic).parts
        reference = {value: values[now] for value, now in now_old.items() if now in values}
        originals = {
            now: self.originals[value] for value, now in now_new.items() if value in self.originals
        }
        was = {now.op: value.op for value, now in now_new.items() if now.op and value.op}
        grid = RankGrid(self.after.mesh)
        rows = a.call.active
        watch = _Comparing(originals, reference, grid, arithmetic, budget, rows)
        evaluate_ranks(bound_new, b.given, arithmetic, module=self.after, observer=watch)
        self.compared |= {was[op] for op in watch.compared}
        for op, (value, gap) in watch.found.items():
            what = RebuiltDifference(was[op], value, b.call.dims, origin, gap)
            found.setdefault(was[op], what)


def _fullest_calls(workload: Workload) -> set[int]:
    """The places of one call of each program and sizes: the first with the fewest idle rows."""
    best: dict[tuple[object, ...], tuple[int, int]] = {}
    for number, call in enumerate(workload.calls):
        key = call.phase, *sorted((name, str(size)) for name, size in call.dims.items())
        used = len(call.active) if call.active is not None else _ALL_ROWS
        if key not in best or used > best[key][0]:
            best[key] = used, number
    return {number for _, number in best.values()}


def _bound(function: Function, sizes: Mapping[str, Dim]) -> tuple[Function, Mapping[Value, Value]]:
    """A copy with symbols replaced, and the copy of each value."""
    made = Function(function.name, function.phase, dict(function.dims))
    mapping = Cloner(symbols=sizes).function(function, made)
    return made, mapping
