"""Raise rope: halves of a head multiplied by cosines and sines."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ops import Trait, has_trait
from graphgen.passes.core import NoMatch, no_match, rule
from graphgen.passes.raising.attention_dims import head_dims
from graphgen.passes.raising.matchers import either_way, filled, plain, spread, without

# Cosines and sines.
_Tables = tuple[Value, Value]


@rule("concatenate")
def raise_rope(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``(a cos - b sin, b cos + a sin)`` of the halves a, b of each head is a rope."""
    if len(op.operands) != 2 or op.attrs.integer("dimension") != op.result.type.rank - 1:
        return NoMatch("it does not join two parts of a last dimension", op.result)
    left, right = (plain(value).op for value in op.operands)
    if left is None or left.name != "subtract" or right is None or right.name != "add":
        return NoMatch("the parts are not a difference and a sum", op.result)
    found = _crossed(left, right)
    if found is None:
        return no_match(
            "the parts are not products of both halves with one pair of tables", op.result
        )
    x, tables = found
    return _rope(op, b, x, tables)


def _crossed(left: Op, right: Op) -> tuple[Value, _Tables] | None:
    """Match ``a cos - b sin`` and ``b cos + a sin``: the rotated value, and the tables."""
    for a, cos in _factors(left.operands[0]):
        for b, sin in _factors(left.operands[1]):
            x = _halves(a, b)
            if x is None:
                continue
            for first, second in either_way(right):
                if _is_product(first, b, cos) and _is_product(second, a, sin):
                    return x, (cos, sin)
    return None


def _factors(value: Value) -> list[tuple[Value, Value]]:
    op = plain(value).producer("multiply")
    return list(either_way(op)) if op is not None else []


def _is_product(value: Value, x: Value, table: Value) -> bool:
    return any(plain(a) is plain(x) and plain(b) is plain(table) for a, b in _factors(value))


def _halves(a: Value, b: Value) -> Value | None:
    """Match the two halves of the last dimension of a value: that value."""
    left, right = plain(a).producer("slice"), plain(b).producer("slice")
    if left is None or right is None or left.operands[0] is not right.operands[0]:
        return None
    (x,) = left.operands
    return x if _is_part(left, 0) and _is_part(right, 1) else None


def _is_part(op: Op, which: int) -> bool:
    """Test whether a slice is half ``which`` of the last dimension, and all of the others."""
    (x,) = op.operands
    size = x.shape[-1]
    if not isinstance(size, int) or size % 2 or any(s != 1 for s in op.attrs.integers("strides")):
        return False
    zeros = (0,) * (x.type.rank - 1)
    half = size // 2
    starts, limits = op.attrs.dims("start_indices"), op.attrs.dims("limit_indices")
    return (starts, limits) == (
        (*zeros, which * half),
        (*x.shape[:-1], half * (which + 1)),
    )


@rule("add")
def raise_rotated_rope(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``x * cos + concatenate(-b, a) * sin`` with tables of equal halves is a rope."""
    for first, second in either_way(op):
        for x, cos in _factors(first):
            for turned, sin in _factors(second):
                if _turned(turned) is plain(x):
                    return _of_whole_tables(op, b, x, cos, sin)
    return NoMatch("no term is the other's value turned by a quarter", op.result)


def _turned(value: Value) -> Value | None:
    """Match ``concatenate(-second half of x, first half of x)``: x."""
    op = plain(value).producer("concatenate")
    if op is None or len(op.operands) != 2:
        return None
    if op.attrs.integer("dimension") != op.result.type.rank - 1:
        return None
    negated = plain(op.operands[0]).producer("negate")
    x = _halves(op.operands[1], negated.operands[0]) if negated is not None else None
    return plain(x) if x is not None else None


def _of_whole_tables(op: Op, b: Builder, x: Value, cos: Value, sin: Value) -> list[Value] | NoMatch:
    size = x.shape[-1]
    tables: list[Value] = []
    for table in (cos, sin):
        source, dims = spread(plain(table))
        if not _has_equal_halves(source) or not dims or dims[-1] != x.type.rank - 1:
            return no_match("the halves of a table are not known to be equal", table, depth=2)
        assert isinstance(size, int)
        half = b.slice_dim(source, source.type.rank - 1, 0, size // 2)
        shape = (*table.shape[:-1], size // 2)
        tables.append(b.broadcast_in_dim(half, shape, dims))
    return _rope(op, b, x, (tables[0], tables[1]))


def _has_equal_halves(value: Value) -> bool:
    """Test whether ``value`` is ``f(concatenate(x, x))`` for an elementwise f."""
    op = value.op
    if op is None:
        return False
    if op.name == "concatenate":
        last = op.attrs.integer("dimension") == op.result.type.rank - 1
        return last and len(op.operands) == 2 and op.operands[0] is op.operands[1]
    if len(op.operands) == 1 and has_trait(op, Trait.ELEMENTWISE):
        return _has_equal_halves(op.operands[0])
    if op.name == "reshape" and op.operands[0].shape[-1] == value.shape[-1]:
        return _has_equal_halves(op.operands[0])
    if op.name == "broadcast_in_dim":
        (source,) = op.operands
        dims = op.attrs.integers("dimensions")
        last = bool(dims) and dims[-1] == value.type.rank - 1
        return last and source.shape[-1] == value.shape[-1] and _has_equal_halves(source)
    if op.name == "multiply":
        return any(
            _has_equal_halves(a) and not spread(number)[0].type.rank for a, number in either_way(op)
        )
    return False


def _rope(op: Op, b: Builder, x: Value, tables: _Tables) -> list[Value] | NoMatch:
    """Build the rope of ``x`` [.., D]; its heads are the dimension along which tables repeat."""
    if x.type.rank != 4:
        return no_match("it has not four dimensions", x, depth=3)
    if any(table.dtype.name != "f32" for table in tables):
        return no_match("the tables are not f32", tables[0], depth=4)
    found: list[Value] = []
    # Heads are the third or the second dimension; the tables of one token fit both.
    known = head_dims(x) or ()
    for heads in sorted((2, 1), key=lambda dim: dim not in known):
        order = [0, 3 - heads, heads, 3]
        kept = [0, 3 - heads, 3]
        shape = [tables[0].shape[dim] for dim in kept]
        made = [without(b, plain(table), kept) for table in tables]
        found = [filled(b, table, shape) for table in made if table is not None]
        if len(found) == 2:
            break
    else:
        return no_match("the tables differ from head to head", tables[0], depth=5)
    straight = x if order == [0, 1, 2, 3] else b.transpose(x, order)
    made = b.rope(straight, found[0], found[1])
    back = made if order == [0, 1, 2, 3] else b.transpose(made, order)
    return [b.convert(back, op.result.dtype)]
