"""Equivalence of two modules on drawn values: the boundary values that rewrites are checked on.

After the calls of the workload, each program runs once for each spread of values: of inputs, states
and weights, for a language model of states and weights. Where rounding alone moves a result by as
much as the two modules are apart, a difference says nothing: results of arithmetic are moved by a
few units of the last place, and a difference counts if it is larger than what that changes. Exact
values, such as ties, stay exact.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from graphgen.analysis import inlined
from graphgen.errors import GraphgenError
from graphgen.eval import Array, Columns
from graphgen.eval.element_kinds import has_floats
from graphgen.exec.session import ProgramCall, Workload
from graphgen.exec.weights import weight_programs
from graphgen.ir import Function, Module, Op, Role, TensorType, Value, tensor
from graphgen.ops.control import CONTROL
from graphgen.passes.equiv.deviation import Deviation, difference
from graphgen.passes.equiv.equiv import Equivalence, equivalent, paired_calls
from graphgen.passes.equiv.paired_run import CompareOptions, PairedCall
from graphgen.passes.validate.boundary_values import Spread, draw_array, spreads_of
from graphgen.passes.validate.window_check import UNFIT
from graphgen.passes.workload.coverage import Coverage
from graphgen.passes.workload.coverage_collect import collect
from graphgen.passes.workload.coverage_input import input_coverage
from graphgen.passes.workload.coverage_recorder import CoverageRecorder
from graphgen.passes.workload.make_workload import is_language_model
from graphgen.passes.workload.random_calls import PLACES

# Ops that choose by scores, and those that mix what they read.
_CHOOSING = frozenset({"top_k", "sort", "sort_by"})
_MIXING = frozenset({"dot_general", "convolution", "experts"})
# How many kinds of weights are made to tie, one after the other.
_MOST_TIES = 4
# A difference counts beyond this multiple of what rounding moves.
_BEYOND = 16.0
# Results are moved by this part of them: a few units in the last place of f64.
_NUDGE = 2.0**-49


@dataclass(frozen=True, slots=True)
class DrawnEquivalence:
    """Result of comparing two modules over calls and on drawn values.

    Attributes:
        found: the comparison: of the calls, or of the first values on which the modules differ.
        values: which those are; empty for the calls.
        agreed: the values on which the modules agree.
        undecided: values that one module cannot be run on, or where rounding decides; with why.
        coverage: what the calls exercised of the first module that ran them; ``None`` where the
            programs did not run in NumPy.
    """

    found: Equivalence
    values: str = ""
    agreed: tuple[str, ...] = ()
    undecided: Mapping[str, str] = field(default_factory=dict[str, str])
    coverage: Coverage | None = None


def equivalent_throughout(
    left: Module, right: Module, terms: CompareOptions | None = None
) -> DrawnEquivalence:
    """Compare two modules over the calls of a workload, and on drawn values if they agree there.

    With relations between values, and on other backends than NumPy, nothing is drawn.

    Args:
        left, right, terms: as of :func:`graphgen.passes.equiv.equiv.equivalent`.

    Raises:
        GraphgenError: as that.
    """
    terms = terms or CompareOptions()
    if terms.evaluator is not None:
        return DrawnEquivalence(equivalent(left, right, terms))
    watch = _Watch()
    found = equivalent(left, right, replace(terms, redraw=watch.keep, observers=watch.observers))
    made = DrawnEquivalence(found, coverage=watch.coverage(left))
    if not found.equal or terms.relations:
        return made
    agreed, undecided = list[str](), dict[str, str]()
    for drawing in _drawings(left, right, finite=terms.finite):
        own = replace(terms, redraw=drawing.workload)
        try:
            # Infinities and NaN are compared as well, without a warning.
            with np.errstate(all="ignore"):
                calls = list(paired_calls(left, right, own))
        except UNFIT as error:
            undecided[drawing.name] = error.what if isinstance(error, GraphgenError) else str(error)
            continue
        apart = _apart(calls, found.tolerance)
        if not apart:
            agreed.append(drawing.name)
        elif _explained_by_rounding(left, right, own, calls, apart):
            undecided[drawing.name] = "rounding decides"
        else:
            differs = _named(left, right, own, apart, found)
            return replace(
                made,
                found=differs,
                values=drawing.name,
                agreed=tuple(agreed),
                undecided=undecided,
            )
    return replace(made, agreed=tuple(agreed), undecided=undecided)


# Call and output -> the difference.
_Apart = Mapping[tuple[int, str], Deviation]


def _apart(calls: Sequence[PairedCall], tolerance: float) -> _Apart:
    """The outputs that differ by more than ``tolerance``."""
    found = {
        (both.number, name): difference(name, both.number, a, b)
        for both in calls
        for name, (a, b) in both.outputs.items()
    }
    return {key: gap for key, gap in found.items() if not gap.within(tolerance)}


def _named(
    left: Module, right: Module, terms: CompareOptions, apart: _Apart, plain: Equivalence
) -> Equivalence:
    """The comparison on drawn values, with the first op that differs where one is found."""
    try:
        with np.errstate(all="ignore"):
            return equivalent(left, right, terms)
    except UNFIT:
        worst = max(apart.values(), key=lambda gap: gap.size)
        return replace(plain, difference=worst)


class _Watch:
    """Records what the workload of a comparison exercises."""

    def __init__(self) -> None:
        self.observers = CoverageRecorder(), CoverageRecorder()
        self.module: Module | None = None
        self.workload: Workload | None = None

    def keep(self, module: Module, workload: Workload) -> Workload:
        """Keep the module that leads, and its calls."""
        self.module, self.workload = module, workload
        return workload

    def coverage(self, left: Module) -> Coverage | None:
        """The coverage of the leading module."""
        if self.module is None or self.workload is None:
            return None
        side = 0 if self.module.interface is left.interface else 1
        inputs = input_coverage(self.module, self.workload)
        return collect(self.module, self.workload, self.observers[side], inputs)


# The name of an array, its type, and which one it is of those drawn, to the array.
Draw = Callable[[str, TensorType, int], Array]


@dataclass(frozen=True, slots=True)
class _Drawing:
    """One way of drawing the arrays of a workload.

    Attributes:
        name: for people.
        draw: draws an array.
        chosen: names of the arrays that are drawn; ``None`` for all.
    """

    name: str
    draw: Draw
    chosen: frozenset[str] | None = None

    def workload(self, module: Module, workload: Workload) -> Workload:
        """The first call of each program, with drawn arrays."""
        first: dict[object, ProgramCall] = {}
        for call in workload.calls:
            first.setdefault((call.phase, tuple(call.dims.items())), call)
        free = not is_language_model(module)
        counter = iter(range(1 << 30))

        def drawn(arrays: Mapping[str, Array], inputs: bool) -> dict[str, Array]:
            # Positions, lengths and rows depend on one another.
            keep = arrays.keys() >= PLACES and inputs
            return {
                name: array
                if keep and array.dtype.kind in "iub"
                else self._array(module, name, array, next(counter), free=free)
                for name, array in arrays.items()
            }

        calls = [
            replace(
                call,
                inputs=drawn(call.inputs, True) if free else call.inputs,
                parts={
                    name: [
                        self._array(module, name, one, next(counter), free=free) for one in every
                    ]
                    for name, every in call.parts.items()
                }
                if free
                else call.parts,
            )
            for call in first.values()
        ]
        weights, states = drawn(workload.weights, False), drawn(workload.states, False)
        return replace(workload, weights=weights, states=states, calls=tuple(calls))

    def _array(self, module: Module, name: str, array: Array, number: int, *, free: bool) -> Array:
        """Another array for one of a name; whole numbers of a language model stay."""
        row = module.interface.get(name)
        wanted = self.chosen is None or name in self.chosen
        if row is None or not wanted or not (free or has_floats(row.logical.dtype)):
            return array
        return self.draw(name, tensor(row.logical.dtype, array.shape), number)


def _drawings(left: Module, right: Module, *, finite: bool) -> Iterator[_Drawing]:
    """The ways of drawing that fit two modules; of finite numbers alone if that is wanted."""
    language = is_language_model(left) or is_language_model(right)
    ops = [op for module in (left, right) for f in module.functions.values() for op in f.block]
    finite |= language or left.ranks != right.ranks
    for spread in spreads_of(ops):
        if finite and spread is Spread.NOT_FINITE:
            continue
        # Whole numbers choose elements, so that one sample shows little.
        for seed in range(1 if language else 3):
            yield _Drawing(f"{spread.value} {seed}", _of_spread(spread, seed))
    for names in _tied(left):
        yield _Drawing(f"ties by {_numberless(min(names))}", _zeros, names)


def _of_spread(spread: Spread, seed: int) -> Draw:
    def draw(name: str, type_: TensorType, number: int) -> Array:
        rng = np.random.default_rng([seed, number])
        array = draw_array(rng, type_, spread)
        if spread is Spread.NOT_FINITE and type_.dtype.is_float:
            return _with_specials(array, number + seed)
        return array

    return draw


def _with_specials(array: Array, number: int) -> Array:
    """The array with a NaN, and infinities where it is longer, at places by its number."""
    flat = np.array(array).ravel()
    specials = (np.nan, np.inf, -np.inf)[: max(1, min(3, flat.size // 4))]
    with np.errstate(invalid="ignore"):
        for place, special in enumerate(specials):
            if flat.size:
                flat[(5 * number + 2 * place) % flat.size] = special
    return flat.reshape(array.shape)


def _zeros(name: str, type_: TensorType, number: int) -> Array:
    return draw_array(np.random.default_rng(number), type_, Spread.ORDINARY) * 0


def _tied(module: Module) -> list[frozenset[str]]:
    """Weights that make scores equal where they are 0, those of one kind together."""
    names: set[str] = set()
    for program in module.programs():
        for op in inlined(module, program).block:
            if op.name in _CHOOSING:
                names |= _scoring(op)
    weights = {row.name for row in module.entries(Role.WEIGHT)}
    kinds: dict[str, set[str]] = {}
    for name in _of_checkpoint(module, names) & weights:
        kinds.setdefault(_numberless(name), set()).add(name)
    return [frozenset(kinds[kind]) for kind in sorted(kinds)[:_MOST_TIES]]


def _scoring(op: Op) -> set[str]:
    """Arguments that the scores of a choice are made of, up to the first product."""
    found: set[str] = set()
    work: list[tuple[Value, bool]] = [(value, False) for value in op.operands]
    seen = set(work)
    while work:
        value, mixed = work.pop()
        if value.op is None:
            found.add(value.name or "")
            continue
        if value.op.name in _MIXING and mixed:
            continue
        inner = mixed or value.op.name in _MIXING
        if value.op.name == "rms_norm" or (mixed and value.op.name == "add"):
            # Only the operand of the product counts, not what it is mixed with.
            continue
        fresh = [(each, inner) for each in value.op.operands if (each, inner) not in seen]
        seen.update(fresh)
        work += fresh
    return found


def _of_checkpoint(module: Module, names: set[str]) -> set[str]:
    """The tensors of the checkpoint that params are made of, and the names that are none."""
    found = set(names)
    for function in reversed(weight_programs(module)):
        found |= _read_by(function, found)
    return found


def _read_by(function: Function, outputs: set[str]) -> set[str]:
    """Names of the arguments that some outputs are computed from."""
    work = [value for name, value in function.outputs if name in outputs]
    seen = set(work)
    while work:
        value = work.pop()
        fresh = [] if value.op is None else [v for v in value.op.operands if v not in seen]
        seen.update(fresh)
        work += fresh
    return {value.name or "" for value in seen if value.op is None}


def _numberless(name: str) -> str:
    return re.sub(r"(?<![^.])\d+(?=\.|$)", "N", name)


def _explained_by_rounding(
    left: Module,
    right: Module,
    terms: CompareOptions,
    calls: Sequence[PairedCall],
    apart: _Apart,
) -> bool:
    """True if every difference is about what rounding moves in either module."""
    open_ = set(apart)
    for salt in (1, 2):
        nudged = replace(terms, observers=(_Nudge(salt), _Nudge(salt)))
        try:
            with np.errstate(all="ignore"):
                moved = list(paired_calls(left, right, nudged))
        except UNFIT:
            return False
        for before, after in zip(calls, moved, strict=True):
            for name, plain in before.outputs.items():
                key = (before.number, name)
                if key in open_ and _explained(name, plain, after.outputs[name]):
                    open_.discard(key)
    return not open_


def _explained(name: str, plain: tuple[Array, Array], moved: tuple[Array, Array]) -> bool:
    """True if two arrays are about as far apart as each is from itself, moved."""
    apart = difference(name, 0, *plain).size
    own = max(difference(name, 0, a, b).size for a, b in zip(plain, moved, strict=True))
    return apart <= _BEYOND * own


class _Nudge:
    """Moves results of arithmetic by a few units of the last place, equal ones alike.

    A result that an operand has as well was only moved or chosen, and one of few digits is exact:
    these stay.

    Args:
        salt: another one moves other numbers up.
    """

    def __init__(self, salt: int) -> None:
        self.salt = salt

    def enter(self, function: Function, ranks: Sequence[int]) -> None:
        """See :class:`~graphgen.eval.Observer`."""

    def branch(self, op: Op, number: int, ranks: Sequence[int]) -> None:
        """See :class:`~graphgen.eval.Observer`."""

    def loop(self, op: Op, turns: Sequence[int]) -> None:
        """See :class:`~graphgen.eval.Observer`."""

    def made(self, op: Op, ranks: Sequence[int], given: Columns, results: Columns) -> Columns:
        """See :class:`~graphgen.eval.Observer`."""
        if op.name in CONTROL:
            return results
        known = [
            np.abs(array).ravel()
            for column in given
            for array in column
            if array.dtype == np.float64
        ]
        read = np.unique(np.concatenate(known)) if known else np.zeros(0)
        return [[self._moved(array, read) for array in column] for column in results]

    def _moved(self, array: Array, read: Array) -> Array:
        if array.dtype != np.float64 or np.ma.isMaskedArray(array):
            return array
        with np.errstate(all="ignore"):
            short = array.astype(np.float32).astype(np.float64) == array
        fixed = short | ~np.isfinite(array) | np.isin(np.abs(array), read)
        bits = np.asarray(np.abs(array)).view(np.uint64)
        mixed = (bits ^ np.uint64(self.salt)) * np.uint64(0x9E3779B97F4A7C15)
        up = (mixed >> np.uint64(40)) & np.uint64(1)
        return np.where(fixed, array, array * (1.0 + _NUDGE * (2.0 * up - 1.0)))
