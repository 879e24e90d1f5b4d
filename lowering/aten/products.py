"""ATen ops that are sums of products."""

from __future__ import annotations

from graphgen.ir import Dim, Value
from graphgen.lowering.aten.call import AtenCall, AtenResult, aten
from graphgen.lowering.aten.shape import ones_like


def unmerged(value: Value, kept: int) -> Value | None:
    """Undo a reshape that merged all but the last ``kept`` dimensions of ``value`` into one."""
    op = value.producer("reshape")
    if op is None or value.type.rank != kept + 1:
        return None
    (source,) = op.operands
    fits = source.type.rank > value.type.rank and source.shape[-kept:] == value.shape[-kept:]
    return source if fits else None


def _rows_times(c: AtenCall, x: Value, y: Value) -> Value:
    """[M,K] times [K,N], with M as the dimensions that were merged into it.

    torch multiplies matrices only, so rows of tokens are merged before and split again after.
    """
    rows = unmerged(x, 1)
    x = rows if rows is not None else x
    turned = y.producer("transpose")
    if turned is not None:
        # A weight [out, in] is read in the checkpoint's own order.
        return c.b.dot_general(x, turned.operands[0], ([x.type.rank - 1], [1]))
    return c.b.dot_general(x, y, ([x.type.rank - 1], [0]))


@aten("mm.default")
def _mm(c: AtenCall) -> AtenResult:
    return c.b.reshape(_rows_times(c, c.value("self"), c.value("mat2")), c.shape)


@aten("addmm.default")
def _addmm(c: AtenCall) -> AtenResult:
    """``beta * self + alpha * mat1 @ mat2``."""
    product = _rows_times(c, c.value("mat1"), c.value("mat2"))
    bias = c.value("self")
    if bias.type.rank > 1:
        product = c.b.reshape(product, c.shape)
    return c.b.reshape(_added(c, bias, product), c.shape)


def _added(c: AtenCall, bias: Value, product: Value) -> Value:
    alpha, beta = c.number("alpha", 1), c.number("beta", 1)
    if alpha != 1:
        product = c.b.multiply(product, c.full(alpha, product.dtype, product.shape))
    if beta == 0:
        return product
    spread = c.spread(bias, product.shape)
    if beta != 1:
        spread = c.b.multiply(spread, c.full(beta, spread.dtype, spread.shape))
    return c.b.add(product, spread)


def _batches(c: AtenCall, x: Value, y: Value) -> Value:
    """[B,M,K] times [B,K,N], with B as the dimensions that were merged into it."""
    left, right = unmerged(x, 2), unmerged(y, 2)
    if left is not None and right is not None and left.shape[:-2] == right.shape[:-2]:
        x, y = left, right
    return c.b.reshape(_batched(c, x, y), c.shape)


def _batched(c: AtenCall, x: Value, y: Value) -> Value:
    rank = x.type.rank
    batch = list(range(rank - 2))
    return c.b.dot_general(x, y, ([rank - 1], [rank - 2]), (batch, batch))


@aten("bmm.default")
def _bmm(c: AtenCall) -> AtenResult:
    return _batches(c, c.value("self"), c.value("mat2"))


@aten("baddbmm.default")
def _baddbmm(c: AtenCall) -> AtenResult:
    return _added(c, c.value("self"), _batches(c, c.value("batch1"), c.value("batch2")))


@aten("linear.default")
def _linear(c: AtenCall) -> AtenResult:
    """``input @ weight.T + bias``, contracted on the checkpoint's own [out, in]."""
    x, weight, bias = c.value("input"), c.value("weight"), c.maybe("bias")
    product = c.b.dot_general(x, weight, ([x.type.rank - 1], [weight.type.rank - 1]))
    return product if bias is None else c.b.add(product, c.spread(bias, product.shape))


@aten("matmul.default", "dot.default", "mv.default")
def _matmul(c: AtenCall) -> AtenResult:
    """Matrices of the last two dimensions; a vector is one row, or one column."""
    x = c.value("self")
    y = c.maybe("other") or c.maybe("tensor") or c.value("vec")
    if y.type.rank <= 2:
        contracted = max(y.type.rank - 2, 0)
        return c.b.dot_general(x, y, ([x.type.rank - 1], [contracted]))
    left = x if x.type.rank > 1 else c.b.reshape(x, (1, *x.shape))
    batch = ones_like([_batch_of(c, left), _batch_of(c, y)]) if left.type.rank > 2 else _outer(y)
    left, right = (c.spread(v, (*batch, *v.shape[-2:])) for v in (left, y))
    return c.b.reshape(_batched(c, left, right), c.shape)


def _outer(value: Value) -> list[Dim]:
    return list(value.shape[:-2])


def _batch_of(c: AtenCall, value: Value) -> Value:
    """Any value whose shape is that of the batch dimensions."""
    return c.full(0, value.dtype, value.shape[:-2])
