"""Record the choices of a run, compare them by margin with another run, and replay them.

An op that chooses (``top_k``, ``sort``: :class:`~graphgen.ops.traits.Chooses`) may choose
differently after a harmless rewrite: where two scores are closer than rounding, either may come
first. All that follows then differs by any amount. So the second of two runs looks up each choice
of the first. A *flip*, a line in which the two chose differently, is right only

* where the scores of both candidates are the same in both runs up to the bound, and
* where the first run's scores of what the two chose differ by less than twice the bound, which is
  what two scores that each move by the bound can make up, and
* where no two elements have equal scores in both runs, bit for bit, and are in another order:
  of equal ones the first comes first, whatever the rounding.

The bound is relative to the largest score. In a line whose flips are all right the second run goes
on with the choice of the first: with its order, and with its own values in that order. In any other
line it keeps its own choice, so that a real difference shows in what follows. A run that went on
with another's choice is itself compared by its own: by the one that its scores make.

A choice is looked up by number of call, module scope, shape of the lines, and its number among
those that agree in these. Its lines are at the same places, or where tokens are in another order at
those with the nearest scores. After a top-k of parts, the sort of what the parts
gave has the ids of its elements in an operand; it is looked up among the choices between all
elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from graphgen.eval import Array, Columns
from graphgen.eval.sorting import places_in_order
from graphgen.ir import Function, Op, Value
from graphgen.ops import OPS
from graphgen.ops.traits import Chooses

# Ops between the comparison with the maximum and the places: at most these lie on one path.
_DEEP = 8
# The indices; folded, they are a constant.
_INDICES = ("iota", "constant")


def largest_places(function: Function) -> Mapping[Op, Op]:
    """Each ``reduce`` to the place of a largest element, with the ``reduce`` to that element."""
    found: dict[Op, Op] = {}
    for op in function.block:
        if op.name == "reduce" and op.attrs.get("kind") == "minimum":
            most = _maximum_of(op)
            if most is not None:
                found[op] = most
    return found


def _maximum_of(place: Op) -> Op | None:
    """The maximum whose place is the smallest of the selected indices; ``None`` for other ops."""
    chosen = place.operands[0].producer("select")
    last = place.operands[0].type.rank - 1
    if chosen is None or place.attrs.integers("dimensions") != (last,):
        return None
    indices = chosen.operands[1].op
    if indices is None or indices.name not in _INDICES:
        return None
    shape = place.operands[0].type.dims
    maxima = [
        op for op in _compared(chosen.operands[0], _DEEP) if op.operands[0].type.dims == shape
    ]
    floats = [op for op in maxima if op.operands[0].dtype.is_float]
    return next(iter(floats or maxima), None)


def _compared(value: Value, deep: int) -> Iterator[Op]:
    """The maxima along the last dimension that elements are compared with, on the way to a mask."""
    op = value.op
    if op is None or not deep:
        return
    if op.name == "compare" and op.attrs.get("direction") == "EQ":
        wide = op.operands[1].producer("broadcast_in_dim")
        most = wide.operands[0].producer("reduce") if wide is not None else None
        if most is not None and _is_maximum(most, op.operands[0]):
            yield most
    for operand in op.operands:
        yield from _compared(operand, deep - 1)


def _is_maximum(op: Op, x: Value) -> bool:
    last = x.type.rank - 1
    of_line = op.attrs.get("kind") == "maximum" and op.attrs.integers("dimensions") == (last,)
    return of_line and op.operands[0] is x


@dataclass(slots=True)
class ChoiceCounts:
    """Numbers of choices of a run, by outcome; a choice is that of one line on one rank.

    Attributes:
        compared: those with a counterpart in the reference, or that an output gives.
        replayed: flips within the margin; the reference's choice was taken.
        wrong: flips outside of the margin.
        alone: those without a counterpart.
    """

    compared: int = 0
    replayed: int = 0
    wrong: int = 0
    alone: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """One choosing op of a run, an array a rank each; lines are along the last dimension.

    Attributes:
        scores: what was put in order, [..., N].
        ids: which elements these are, [..., N]; ``None`` for 0 to N - 1.
        places: where the chosen elements were, [..., K], in the order chosen.
        replayed: the places that the run went on with, where those are a reference's.
    """

    scores: tuple[Array, ...]
    ids: tuple[Array, ...] | None
    places: tuple[Array, ...]
    replayed: tuple[Array, ...] | None = None

    @property
    def followed(self) -> tuple[Array, ...]:
        """The places that the run went on with."""
        return self.places if self.replayed is None else self.replayed

    @property
    def lines(self) -> int:
        """Number of lines on all ranks."""
        return sum(int(np.prod(places.shape[:-1], dtype=np.int64)) for places in self.places)


# Call, scope, shape of all dimensions but the lines', length of a line; -1 for lines with ids.
Key = tuple[int, str, tuple[int, ...], int]


@dataclass(slots=True)
class DecisionLog:
    """The choices of one run, in order.

    Attributes:
        choices: by key.
    """

    choices: dict[Key, list[Choice]] = field(default_factory=dict[Key, list[Choice]])

    def add(self, key: Key, choice: Choice) -> None:
        """Append a choice."""
        self.choices.setdefault(key, []).append(choice)

    def find(self, key: Key, number: int) -> Choice | None:
        """The choice of that number; one with ids, or with padding, may be about a longer or
        shorter line of elements 0 to N - 1."""
        found = self.choices.get(key, [])
        if not found:
            found = [
                choice
                for other, choices in self.choices.items()
                if other[:-1] == key[:-1] and (key[-1] < 0 or 0 <= other[-1] < key[-1])
                for choice in choices
            ]
        return found[number] if number < len(found) else None

    def of_call(self, call: int) -> list[Choice]:
        """The choices of one call between elements 0 to N - 1."""
        return [c for key, found in self.choices.items() if key[0] == call for c in found]


class ReplayObserver:
    """Records the choices of a run, and replays another run's within the margin.

    Args:
        reference: the choices of the other run; ``None`` to record only.
        bound: largest change of a score, relative to the largest one.
    """

    def __init__(self, reference: DecisionLog | None = None, bound: float = 0.0) -> None:
        self.reference = reference
        self.bound = bound
        self.log = DecisionLog()
        self.counts = ChoiceCounts()
        # Of the call in progress: set before each.
        self.call = 0
        # Ops that find the place of a largest element, by the op that finds the element itself.
        self._largest: dict[Op, Op] = {}
        self._scores: dict[Op, Sequence[Array]] = {}
        # Functions do not change while they are observed.
        self._entered: set[Function] = set()

    def enter(self, function: Function, ranks: Sequence[int]) -> None:
        """See :class:`~graphgen.eval.Observer`."""
        if function not in self._entered:
            self._entered.add(function)
            self._largest |= largest_places(function)
        self._scores |= dict.fromkeys(self._largest.values(), ())

    def branch(self, op: Op, number: int, ranks: Sequence[int]) -> None:
        """See :class:`~graphgen.eval.Observer`."""

    def loop(self, op: Op, turns: Sequence[int]) -> None:
        """See :class:`~graphgen.eval.Observer`."""

    def made(self, op: Op, ranks: Sequence[int], given: Columns, results: Columns) -> Columns:
        """Record an op that chooses; its results may be those of the reference's choice."""
        if op in self._scores:
            self._scores[op] = given[0]
        if op in self._largest:
            scores = self._scores[self._largest[op]]
            places = tuple(x.astype(np.int64)[..., None] for x in results[0])
            if any(((x < 0) | (x >= scores[0].shape[-1])).any() for x in places):
                # Not of this line's elements: its indices are others.
                return results
            taken = self._taken(op, Choice(tuple(scores), None, places))
            return [[at[..., 0].astype(results[0][0].dtype) for at in taken.followed]]
        how = chooses(op)
        if how is None:
            return results
        axis = how.dimension(given[how.scores][0].ndim, op.attrs)
        own = _choice(op, how, axis, given, results)
        if own is None:
            return results
        taken = self._taken(op, own)
        if taken is own:
            return results
        return _replaced(how, axis, given, results, taken.followed)

    def _taken(self, op: Op, own: Choice) -> Choice:
        """Record a choice: its own, or with that of the reference where this is right."""
        outer = own.scores[0].shape[:-1]
        key = (self.call, op.loc.scope, outer, own.scores[0].shape[-1] if own.ids is None else -1)
        number = len(self.log.choices.get(key, []))
        other = self.reference.find(key, number) if self.reference is not None else None
        if other is not None and len(other.scores) not in (1, len(own.scores)):
            other = None
        if self.reference is not None and other is None:
            self.counts.alone += own.lines
        taken = own if other is None else self._settled(own, other)
        self.log.add(key, taken)
        return taken

    def _settled(self, own: Choice, other: Choice) -> Choice:
        """``own`` with the reference's choice in the lines where that is right."""
        self.counts.compared += own.lines
        places = tuple(self._of_rank(own, other, rank) for rank in range(len(own.places)))
        if all(new is old for new, old in zip(places, own.places, strict=True)):
            return own
        return replace(own, replayed=places)

    def _of_rank(self, own: Choice, other: Choice, rank: int) -> Array:
        """The places to take on one rank."""
        theirs = rank if len(other.scores) > 1 else 0
        count = min(own.places[rank].shape[-1], other.places[theirs].shape[-1])
        reach = self.bound * _largest(other.scores[theirs])
        lines = _counterparts(own, rank, other, theirs)
        mine = _chosen(own, own.places, count)[rank]
        before, wanted = (
            np.stack(_chosen(other, places, count)).reshape(-1, count)[lines]
            for places in (other.places, other.followed)
        )
        flipped = np.argwhere(((mine != before) | (mine != wanted)).any(axis=-1))
        if not len(flipped):
            return own.places[rank]
        places = own.places[rank].copy()
        shape = other.scores[theirs].shape[:-1]
        for line in map(tuple, flipped.tolist()):
            spread = np.unravel_index([int(lines[line])], (len(other.scores), *shape))
            at, *others = [int(numbers[0]) for numbers in spread]
            left = _Line(other, at, tuple(others), count)
            right = _Line(own, rank, line, count)
            order = right.in_order(wanted[line])
            if order is not None and may_flip(left, right, reach):
                self.counts.replayed += 1
                places[line] = order
            else:
                self.counts.wrong += 1
        return places


def _counterparts(own: Choice, rank: int, other: Choice, theirs: int) -> Array:
    """For each line the number of the reference's line, over all of its ranks, to compare it with.

    That is the line at the same place, or the one with the nearest scores where these are much
    nearer on the whole: a pass may put tokens in another order.
    """
    mine, size = own.scores[rank], int(np.prod(other.scores[theirs].shape[:-1], dtype=np.int64))
    lines = np.arange(size).reshape(mine.shape[:-1]) + theirs * size
    if own.ids is not None or other.ids is not None or mine.shape != other.scores[theirs].shape:
        return lines
    every = _finite_lines(np.stack(other.scores))
    flat, found = _finite_lines(mine), lines.ravel()
    at_place = np.abs(every[found] - flat).max(axis=-1, initial=0.0)
    if not at_place.any():
        return lines
    far = [np.abs(every - scores).max(axis=-1, initial=0.0) for scores in flat]
    if sum(one.min() for one in far) * _NEARER >= at_place.sum():
        return lines
    return np.array([int(np.argmin(one)) for one in far]).reshape(lines.shape)


# How many times nearer lines are if tokens are in another order.
_NEARER = 4


def _finite_lines(scores: Array) -> Array:
    """Lines f64 [L, N], with numbers for infinities and NaN."""
    wide = scores.reshape(-1, scores.shape[-1]).astype(np.float64)
    return np.nan_to_num(wide, nan=0.0, posinf=1e300, neginf=-1e300)


def chooses(op: Op) -> Chooses | None:
    """The trait of an op that chooses, ``None`` for any other."""
    definition = OPS.get(op.name)
    how = definition.chooses if definition is not None else None
    if how is None:
        return None
    operands, results = ([value.type for value in side] for side in (op.operands, op.results))
    return how if how.when(operands, results, op.attrs) else None


def _choice(op: Op, how: Chooses, axis: int, given: Columns, results: Columns) -> Choice | None:
    """The choice an op made; ``None`` where numbers are sorted and nothing goes with them."""
    scores = tuple(np.moveaxis(x, axis, -1) for x in given[how.scores])
    if how.places is not None:
        found = tuple(np.moveaxis(x, axis, -1).astype(np.int64) for x in results[how.places])
        return Choice(scores, None, found)
    if len(given) < 2:
        return None
    down = op.attrs.get("descending") is True
    order = tuple(places_in_order(x, -1, descending=down) for x in scores)
    ids = next((column for i, column in enumerate(given) if i and _are_ids(column)), None)
    if ids is None:
        return Choice(scores, None, order)
    named = tuple(np.moveaxis(x, axis, -1) for x in ids)
    plain = all(_counts_up(x) for x in named)
    return Choice(scores, None if plain else named, order)


def _counts_up(x: Array) -> bool:
    """True for 0, 1, 2, ... along the last dimension."""
    counted = np.broadcast_to(np.arange(int(x.shape[-1])), x.shape)
    return bool(np.array_equal(x, counted))


def _are_ids(column: Sequence[Array]) -> bool:
    return column[0].dtype.kind in "iu" and column[0].dtype.itemsize >= 4


def _chosen(choice: Choice, chosen: Sequence[Array], count: int) -> list[Array]:
    """On each rank the ids of the first of the places ``chosen``, [..., count]."""
    places = [array[..., :count] for array in chosen]
    if choice.ids is None:
        return places
    pairs = zip(choice.ids, places, strict=True)
    return [np.take_along_axis(ids, at, -1) for ids, at in pairs]


def _largest(scores: Array) -> float:
    wide = np.abs(scores.astype(np.float64))
    return float(wide[np.isfinite(wide)].max(initial=0.0))


class _Line:
    """One line of a choice on one rank, its elements by id."""

    def __init__(self, choice: Choice, rank: int, line: tuple[int, ...], count: int) -> None:
        self.scores: Array = np.asarray(choice.scores[rank][line])
        self.places: Array = np.asarray(choice.places[rank][line])
        ids = np.arange(self.scores.size) if choice.ids is None else choice.ids[rank][line]
        self.ids: Array = np.asarray(ids).astype(np.int64)
        self.chosen: Array = self.ids[self.places[:count]]
        self._by_id: Array = np.argsort(self.ids, kind="stable")

    def of(self, ids: Array) -> Array | None:
        """Scores f64 of elements; ``None`` where one is not among those of the line."""
        at = self._at(ids)
        return None if at is None else self.scores[at].astype(np.float64)

    def _at(self, ids: Array) -> Array | None:
        ordered = self.ids[self._by_id]
        found = np.minimum(np.searchsorted(ordered, ids), ordered.size - 1)
        return self._by_id[found] if bool((ordered[found] == ids).all()) else None

    def in_order(self, chosen: Array) -> Array | None:
        """Places of ``chosen``, then those of the others that were chosen or are left, in order.

        ``None`` where one of ``chosen`` is not among the elements of the line.
        """
        at = self._at(chosen)
        if at is None:
            return None
        rest = self.places[~np.isin(self.places, at)]
        return np.concatenate([at, rest])[: self.places.size]


def may_flip(reference: _Line, other: _Line, reach: float) -> bool:
    """True if both choices are right for scores that each move by ``reach`` at most."""
    both = np.union1d(reference.chosen, other.chosen)
    before, after = reference.of(both), other.of(both)
    if before is None or after is None or not _close(before, after, reach):
        return False
    first, second = reference.of(reference.chosen), reference.of(other.chosen)
    assert first is not None
    assert second is not None
    return _close(first, second, 2 * reach) and not _breaks_ties(reference, other)


def _close(a: Array, b: Array, reach: float) -> bool:
    with np.errstate(invalid="ignore"):
        return bool(((a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= reach)).all())


def _breaks_ties(reference: _Line, other: _Line) -> bool:
    """True if, of elements whose scores are equal in both, the other chose not the lowest ids."""
    bits, chosen = other.scores.astype(np.float64).view(np.int64), other.chosen
    own = other.of(chosen)
    assert own is not None
    for score in np.unique(own.view(np.int64)):
        equal = np.sort(other.ids[bits == score])
        mine = chosen[own.view(np.int64) == score]
        first = equal[: mine.size]
        if (mine != first).any():
            before = reference.of(np.union1d(mine, first))
            if before is not None and np.unique(before.view(np.int64)).size == 1:
                return True
    return False


def _replaced(
    how: Chooses, axis: int, given: Columns, results: Columns, places: Sequence[Array]
) -> Columns:
    """The results of an op that chose ``places`` of each rank's operands."""
    order = [np.moveaxis(x, -1, axis) for x in places]
    if how.places is None:
        return [
            [np.take_along_axis(x, at, axis) for x, at in zip(column, order, strict=True)]
            for column in given
        ]
    out = [list(column) for column in results]
    for rank, at in enumerate(order):
        out[how.places][rank] = at.astype(results[how.places][rank].dtype)
        if how.values is not None:
            taken = np.take_along_axis(given[how.scores][rank], at, axis)
            out[how.values][rank] = taken.astype(results[how.values][rank].dtype)
    return out
