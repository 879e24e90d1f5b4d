"""Order operands both ways, and lay out values of a match in dimensions of its root."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphgen.build import Builder
from graphgen.ir import Dim, Op, Value


def either_way(op: Op) -> Iterator[tuple[Value, Value]]:
    """Yield the operands of a commutative op in both orders."""
    a, b = op.operands
    yield a, b
    yield b, a


def placed(
    b: Builder,
    value: Value,
    at: Sequence[object],
    order: Sequence[object],
    shape: Sequence[Dim],
) -> Value:
    """Lay out a value, whose dimensions are those ``at`` of a root, as others of these.

    Args:
        b: the builder.
        value: it is repeated along the dimensions of ``order`` that it has not.
        at: the places of its dimensions; those that are not in ``order`` have size 1.
        order: the places of the result's dimensions; ``None`` for one of size 1.
        shape: of the result.
    """
    kept = [i for i, place in enumerate(at) if place is not None and place in order]
    if len(at) == len(order):
        # Dimensions of size 1 move with the others.
        units = [i for i in range(len(at)) if i not in kept]
        moved = [at.index(p) if p is not None and p in at else units.pop(0) for p in order]
        if [value.shape[i] for i in moved] == list(shape):
            return value if moved == sorted(moved) else b.transpose(value, moved)
    places = [order.index(at[i]) for i in kept]
    turned = sorted(range(len(kept)), key=places.__getitem__)
    value = b.reshape(value, [value.shape[i] for i in kept])
    value = value if turned == sorted(turned) else b.transpose(value, turned)
    if [size for size in value.shape if size != 1] == [size for size in shape if size != 1]:
        return b.reshape(value, shape)
    return b.broadcast_in_dim(value, shape, sorted(places))
