"""Numeric equivalence of two modules.

Modules of one logical interface, such as one before and after passes, run one workload, each with
its own weight programs, states and ranks. Of any others one program each is compared, on the same
arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from graphgen.errors import GraphgenError, did_you_mean
from graphgen.eval import Array
from graphgen.ir import Function, Loc, Module, Value
from graphgen.ir.loc import UNKNOWN
from graphgen.passes.equiv.deviation import NONE, Deviation, difference, worse
from graphgen.passes.equiv.find_divergence import DifferingOutput, Divergence, find_divergence
from graphgen.passes.equiv.paired_program import by_program
from graphgen.passes.equiv.paired_run import (
    CompareOptions,
    PairedCall,
    by_workload,
    interface_difference,
    same_phases,
)
from graphgen.passes.equiv.value_trace import trace


@dataclass(frozen=True, slots=True)
class Equivalence:
    """Result of comparing two modules.

    Attributes:
        difference: the worst one.
        tolerance: the largest relative difference that equal modules may have.
        left, right: where the output with the worst difference is made in each module.
        first: the value at which the two part, where they differ and one can be named.
        empty: outputs that hold nothing to compare: no element, or none that is finite.
    """

    difference: Deviation
    tolerance: float
    left: Loc
    right: Loc
    first: Divergence | None = None
    empty: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """True if the difference is within the tolerance."""
        return self.difference.within(self.tolerance)


def equivalent(left: Module, right: Module, terms: CompareOptions | None = None) -> Equivalence:
    """Compare two modules.

    Args:
        left: one module, at any level.
        right: the other.
        terms: how; by default what they mean, over random inputs.

    Raises:
        GraphgenError: GG0205 when the interfaces differ, GG0402 when inputs do not fit or the
            buckets have no size in common, GG0302 for a relation that does not fit.
    """
    terms = terms or CompareOptions()
    tolerance = terms.bound(left, right)
    calls = paired_calls(left, right, terms)
    worst, at = NONE, None
    first: PairedCall | None = None
    telling: dict[str, bool] = {}
    for both in calls:
        for name, (a, b) in both.outputs.items():
            telling[name] = telling.get(name, False) or _has_finite(a)
            found = difference(name, both.number, a, b)
            if worse(worst, found) is found:
                worst, at = found, both
            if not found.within(tolerance) and first is None:
                first = both
    named = None if first is None else _first(first, terms, tolerance)
    left_at = UNKNOWN if at is None else _maker(at.left.function, worst.name)
    right_at = UNKNOWN if at is None else _right_maker(at, worst.name)
    empty = tuple(name for name, tells in telling.items() if not tells)
    return Equivalence(worst, tolerance, left_at, right_at, named, empty)


def _has_finite(array: Array) -> bool:
    """True if an element is finite, both parts of a complex one."""
    return bool(np.isfinite(array if array.dtype.kind == "c" else array.astype(float)).any())


def paired_calls(left: Module, right: Module, terms: CompareOptions) -> Iterator[PairedCall]:
    """Run two modules, one call of both at a time.

    Raises:
        GraphgenError: as :func:`equivalent`.
    """
    _check_relations(left, right, terms)
    if not same_phases(left, right):
        return by_program(left, right, terms)
    _check_interfaces(left, right)
    return by_workload(left, right, terms)


def _check_relations(left: Module, right: Module, terms: CompareOptions) -> None:
    known = left.interface.keys() | right.interface.keys()
    for name in terms.relations:
        if name not in known:
            raise GraphgenError(
                "GG0302",
                f"a relation of {name}, which is not an input or output of either module",
                help=did_you_mean(name, known),
            )


def _check_interfaces(left: Module, right: Module) -> None:
    found = interface_difference(left, right)
    if found is not None:
        role, names = found
        raise GraphgenError(
            "GG0205",
            f"the modules differ in {role.value}s: {', '.join(names[:10])}",
            help="compare modules of one interface; passes never change its logical side",
        )


def _first(both: PairedCall, terms: CompareOptions, tolerance: float) -> Divergence | None:
    """The divergence of the two programs in the first call that shows a difference."""
    names = {value: name for name, value in both.left.function.outputs}
    wrong: dict[Value, DifferingOutput] = {}
    for theirs, ours in both.results.items():
        arrays = both.outputs[names[ours]]
        if not difference(names[ours], both.number, *arrays).within(tolerance):
            wrong[theirs] = DifferingOutput(ours, arrays)
    left, right = (
        trace(side.module, side.function, side.given, terms.arithmetic)
        for side in (both.left, both.right)
    )
    return find_divergence(left, right, both.inputs, wrong, tolerance)


def _maker(function: Function, output: str) -> Loc:
    for name, value in function.outputs:
        if name == output and value.op is not None:
            return value.op.loc
    return UNKNOWN


def _right_maker(both: PairedCall, output: str) -> Loc:
    """Location of the second module's counterpart of ``output``."""
    ours = dict(both.left.function.outputs).get(output)
    value = next((theirs for theirs, mine in both.results.items() if mine is ours), None)
    return UNKNOWN if value is None or value.op is None else value.op.loc
