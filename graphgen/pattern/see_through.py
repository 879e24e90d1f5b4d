"""Values without layout and rounding: the source, and where its dimensions lie."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

from graphgen.ir import Dim, Op, Value

# Per dimension of a value its dimension of the root of a match; ``None`` where its size is 1.
At = tuple[int | None, ...]


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


def peeled(value: Value, at: At, names: Container[str] = ()) -> tuple[Value, At]:
    """Go past all ops that move, repeat or round, up to one of these names."""
    while value.op is not None and value.op.name not in names:
        inner = through(value.op, at)
        if inner is None:
            break
        value, at = inner
    return value, at


def through(op: Op, at: At) -> tuple[Value, At] | None:
    """Go past an op that moves, repeats or rounds its operand; ``None`` for other ops."""
    if len(op.operands) != 1:
        return None
    (source,) = op.operands
    if op.name == "convert":
        floats = source.dtype.is_float and op.result.dtype.is_float
        return (source, at) if floats else None
    if op.name == "broadcast_in_dim":
        dims = op.attrs.integers("dimensions")
        pairs = zip(dims, source.shape, strict=True)
        return source, tuple([None if size == 1 else at[dim] for dim, size in pairs])
    if op.name == "transpose":
        permutation = op.attrs.integers("permutation")
        places = dict(zip(permutation, at, strict=True))
        return source, tuple([places[dim] for dim in range(len(at))])
    if op.name == "reshape":
        return _through_reshape(source, op.result.shape, at)
    return None


def _through_reshape(source: Value, shape: Sequence[Dim], at: At) -> tuple[Value, At] | None:
    """Go past a reshape that inserts or removes dimensions of size 1 only."""
    wide = [dim for dim, size in enumerate(source.shape) if size != 1]
    kept = [dim for dim, size in enumerate(shape) if size != 1]
    if [source.shape[dim] for dim in wide] != [shape[dim] for dim in kept]:
        return None
    found: list[int | None] = [None] * source.type.rank
    for dim, place in zip(wide, kept, strict=True):
        found[dim] = at[place]
    return source, tuple(found)
