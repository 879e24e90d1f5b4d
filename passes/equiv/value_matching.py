"""Match values of two programs: by name, by position, by numerics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence

import numpy as np

from graphgen.eval import Array
from graphgen.eval.element_kinds import real_parts
from graphgen.ir import Op, Value
from graphgen.ir.loc import UNKNOWN
from graphgen.ops import OPS
from graphgen.passes.equiv.deviation import difference
from graphgen.passes.equiv.value_trace import SENTINEL, ValueTrace, close, views, wholes


class ValueMatching:
    """Looks counterparts up.

    Args:
        left: the program looked in.
        right: the program whose values are looked up.
        given: arguments that are known to go together, right to left.
        tolerance: how close, relative to the largest value, the same numbers are.
    """

    def __init__(
        self, left: ValueTrace, right: ValueTrace, given: Mapping[Value, Value], tolerance: float
    ) -> None:
        self.left = left
        self.right = right
        self.given = given
        self.tolerance = tolerance
        self._names = _unique((value.name, value) for value in left.parts)
        self._places = _unique((_place(value), value) for value in left.parts)
        # A key that is not unique on the right is not evidence either.
        self._known_names = _unique((value.name, value) for value in right.parts)
        self._known_places = _unique((_place(value), value) for value in right.parts)
        self._spots = _spots(left), _spots(right)
        self._by_shape = _index(left)

    def same(self, ours: Value, theirs: Value) -> bool | None:
        """True if two values hold the same numbers; ``None`` where they cannot be compared."""
        found = views(self.left.parts[ours], self.right.parts[theirs])
        if found is None:
            return None
        alike = close(*found, self.tolerance)
        return alike and difference("", 0, *found).within(self.tolerance)

    def by_origin(self, value: Value) -> Value | None:
        """The counterpart that has the value's name, or was made by the same line of source."""
        if value in self.given:
            return self.given[value]
        if value.op is None:
            return None
        name, place = value.name, _place(value)
        if name is not None and self._known_names.get(name) is value:
            found = self._names.get(name)
            if found is not None and _alike(found, value):
                return found
        if place is not None and self._known_places.get(place) is value:
            found = self._places.get(place)
            if found is not None:
                return found
        return self._by_spot(value)

    def _by_spot(self, value: Value) -> Value | None:
        """The last value of a composite's source line: its expansion, or the composite itself."""
        ours, theirs = self._spots
        spot = _spot(value)
        mine, other = ours.get(spot, ()), theirs.get(spot, ())
        if spot is None or not mine or not other or other[-1] is not value:
            return None
        # One of the two sides has the whole composite there, and nothing else.
        composite = [
            side for side in (mine, other) if len(side) == 1 and not _simple_value(side[0])
        ]
        return mine[-1] if composite and mine[-1].type.rank == value.type.rank else None

    def by_numbers(self, value: Value) -> Value | None:
        """A value with the same elements, the one made by the same kind of op before others."""
        found: Value | None = None
        for whole in wholes(self.right.parts[value]):
            for candidate, other in self._near(whole):
                if candidate.type.dtype.is_float is value.dtype.is_float and close(
                    other, whole, self.tolerance
                ):
                    if _kind(candidate) == _kind(value):
                        return candidate
                    found = found or candidate
        return found

    def by_operands(
        self, value: Value, agrees: Mapping[Value, Value], taken: Collection[Value]
    ) -> Value | None:
        """A value made by the same kind of op from counterparts of the most operands.

        An op of another kind has to read just the counterparts of the operands.

        Args:
            value: what is looked up.
            agrees: counterparts that hold the same, right to left.
            taken: values that are the counterpart of some other.
        """
        op = value.op
        if op is None:
            return None
        read = [agrees[operand] for operand in op.operands if operand in agrees]
        scores: dict[Value, tuple[bool, bool, int]] = {}
        for user in {user: None for mine in read for user in mine.users}:
            if len(user.results) != len(op.results) or user.results[value.index] in taken:
                continue
            result, alike = user.results[value.index], user.name == op.name
            exactly = list(user.operands) == read and _simple(user) is _simple(op)
            if (alike or exactly) and views(self.left.parts[result], self.right.parts[value]):
                shared = sum(operand in read for operand in user.operands)
                scores[result] = (alike, _spot(result) == _spot(value), shared)
        return max(scores, key=lambda result: scores[result], default=None)

    def _near(self, whole: Array) -> Iterator[tuple[Value, Array]]:
        """Values with the shape of ``whole`` and a feature within the tolerance."""
        rows = self._by_shape.get(whole.shape, [])
        feature, slack = _feature(whole)
        slack = slack * self.tolerance * 2
        start = bisect_left(rows, feature - slack, key=lambda row: row[0])
        for number, value, other in rows[start:]:
            if number > feature + slack:
                return
            yield value, other


def _unique(pairs: Iterator[tuple[Hashable, Value]]) -> dict[Hashable, Value]:
    """Values by key, without those that several share."""
    found: dict[Hashable, Value] = {}
    twice: set[Hashable] = set()
    for key, value in pairs:
        if key is not None and key in found:
            twice.add(key)
        elif key is not None:
            found[key] = value
    return {key: value for key, value in found.items() if key not in twice}


def _simple(op: Op) -> bool:
    return not OPS[op.name].composite


def _kind(value: Value) -> str:
    return value.op.name if value.op is not None else ""


def _place(value: Value) -> tuple[object, ...] | None:
    """File, line, scope and kind of op: where in the model a value is made."""
    op: Op | None = value.op
    if op is None or op.loc is UNKNOWN or not op.loc.line:
        return None
    return (op.loc.file, op.loc.line, op.loc.scope, op.name, value.index, value.dtype.is_float)


def _alike(a: Value, b: Value) -> bool:
    """True if a shared name is evidence: the same kind of op, or the same scope."""
    if a.op is None or b.op is None:
        return a.op is b.op
    return a.op.name == b.op.name or (bool(a.op.loc.scope) and a.op.loc.scope == b.op.loc.scope)


def _spot(value: Value) -> tuple[str, int, str] | None:
    """File, line and scope."""
    op = value.op
    return None if op is None or not op.loc.line else (op.loc.file, op.loc.line, op.loc.scope)


def _spots(run: ValueTrace) -> dict[Hashable, list[Value]]:
    """The values made at each place, in program order."""
    found: dict[Hashable, list[Value]] = {}
    for value in run.parts:
        spot = _spot(value)
        if spot is not None:
            found.setdefault(spot, []).append(value)
    return found


def _simple_value(value: Value) -> bool:
    return value.op is None or _simple(value.op)


def _index(left: ValueTrace) -> dict[tuple[int, ...], list[tuple[float, Value, Array]]]:
    """Per shape the values sorted by their feature."""
    out: dict[tuple[int, ...], list[tuple[float, Value, Array]]] = {}
    for value, parts in left.parts.items():
        for whole in wholes(parts):
            out.setdefault(whole.shape, []).append((_feature(whole)[0], value, whole))
    for rows in out.values():
        rows.sort(key=lambda row: row[0])
    return out


def _feature(whole: Array) -> tuple[float, float]:
    """A number that arrays with the same elements share, and how much a relative error moves it."""
    flat = np.nan_to_num(real_parts(whole).astype(np.float64).ravel(), nan=7.0)
    flat = np.where(np.abs(flat) < SENTINEL, flat, 3.0 * np.sign(flat))
    weights = np.cos(np.arange(flat.size) * 0.7) + 0.01
    return float(flat @ weights), float(np.abs(flat).max(initial=0.0) * np.abs(weights).sum())


def ancestors(values: Sequence[Value]) -> set[Value]:
    """Everything that ``values`` are computed from, themselves included."""
    found: set[Value] = set()
    work = list(values)
    while work:
        value = work.pop()
        if value not in found:
            found.add(value)
            if value.op is not None:
                work.extend(value.op.operands)
    return found
