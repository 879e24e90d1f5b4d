"""Comparison of both sides of a window on given boundary values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, NATIVE, WITH_INTEGERS, Arithmetic, Array, evaluate_ranks
from graphgen.eval.arithmetic import name_of
from graphgen.eval.element_kinds import Number, element, has_floats, real_parts
from graphgen.eval.float_bits import bits_of
from graphgen.eval.observer import Observer
from graphgen.ir import RANK, Dim, DType, Function, Module, Op, Value, dtype
from graphgen.ir.dtype import lowest, rounding_unit
from graphgen.ops import OPS, Trait, has_trait
from graphgen.ops.control import CONTROL
from graphgen.passes.core.relation import EQUAL, Partial, Quantized, Relation, Sharded
from graphgen.passes.equiv.deviation import (
    MEANING_BUDGET,
    PATH_ROUNDINGS,
    Deviation,
    RoundingNoise,
    difference,
)
from graphgen.passes.equiv.relate import RankGrid, meet, steps
from graphgen.passes.validate.boundary_values import orders_no_nan, quantizes
from graphgen.passes.validate.integer_meaning import integer_budget
from graphgen.passes.validate.narrow_rounding import rounding_of, unit_of
from graphgen.passes.validate.overflow_marks import OverflowMarks, marked_elements
from graphgen.passes.validate.rewrite_window import Pair, WindowCut, filled_by_take

# Values of a wrong kind for an op, such as an index outside, make NumPy raise these.
UNFIT = (GraphgenError, ValueError, IndexError, TypeError, KeyError, ArithmeticError)

PerRank = Sequence[Mapping[str, Array]]


@dataclass(frozen=True, slots=True)
class Differing:
    """The element that differs most between the sides of a window.

    Attributes:
        pair: number of the pair of values.
        index: of the element; the first dimension is the rank where there are several.
        before, after: its values; NaN where the shapes differ.
        relative: the difference over the largest value before, or over the element's own.
        rounding: whether only the rounding differs, not the meaning.
    """

    pair: int
    index: tuple[int, ...]
    before: Number
    after: Number
    relative: float
    rounding: bool = False


@dataclass(frozen=True, slots=True)
class FailedSample:
    """Boundary values on which both sides differ, or cannot be computed.

    Attributes:
        pairs: the values compared.
        window: as it was run, its symbols bound.
        sizes: of the symbols.
        given: per rank its arguments.
        difference: the difference, ``None`` for an error.
        error: the error.
    """

    pairs: tuple[Pair, ...]
    window: Function
    sizes: Mapping[str, Dim]
    given: PerRank
    difference: Differing | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class _WindowFacts:
    """Facts of the ops of a window that a comparison of its sides depends on.

    Attributes:
        unit: of their rounding: see :class:`~graphgen.passes.equiv.deviation.RoundingNoise`.
        budget: largest relative difference in the program's own types.
        large: whether they make large differences of small ones.
        unfixed: whether a number that is not finite may become another such: they state no order
            of NaN, or one side quantizes it.
        rounded: whether a float may be rounded; integers are the same in either arithmetic.
    """

    unit: float
    budget: float
    large: bool
    unfixed: bool
    rounded: bool


@dataclass(frozen=True, slots=True)
class WindowEvaluator:
    """Evaluates windows of one module.

    Attributes:
        module: has the functions that are called, and the mesh.
        budget: largest relative difference in the program's own types, of windows that do not
            round to narrow numbers.
        finite: whether elements are compared only where both sides are finite.
    """

    module: Module
    budget: float
    finite: bool = False
    # Of the windows that are compared now, which several samples share.
    _facts: dict[Function, _WindowFacts] = field(default_factory=dict[Function, "_WindowFacts"])

    def ranks(self, cut: WindowCut) -> int:
        """Number of ranks it takes to evaluate a window."""
        speaks = any(OPS[op.name].collective or op.name in CONTROL for op in cut.ops)
        ranked = any(value.op is None and value.name == RANK for value in cut.boundary)
        related = any(of_ranks(how) for _, _, how in cut.pairs)
        return self.module.ranks if speaks or ranked or related else 1

    def failure(
        self,
        cut: WindowCut,
        window: Function,
        sizes: Mapping[str, Dim],
        given: PerRank,
        *,
        finite: bool = False,
        tokens: Array | None = None,
    ) -> FailedSample | None:
        """The failure of both sides to agree on these values, if they do.

        Args:
            cut: the window.
            window: made of it, with its symbols bound.
            sizes: of the symbols.
            given: per rank its arguments.
            finite: whether values in the program's own types are compared by being finite only.
            tokens: pred[B,S] of a call, false for padding, at which values are not defined.
        """
        try:
            # Infinities and NaN are compared as well, without a warning.
            with np.errstate(all="ignore"):
                found = self._found(cut, window, given, finite, tokens)
                if found is not None and self.finite:
                    marks = self._marks(cut, window, given)
                    found = self._found(cut, window, given, finite, tokens, marks)
        except UNFIT as error:
            return FailedSample(cut.pairs, window, sizes, given, None, str(error))
        if found is None:
            return None
        return FailedSample(cut.pairs, window, sizes, given, found)

    def _found(
        self,
        cut: WindowCut,
        window: Function,
        given: PerRank,
        finite: bool,
        tokens: Array | None,
        marks: Sequence[Array | None] = (),
    ) -> Differing | None:
        """The difference in float64, or else that in the program's own types.

        Args:
            cut, window, given, finite, tokens: as of :meth:`failure`.
            marks: of each pair the elements that are left out.
        """
        relations = [how for _, _, how in cut.pairs]
        shown = partial(self._shown, cut, window, tokens=tokens, marks=marks)
        met = exact = self._met_results(window, relations, given, MEANING)
        alike = _have_same_bits(met)
        found = None if alike else _differing(shown(exact), MEANING_BUDGET)
        if found is not None:
            return None if self._is_of_integers(window, relations, given, tokens) else found
        facts = self._of(cut, window)
        if facts.rounded:
            met = self._met_results(window, relations, given, NATIVE)
            alike = _have_same_bits(met)
        if alike:
            return None
        native = shown(met)
        noise = RoundingNoise(facts.unit, [{"": before} for before, _ in shown(exact)])
        # Errors of narrow numbers have the size of all that a product adds up, which may cancel:
        # the numbers are held against the budget, calls hold the product.
        narrow = [n for n, how in enumerate(relations) if _is_scaled(how)]
        held = () if finite else narrow or range(len(native))
        moved = cache(lambda: self._moved(window, relations, given, shown, shown(exact)))
        found = _differing(native, facts.budget, noise, held, large=facts.large, moved=moved)
        return found or _overflowed(native, held)

    def _moved(
        self,
        window: Function,
        relations: Sequence[Relation],
        given: PerRank,
        shown: Callable[[list[tuple[Array, Array]]], list[tuple[Array, Array]]],
        exact: Sequence[tuple[Array, Array]],
    ) -> list[Array]:
        """Per pair, how far each element moves when arguments are rounded otherwise.

        The largest of some random roundings (Monte Carlo arithmetic, Parker 1997): of terms that
        cancel, each moves by a step of its own size, and the element by as much.
        """
        most = [np.zeros(before.shape) for before, _ in exact]
        for seed in range(_ROUNDINGS):
            signs = np.random.default_rng(seed)
            moved = [{name: _next(x, signs) for name, x in one.items()} for one in given]
            found = shown(self._met_results(window, relations, moved, MEANING))
            for place, ((before, _), (old, _)) in enumerate(zip(found, exact, strict=True)):
                if before.shape == old.shape and old.dtype.kind == "f":
                    most[place] = np.fmax(most[place], np.abs(before - old))
        return most

    def _marks(self, cut: WindowCut, window: Function, given: PerRank) -> list[Array | None]:
        """Of each pair the elements that depend on a number beyond the range of its type."""
        relations = [how for _, _, how in cut.pairs]
        met = self._met_results(window, relations, given, NATIVE, OverflowMarks())
        return [marked_elements(a, b) for a, b in met]

    def _is_of_integers(
        self,
        window: Function,
        relations: Sequence[Relation],
        given: PerRank,
        tokens: Array | None,
    ) -> bool:
        """True if sides that differ in float64 have the same bits, and mean the same integers.

        That is asked where bits have to agree only: see :mod:`.integer_meaning`.
        """
        limit = integer_budget(window.block)
        if self.budget or limit is None:
            return False

        def differ(how: Arithmetic, budget: float) -> bool:
            met = _of_tokens(self._met_results(window, relations, given, how), tokens)
            return _differing(met, budget) is not None

        if differ(NATIVE, 0.0):
            return False
        return not differ(WITH_INTEGERS, limit)

    def _shown(
        self,
        cut: WindowCut,
        window: Function,
        met: list[tuple[Array, Array]],
        *,
        tokens: Array | None,
        marks: Sequence[Array | None],
    ) -> list[tuple[Array, Array]]:
        """Both sides with zeros where they are not defined.

        That is at padding tokens, where floats are not finite and either the pass is right for
        finite floats only or no side states which, at masks, which are the lowest number of the
        type of either side, at padding that is left out, and at marks.
        """
        out = _of_tokens(met, tokens)
        if marks:
            pairs = zip(out, marks, strict=True)
            out = [_of_places(a, b, ~m) if m is not None else (a, b) for (a, b), m in pairs]
        unfixed = not self.finite and self._of(cut, window).unfixed
        if self.finite or unfixed:
            out = [_of_finite(a, b, both=unfixed) for a, b in out]
        if self.budget:
            sides = _sides(window)
            pairs = zip(cut.pairs, out, strict=True)
            out = [
                _without_masks(sides[place], a, b, self.budget) if how == EQUAL else (a, b)
                for place, ((_, _, how), (a, b)) in enumerate(pairs)
            ]
        if cut.unpadded:
            pairs = zip(cut.pairs, out, strict=True)
            out = [_without_padding(old, a, b) for (old, _, _), (a, b) in pairs]
        return out

    def _of(self, cut: WindowCut, window: Function) -> _WindowFacts:
        """The facts of a window: its budget is a step more where one side rounds to few bits."""
        found = self._facts.get(window)
        if found is None:
            self._facts.clear()
            ops = cut.ops
            budget = self.budget + rounding_of(cut.unshared()) if self.budget else 0.0
            rounded = any(has_floats(v.dtype) for v in window.args) or any(map(_rounds, ops))
            unfixed = orders_no_nan(ops) or (quantizes(ops) and quantizes(cut.unshared()))
            found = _WindowFacts(unit_of(ops), budget, amplifies(ops), unfixed, rounded)
            self._facts[window] = found
        return found

    def _met_results(
        self,
        window: Function,
        relations: Sequence[Relation],
        given: PerRank,
        arithmetic: Arithmetic,
        observer: Observer | None = None,
    ) -> list[tuple[Array, Array]]:
        """Per pair the values of both sides, as arrays that should be equal."""
        results = evaluate_ranks(window, given, arithmetic, None, self.module, observer)
        results = [as_bits(window, one) for one in results]
        return [
            self._met(
                relation,
                [one[f"before.{place}"] for one in results],
                [one[f"after.{place}"] for one in results],
                [_scale_of(one) for one in results],
            )
            for place, relation in enumerate(relations)
        ]

    def _met(
        self,
        relation: Relation,
        old: Sequence[Array],
        new: Sequence[Array],
        scales: Sequence[Callable[[str], Array]],
    ) -> tuple[Array, Array]:
        """Two arrays that are equal if the relation holds on every rank."""
        if relation is not EQUAL and of_ranks(relation):
            return meet(relation, old[0], list(new), RankGrid(self.module.mesh, scales[0]))
        grids = [RankGrid({}, scale) for scale in scales]
        met = [meet(relation, a, [b], grid) for a, b, grid in zip(old, new, grids, strict=True)]
        if len(met) == 1:
            return met[0]
        return np.stack([a for a, _ in met]), np.stack([b for _, b in met])


# Random roundings of which the largest distance counts.
_ROUNDINGS = 4
# Larger arguments are values at the end of their type, which has no next one.
_MOVED = 1e30


def _next(array: Array, signs: np.random.Generator) -> Array:
    """Each number of 32 or 64 bits as the next larger or smaller one; others as they are."""
    if array.dtype.name not in ("float32", "float64"):
        return array
    ways = signs.choice(np.array([-np.inf, np.inf], array.dtype), array.shape)
    moved: Array = np.nextafter(array, ways)
    return np.where(np.abs(array) < _MOVED, moved, array)


def _have_same_bits(met: Sequence[tuple[Array, Array]]) -> bool:
    """True if both sides of every pair have the same bits: no budget and no mask matters then."""
    return all(
        a.dtype == b.dtype and a.shape == b.shape and (a is b or a.tobytes() == b.tobytes())
        for a, b in met
    )


def as_bits(window: Function, results: Mapping[str, Array]) -> dict[str, Array]:
    """The results of a window, with bits on both sides of a pair that has them on one."""
    out, values = dict(results), dict(window.outputs)
    for name in results:
        side, _, place = name.partition(".")
        other = results.get(f"after.{place}") if side == "before" else None
        if other is not None and other.dtype != results[name].dtype:
            for one in (name, f"after.{place}"):
                out[one] = bits_of(values[one], results[one])
    return out


def _scale_of(results: Mapping[str, Array]) -> Callable[[str], Array]:
    """The values of a window that relations scale with (GG0302 for one that it does not make)."""

    def scale(name: str) -> Array:
        if f"scale.{name}" not in results:
            what = f"the rewrite does not make the value '{name}', which its relation scales with"
            raise GraphgenError("GG0302", what)
        return results[f"scale.{name}"]

    return scale


def _of_tokens(met: list[tuple[Array, Array]], tokens: Array | None) -> list[tuple[Array, Array]]:
    """Both sides with zeros at padding, in arrays [B,S,...] or, of several ranks, [n,B,S,...]."""
    if tokens is None or tokens.all():
        return met
    out: list[tuple[Array, Array]] = []
    for a, b in met:
        axis = next((n for n in (0, 1) if a.shape[n : n + 2] == tokens.shape), None)
        if axis is not None and a.shape == b.shape:
            where = tokens.reshape((1,) * axis + tokens.shape + (1,) * (a.ndim - axis - 2))
            a, b = _of_places(a, b, where)
        out.append((a, b))
    return out


def _of_places(a: Array, b: Array, where: Array) -> tuple[Array, Array]:
    """Both sides with zeros elsewhere."""
    first, second = (np.where(where, array, np.zeros_like(array)) for array in (a, b))
    return first, second


def _without_padding(old: Value, a: Array, b: Array) -> tuple[Array, Array]:
    """Both sides with zeros where ``take`` fills the value before, of one rank or of several."""
    filled = filled_by_take(old)
    if filled is None or a.shape != b.shape:
        return a, b
    axis, places = filled[0] + a.ndim - old.type.rank, ~np.asarray(filled[1])
    return _of_places(a, b, places.reshape([-1 if n == axis else 1 for n in range(a.ndim)]))


def _of_finite(a: Array, b: Array, *, both: bool) -> tuple[Array, Array]:
    """Both sides with zeros where one is not finite, or, with ``both``, where neither is."""
    if a.shape != b.shape or not has_floats(dtype(name_of(a.dtype))):
        return a, b
    finite = np.isfinite(a), np.isfinite(b)
    where = finite[0] | finite[1] if both else finite[0] & finite[1]
    return (a, b) if where.all() else _of_places(a, b, where)


def _sides(window: Function) -> list[tuple[Value, Value]]:
    """The values of a window before and after, by number of the pair."""
    found = dict(window.outputs)
    pairs = sum(name.startswith("before.") for name in found)
    return [(found[f"before.{place}"], found[f"after.{place}"]) for place in range(pairs)]


def _without_masks(
    sides: tuple[Value, Value], a: Array, b: Array, budget: float
) -> tuple[Array, Array]:
    """Both sides with zeros where each has the lowest number of a type of its own.

    Masked scores are the lowest number of the type that scores have: -65504 for f16, which is one
    score among many for f32.

    Args:
        sides: the values, in the window.
        a, b: what they are.
        budget: of rounding; below that of a type its lowest number is not another one's.
    """
    if not all(value.dtype.is_float for value in sides) or a.shape != b.shape:
        return a, b
    before, after = map(_rounded_to, sides)
    if before is after or max(map(rounding_unit, (before, after))) > budget:
        return a, b
    masked = (a == float(lowest(before))) & (b == float(lowest(after)))
    return _of_places(a, b, ~masked) if masked.any() else (a, b)


def _rounded_to(value: Value) -> DType:
    """The coarsest float type that all elements of a value are rounded to, on their way to it."""
    found = value.dtype
    while value.op is not None and value.op.name in _MOVES:
        value = value.op.operands[0]
        if not value.dtype.is_float:
            break
        found = max(found, value.dtype, key=rounding_unit)
    return found


# Ops whose elements are those of their operand.
_MOVES = ("convert", "reshape", "transpose", "broadcast_in_dim", "slice")


def _rounds(op: Op) -> bool:
    """True for an op that may compute with floats, in functions that it runs or within itself."""
    plain = (
        op.name in _PLAIN or has_trait(op, Trait.ELEMENTWISE) or has_trait(op, Trait.DATA_MOVEMENT)
    )
    return not plain or any(has_floats(result.dtype) for result in op.results)


# Beside elementwise ops and those that move data.
_PLAIN = ("constant", "iota")


def amplifies(ops: Iterable[Op]) -> bool:
    """True if ops make large differences of small ones."""
    return any(op.name in _AMPLIFY for op in ops)


def of_ranks(relation: Relation) -> bool:
    """True if a relation is one between a whole and the parts of ranks."""
    return any(isinstance(step, Sharded | Partial) for step in steps(relation))


def _is_scaled(relation: Relation) -> bool:
    """True if the value after is one of narrow numbers, and a scale."""
    return any(isinstance(step, Quantized) for step in steps(relation))


def _differing(
    met: Sequence[tuple[Array, Array]],
    budget: float,
    noise: RoundingNoise | None = None,
    held: Collection[int] | None = None,
    *,
    large: bool = False,
    moved: Callable[[], Sequence[Array]] | None = None,
) -> Differing | None:
    """The element because of which the first pair differs by more than the budget.

    Args:
        met: pairs of arrays that should be equal.
        budget: largest difference.
        noise: the rounding, where they were not computed in float64.
        held: places of the pairs that are compared; by default all.
        large: whether ops make large differences of small ones.
        moved: how far the elements of each pair move: see
            :func:`~graphgen.passes.equiv.deviation.difference`.
    """
    for place, (a, b) in enumerate(met):
        if held is not None and place not in held:
            continue
        unit, exact = (None, None) if noise is None else (noise.unit, noise.of(place, ""))
        found = difference("", 0, a, b, unit, exact)
        if moved is not None and not found.within(budget) and found.relative <= budget:
            # An element is far from its own size: its terms may cancel.
            found = difference("", 0, a, b, unit, exact, moved()[place])
        if found.within(budget):
            continue
        least = 0.0 if found.relative <= budget else PATH_ROUNDINGS * (unit or 0.0)
        alike = large and exact is not None and _as_exact(a, b, exact, least)
        if not (budget and alike):
            return differing(place, a, b, found, budget, rounding=noise is not None)
    return None


def _overflowed(met: Sequence[tuple[Array, Array]], held: Collection[int]) -> Differing | None:
    """The first element that is finite before and not after, of pairs that are not ``held``."""
    for place, (a, b) in enumerate(met):
        if place in held or a.shape != b.shape or not has_floats(dtype(name_of(a.dtype))):
            continue
        lost = np.isfinite(a) & ~np.isfinite(b)
        if lost.any():
            at = np.unravel_index(int(np.argmax(lost)), lost.shape) if lost.shape else ()
            index = tuple(int(n) for n in at)
            return Differing(place, index, element(a[index]), element(b[index]), np.inf, True)
    return None


# Ops that make large differences of small ones, as a softmax of large scores does.
_AMPLIFY = frozenset({"attention", "attention_part", "exponential", "softmax"})
# Errors of the side after that rounding in another order explains, in errors of the side before;
# much smaller ones are those of wider numbers.
_MORE, _WIDER = 4, 64


def _as_exact(before: Array, after: Array, exact: Array, least: float) -> bool:
    """True if the side after is about as near to the float64 values as the side before.

    Where a window amplifies rounding, as a softmax of large scores does, the sides may differ by
    more than a budget and be equally right.

    Args:
        before, after: both sides.
        exact: the float64 values.
        least: error of the side before, relative to its largest value, that is amplified.
    """
    if before.dtype.kind in "biu" or not before.shape == after.shape == exact.shape:
        return False
    wide = [real_parts(array).astype(np.float64) for array in (before, after, exact)]
    finite = [np.isfinite(array) for array in wide]
    if not np.array_equal(finite[0], finite[1]) or not np.array_equal(finite[1], finite[2]):
        return False
    errors = [np.abs(array - wide[2])[finite[2]].max(initial=0.0) for array in wide[:2]]
    scale = np.abs(wide[0])[finite[0]].max(initial=0.0)
    amplified = bool(least * scale <= errors[0])
    return amplified and bool(errors[0] / _WIDER <= errors[1] <= _MORE * errors[0])


def differing(
    pair: int, a: Array, b: Array, found: Deviation, budget: float, *, rounding: bool
) -> Differing:
    """The element because of which two arrays differ by more than a budget.

    Args:
        pair: its number.
        a, b: the arrays.
        found: their difference.
        budget: largest difference allowed.
        rounding: whether only the rounding differs.
    """
    if a.shape != b.shape:
        return Differing(pair, (), float("nan"), float("nan"), found.size, rounding)
    at = np.unravel_index(found.place(budget), a.shape) if a.shape else ()
    index = tuple(int(n) for n in at)
    return Differing(pair, index, element(a[index]), element(b[index]), found.size, rounding)
