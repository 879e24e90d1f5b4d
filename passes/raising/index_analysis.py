"""Index vectors by component: a count 0, 1, 2, ..., a constant, or a computed value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from graphgen.build import Builder
from graphgen.ir import Dim, Op, Value
from graphgen.ir.dtype import s32
from graphgen.passes.raising.matchers import placed
from graphgen.pattern.see_through import integer

_NOWHERE = -1


@dataclass(frozen=True, slots=True)
class IndexPart:
    """One component of each index vector.

    Attributes:
        value: integers; ``None`` for a constant.
        at: the dimension of the index vectors' batch of each dimension of ``value``; negative for
            one of size 1 that is not among them.
        number: the constant.
        low, high: bounds of a clamp, ``None`` for no bound.
    """

    value: Value | None
    at: tuple[int, ...] = ()
    number: int | None = None
    low: int | None = None
    high: int | None = None

    def known(self) -> int | None:
        """Return the constant, clamped, if it is one."""
        if self.number is None:
            return None
        found = self.number if self.high is None else min(self.number, self.high)
        return found if self.low is None else max(found, self.low)

    def built(self, b: Builder, order: Sequence[int], shape: Sequence[Dim]) -> Value:
        """Build the component as s32 of this shape, with the batch dimensions in ``order``.

        A dimension that is not among them has size 1.
        """
        if self.value is None:
            known = self.known()
            assert known is not None
            return b.broadcast_in_dim(b.literal(known, s32), shape, [])
        value = b.convert(self.value, s32)
        if self.low is not None and self.high is not None:
            value = b.op("clamp", b.literal(self.low, s32), value, b.literal(self.high, s32))
        return placed(b, value, self.at, order, shape)


def part_of(value: Value, vector: int, index: int) -> IndexPart | None:
    """Find component ``index`` of the vectors along dimension ``vector``; ``None`` if unknown."""
    rank = value.type.rank
    if vector == rank:
        return IndexPart(value, tuple(range(rank)))
    op = value.op
    found = _PARTS[op.name](op, vector, index) if op is not None and op.name in _PARTS else None
    if found is None and value.shape[vector] == 1:
        places = [dim - (dim > vector) for dim in range(rank)]
        places[vector] = _NOWHERE
        return IndexPart(value, tuple(places))
    return found


# (the op that defines the vectors, the vector dimension, the component) -> the component.
_PartRule = Callable[[Op, int, int], IndexPart | None]
_PARTS: dict[str, _PartRule] = {}


def _component_of(name: str) -> Callable[[_PartRule], _PartRule]:
    def register(rule: _PartRule) -> _PartRule:
        _PARTS[name] = rule
        return rule

    return register


@_component_of("concatenate")
def _of_concatenate(op: Op, vector: int, index: int) -> IndexPart | None:
    if op.attrs.integer("dimension") != vector:
        return None
    for operand in op.operands:
        size = operand.shape[vector]
        assert isinstance(size, int)
        if index < size:
            return part_of(operand, vector, index)
        index -= size
    return None


@_component_of("clamp")
def _of_clamp(op: Op, vector: int, index: int) -> IndexPart | None:
    low, x, high = [
        part_of(value, vector, index) if value.type.rank else part_of(value, 0, 0)
        for value in op.operands
    ]
    if x is None or x.low is not None or low is None or high is None:
        return None
    bounds = low.known(), high.known()
    return None if None in bounds else replace(x, low=bounds[0], high=bounds[1])


@_component_of("minimum")
def _of_minimum(op: Op, vector: int, index: int) -> IndexPart | None:
    """The minimum of two constants."""
    found = [part_of(value, vector, index) for value in op.operands]
    known = [part.known() for part in found if part is not None]
    numbers = [number for number in known if number is not None]
    return IndexPart(None, number=min(numbers)) if len(numbers) == 2 else None


@_component_of("broadcast_in_dim")
def _of_broadcast(op: Op, vector: int, index: int) -> IndexPart | None:
    (source,) = op.operands
    dims = op.attrs.integers("dimensions")
    places = [dim - (dim > vector) for dim in dims if dim != vector]
    if vector not in dims:
        known = integer(source)
        return (
            IndexPart(None, number=known) if known is not None else IndexPart(source, tuple(places))
        )
    along = dims.index(vector)
    found = part_of(source, along, 0 if source.shape[along] == 1 else index)
    if found is None:
        return None
    return replace(found, at=tuple(places[dim] if dim >= 0 else dim for dim in found.at))


@_component_of("reshape")
def _of_reshape(op: Op, vector: int, index: int) -> IndexPart | None:
    (source,) = op.operands
    shape = op.result.shape
    if source.shape != (*shape[:vector], *shape[vector + 1 :]):
        return None
    return IndexPart(source, tuple(range(source.type.rank)))


@_component_of("convert")
def _of_convert(op: Op, vector: int, index: int) -> IndexPart | None:
    return part_of(op.operands[0], vector, index) if op.operands[0].dtype.is_integer else None


@_component_of("constant")
def _of_constant(op: Op, vector: int, index: int) -> IndexPart | None:
    """A constant that is the same in each vector."""
    literal = op.attrs.literal("value")
    if not literal.dtype.is_integer:
        return None
    inner = 1
    for size in literal.shape[vector + 1 :]:
        inner *= size
    count = literal.shape[vector] if literal.shape else 1
    found = {
        int(number)
        for place, number in enumerate(literal.values())
        if place // inner % count == index
    }
    return IndexPart(None, number=found.pop()) if len(found) == 1 else None


def counts_along(part: IndexPart) -> int | None:
    """Find the dimension of the batch along which the component is 0, 1, 2, ..."""
    if part.value is None or part.low not in (None, 0) or part.high is not None:
        return None
    dim = _counted(part.value)
    return part.at[dim] if dim is not None else None


def _counted(value: Value) -> int | None:
    """Find the dimension along which ``value`` is 0, 1, 2, ..."""
    op = value.op
    if op is None:
        return None
    if op.name == "iota":
        return op.attrs.integer("dimension")
    if op.name == "constant":
        return _counted_literal(op)
    if op.name == "convert":
        return _counted(op.operands[0])
    if op.name == "broadcast_in_dim":
        dim = _counted(op.operands[0])
        kept = dim is not None and op.operands[0].shape[dim] != 1
        return op.attrs.integers("dimensions")[dim] if dim is not None and kept else None
    if op.name == "reshape":
        return _counted_reshape(op)
    counted = wrapped(value)
    # A count is never negative, so it does not wrap.
    return _counted(counted[0]) if counted is not None else None


def _counted_literal(op: Op) -> int | None:
    literal = op.attrs.literal("value")
    big = [dim for dim, size in enumerate(literal.shape) if size != 1]
    if len(big) != 1 or not literal.dtype.is_integer:
        return None
    return big[0] if [*map(int, literal.values())] == [*range(literal.shape[big[0]])] else None


def _counted_reshape(op: Op) -> int | None:
    """Map through a reshape that inserts or removes dimensions of size 1 only."""
    (source,) = op.operands
    dim = _counted(source)
    before = [i for i, size in enumerate(source.shape) if size != 1]
    after = [i for i, size in enumerate(op.result.shape) if size != 1]
    same = [source.shape[i] for i in before] == [op.result.shape[i] for i in after]
    return after[before.index(dim)] if same and dim in before else None


def wrapped(value: Value) -> tuple[Value, int] | None:
    """Match ``x < 0 ? x + n : x``, Python's negative indices: ``(x, n)``."""
    op = value.producer("select")
    if op is None:
        return None
    below, added, x = op.operands
    test, total = below.producer("compare"), added.producer("add")
    if test is None or total is None or test.attrs.text("direction") != "LT":
        return None
    zero, count = _splat(test.operands[1]), _splat(total.operands[1])
    if test.operands[0] is not x or total.operands[0] is not x or zero != 0 or count is None:
        return None
    return x, count


def _splat(value: Value) -> int | None:
    """Match a constant whose elements are all equal."""
    spread = value.producer("broadcast_in_dim")
    source = spread.operands[0] if spread is not None else value
    op = source.producer("constant")
    if op is None or not source.dtype.is_integer:
        return None
    found = set(op.attrs.literal("value").values())
    return int(found.pop()) if len(found) == 1 else None
