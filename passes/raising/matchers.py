"""Matchers that look through broadcasts, conversions and scalars."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from graphgen.build import Builder
from graphgen.ir import Dim, Op, Value


def spread(value: Value) -> tuple[Value, tuple[int, ...]]:
    """Match a broadcast: its operand, and the dimension of ``value`` of each of its dimensions."""
    op = value.producer("broadcast_in_dim")
    if op is None:
        return value, tuple(range(value.type.rank))
    return op.operands[0], op.attrs.integers("dimensions")


def one_number(value: Value) -> Value | None:
    """Match a broadcast float scalar."""
    source = plain(spread(plain(value))[0])
    return source if source.dtype.is_float and not source.type.rank else None


def literal(value: Value) -> float | None:
    """Match a broadcast float constant."""
    source = one_number(value)
    op = source.producer("constant") if source is not None else None
    return float(op.attrs.literal("value").values()[0]) if op is not None else None


def scalar(value: Value) -> float | None:
    """Match a broadcast float constant, or arithmetic of constants, and fold it."""
    source = one_number(value)
    op = source.op if source is not None else None
    if op is None:
        return None
    if op.name == "constant":
        return float(op.attrs.literal("value").values()[0])
    if op.name == "convert":
        number = integer(op.operands[0])
        return None if number is None else float(number)
    known = [scalar(operand) for operand in op.operands]
    numbers = [number for number in known if number is not None]
    if len(numbers) != len(known):
        return None
    try:
        return _computed(op.name, numbers)
    except (ArithmeticError, ValueError):
        return None


def _computed(name: str, numbers: Sequence[float]) -> float | None:
    """Evaluate the arithmetic that models do on the size of a head; ``None`` for other ops."""
    match name, *numbers:
        case "sqrt", x:
            return math.sqrt(x)
        case "rsqrt", x:
            return 1 / math.sqrt(x)
        case "negate", x:
            return -x
        case "multiply", x, y:
            return x * y
        case "divide", x, y:
            return x / y
        case _:
            return None


def integer(value: Value) -> int | None:
    """Match an integer constant that is a scalar."""
    op = value.producer("constant")
    if op is None or value.type.rank or not value.dtype.is_integer:
        return None
    return int(op.attrs.literal("value").values()[0])


def plain(value: Value) -> Value:
    """Strip conversions between floating-point types."""
    op = value.producer("convert")
    while op is not None and op.operands[0].dtype.is_float and value.dtype.is_float:
        value = op.operands[0]
        op = value.producer("convert")
    return value


def either_way(op: Op) -> Iterator[tuple[Value, Value]]:
    """Yield the operands of a commutative op in both orders."""
    a, b = op.operands
    yield a, b
    yield b, a


def over_rows(value: Value, rank: int) -> Value | None:
    """Match a broadcast along the last dimension, [..., N or 1]: its operand [...]."""
    source, dims = spread(value)
    while source.type.rank == rank and source.shape[-1] == 1:
        if dims != tuple(range(rank)):
            return None
        inner = source.producer("reshape") or source.producer("broadcast_in_dim")
        if inner is None or inner.operands[0].type.rank != rank - 1:
            return source
        return inner.operands[0] if _adds_last(inner, rank) else None
    return source if dims == tuple(range(rank - 1)) else None


def _adds_last(op: Op, rank: int) -> bool:
    """Test whether a reshape or broadcast only appends a dimension of size 1."""
    (operand,) = op.operands
    if (*operand.shape, 1) != op.result.shape:
        return False
    return op.name == "reshape" or op.attrs.integers("dimensions") == tuple(range(rank - 1))


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
    if value.shape == tuple(shape):
        return value
    return b.broadcast_in_dim(value, shape, sorted(places))


def filled(b: Builder, value: Value, shape: Sequence[Dim]) -> Value:
    """Broadcast dimensions of size 1 to ``shape``."""
    if value.shape == tuple(shape):
        return value
    return b.broadcast_in_dim(value, shape, range(len(shape)))
