"""Raise rms_norm, silu and embedding."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import Dim, Op, Value
from graphgen.passes.core import NoMatch, no_match, rule
from graphgen.passes.raising.matchers import either_way, over_rows, plain, scalar, spread


@rule("multiply")
def raise_rms_norm(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``x * rsqrt(mean(x^2) + epsilon) * weight`` is an rms_norm."""
    for scaled, spread_weight in either_way(op):
        weight, dims = spread(spread_weight)
        # One row for all, also as a slice [1,N] of the rows of all layers.
        if not dims or any(size != 1 for size in weight.shape[:-1]):
            continue
        normal = plain(scaled).producer("multiply")
        if normal is None:
            continue
        for x, root in either_way(normal):
            epsilon = _epsilon(x, root, dims[-1])
            if epsilon is not None:
                if weight.dtype is not op.result.dtype:
                    return no_match("the weight is of another type than the result", weight)
                row = weight if weight.type.rank == 1 else b.reshape(weight, weight.shape[-1:])
                return [_normalized(b, plain(x), row, epsilon, dims[-1])]
    return NoMatch("no row is divided by the root of its mean square", op.result)


def _normalized(b: Builder, x: Value, weight: Value, epsilon: float, dim: int) -> Value:
    """Build the norm along ``dim``, transposed to be the last dimension."""
    last = x.type.rank - 1
    if dim == last:
        return b.rms_norm(x, weight, epsilon)
    order = [*(other for other in range(last + 1) if other != dim), dim]
    made = b.rms_norm(b.transpose(x, order), weight, epsilon)
    return b.transpose(made, [order.index(place) for place in range(last + 1)])


def _epsilon(x: Value, root: Value, dim: int) -> float | None:
    """Match ``rsqrt(mean(x^2) + epsilon)`` along ``dim``: epsilon."""
    per_row = over_rows(root, x.type.rank) if dim == x.type.rank - 1 else _others(root, dim)
    rsqrt = plain(per_row if per_row is not None else root).producer("rsqrt")
    total = rsqrt.operands[0].producer("add") if rsqrt is not None else None
    if total is None:
        return None
    for mean, number in either_way(total):
        epsilon = scalar(number)
        if epsilon is not None and _is_mean_square(mean, x, dim):
            return epsilon
    return None


def _others(value: Value, dim: int) -> Value | None:
    """Match a broadcast along ``dim`` alone: its operand."""
    source, dims = spread(value)
    kept = tuple(other for other in range(value.type.rank) if other != dim)
    return source if dims == kept else None


def _is_mean_square(mean: Value, x: Value, dim: int) -> bool:
    total = _divided_by(mean, x.shape[dim])
    if total is None:
        return False
    while total.op is not None and total.op.name in ("reshape", "broadcast_in_dim"):
        (inner,) = total.op.operands
        if inner.type.size != total.type.size:
            return False
        total = inner
    reduce = total.producer("reduce")
    if reduce is None or reduce.attrs.text("kind") != "add":
        return False
    square = reduce.operands[0].producer("multiply")
    return (
        square is not None
        and reduce.attrs.integers("dimensions") == (dim,)
        and all(plain(value) is plain(x) for value in square.operands)
    )


def _divided_by(value: Value, count: Dim) -> Value | None:
    """Match ``x / count``: x."""
    op = value.op
    if op is None or not isinstance(count, int):
        return None
    if op.name == "divide" and scalar(op.operands[1]) == count:
        return op.operands[0]
    if op.name == "multiply":
        for total, number in either_way(op):
            # Only where 1 / count is exact, so that both are equal.
            if scalar(number) == 1 / count and count & (count - 1) == 0:
                return total
    return None


@rule("multiply")
def raise_silu(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``x * logistic(x)`` is a silu, also with ``1 / (1 + exp(-x))`` written out."""
    for x, gate in either_way(op):
        inner = _logistic_of(gate)
        if inner is not None and plain(inner) is plain(x):
            return [b.convert(b.silu(x), op.result.dtype)]
    return NoMatch("no factor is the logistic of the other", op.result)


def _logistic_of(value: Value) -> Value | None:
    """Match ``logistic(x)`` or ``1 / (1 + exp(-x))``: x."""
    op = plain(value).op
    if op is None:
        return None
    if op.name == "logistic":
        return op.operands[0]
    if op.name != "divide" or scalar(op.operands[0]) != 1:
        return None
    total = plain(op.operands[1]).producer("add")
    for raised, one in either_way(total) if total is not None else ():
        exponential = plain(raised).producer("exponential")
        negated = exponential.operands[0].producer("negate") if exponential is not None else None
        if negated is not None and scalar(one) == 1:
            return negated.operands[0]
    return None


@rule("gather")
def raise_embedding(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """A gather of whole rows of a table is an embedding."""
    table, indices = op.operands
    attrs = op.attrs
    if table.type.rank != 2 or attrs.dims("slice_sizes") != (1, table.shape[1]):
        return NoMatch("it does not look up whole rows of a matrix", table)
    rows = attrs.integers("collapsed_slice_dims") == attrs.integers("start_index_map") == (0,)
    last = op.result.type.rank - 1
    if not rows or attrs.integers("offset_dims") != (last,):
        return no_match("the rows do not become the last dimension", op.result)
    vector = attrs.integer("index_vector_dim")
    ids = indices
    if vector < indices.type.rank:
        if vector != last or indices.shape[-1] != 1:
            return no_match("the indices are not one number each", indices, depth=2)
        ids = b.reshape(indices, indices.shape[:-1])
    if ids.dtype.name != "s32":
        return no_match("the indices are not s32", indices, depth=3)
    return [b.embedding(table, ids)]
