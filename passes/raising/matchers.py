"""Matchers of broadcasts along given dimensions, and builders of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphgen.build import Builder
from graphgen.ir import Dim, Op, Value
from graphgen.pattern.see_through import At, spread


def either_way(op: Op) -> Iterator[tuple[Value, Value]]:
    """Yield the operands of a commutative op in both orders."""
    a, b = op.operands
    yield a, b
    yield b, a


def without(
    b: Builder, value: Value, kept: Sequence[int], at: Sequence[int] | None = None
) -> Value | None:
    """Remove dimensions along which ``value`` only repeats; nothing is built for ``None``.

    Args:
        b: the builder.
        value: of any rank.
        kept: dimensions that stay, in order.
        at: the dimensions of ``value`` as numbered in ``kept``; by default 0, 1, 2, ...

    Returns:
        The value with the dimensions ``kept``, of size 1 where it repeats; ``None`` where a removed
        dimension is not a repetition.
    """
    source, own = spread(value)
    dims = own if at is None else [at[dim] for dim in own]
    places = [kept.index(dim) for dim in dims if dim in kept]
    drop = [i for i, dim in enumerate(dims) if dim not in kept]
    if any(source.shape[index] != 1 for index in drop) or places != sorted(places):
        return None
    if drop:
        sizes = [size for index, size in enumerate(source.shape) if index not in drop]
        source = b.reshape(source, sizes)
    known = dict(zip(places, source.shape, strict=True))
    shape = [known.get(place, 1) for place in range(len(kept))]
    return source if tuple(shape) == source.shape else b.broadcast_in_dim(source, shape, places)


def laid_out(b: Builder, value: Value, places: Sequence[int], shape: Sequence[Dim]) -> Value:
    """Transpose and broadcast to ``shape``: dimension i of ``value`` becomes ``places[i]``."""
    order = sorted(range(len(places)), key=places.__getitem__)
    if order != list(range(len(order))):
        value = b.transpose(value, order)
    if [size for size in value.shape if size != 1] == [size for size in shape if size != 1]:
        return b.reshape(value, shape)
    return b.broadcast_in_dim(value, shape, sorted(places))


def placed(
    b: Builder, value: Value, at: At, order: Sequence[int | None], shape: Sequence[Dim]
) -> Value:
    """Lay out a value, whose dimensions are those of a root, as others of these: ``shape``."""
    kept = [index for index, place in enumerate(at) if place is not None]
    squeezed = b.reshape(value, [value.shape[index] for index in kept])
    return laid_out(b, squeezed, [order.index(at[index]) for index in kept], shape)


def filled(b: Builder, value: Value, shape: Sequence[Dim]) -> Value:
    """Broadcast dimensions of size 1 to ``shape``."""
    if value.shape == tuple(shape):
        return value
    return b.broadcast_in_dim(value, shape, range(len(shape)))
