"""Float products in the forms that XLA's CPU backend runs fast (``benchmarks/README.md``).

* Weights stay [N, K], as checkpoints store them: contracting the last dimensions of both sides.
* A bf16 dot computes f32 and is converted after. For a bf16 result, XLA copies the whole weight
  to f32 first, on every call.
* A bf16 dot of one row is padded to eight: XLA's library kernel starts at two rows, eight suits
  matrix units as well and costs next to nothing without them.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dims import product
from graphgen.ir.dtype import bf16, f16, f32
from graphgen.passes.core import NoMatch, Rule, no_match, rule


@rule("dot_general")
def wide_dot(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """A dot of 16-bit floats accumulates and leaves in f32, then is rounded."""
    lhs, rhs = op.operands
    if lhs.dtype not in (bf16, f16):
        return no_match(f"the operands are {lhs.dtype}, which is fast as it is", lhs)
    if op.result.dtype is f32:
        return no_match("the result is f32 already", op.result, depth=2)
    attrs = {**op.attrs, "dtype": f32}
    return [b.convert(b.emit("dot_general", (lhs, rhs), attrs).result, op.result.dtype)]


def padded_rows(rows: int) -> Rule:
    """The rule that brings a 16-bit dot with fewer than ``rows`` rows to ``rows``."""

    @rule("dot_general")
    def pad_rows(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        lhs, rhs = op.operands
        if lhs.dtype not in (bf16, f16):
            return no_match(f"the operands are {lhs.dtype}", lhs)
        if op.attrs.integers("lhs_batch_dims") or len(rhs.shape) != 2:
            return no_match("not a product with a weight matrix", rhs, depth=2)
        if op.attrs.integers("lhs_contracting_dims") != (len(lhs.shape) - 1,):
            return no_match("the left side does not contract its last dimension", lhs, depth=3)
        *outer, depth = lhs.type.dims
        count = 1
        for size in outer:
            count *= size
        if not 0 < count < rows:
            return no_match(f"{count} rows are enough", lhs, depth=4)
        flat = b.reshape(lhs, (count, depth))
        tall = b.pad(flat, b.literal(0.0, lhs.dtype), (0, 0), (rows - count, 0))
        (axis,) = op.attrs.integers("rhs_contracting_dims")
        out = b.dot_general(tall, rhs, ([1], [axis]), dtype=op.result.dtype)
        return [b.reshape(b.slice_dim(out, 0, 0, count), op.result.shape)]

    return pad_rows


@rule("dot_general")
def one_free_dimension(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """The right side of a bf16 product in f32 has one free dimension, after its batch.

    XLA's CPU backend refuses others whose left side does not contract its last dimension, unless it
    fuses them (``Unsupported element type for DotThunk::Execute: BF16 x BF16 = F32``).
    """
    lhs, rhs = op.operands
    if (lhs.dtype, rhs.dtype, op.result.dtype) != (bf16, bf16, f32):
        return no_match("it is not a product of bf16 in f32", lhs)
    left, right = (op.attrs.integers(f"{side}_contracting_dims") for side in ("lhs", "rhs"))
    batch = op.attrs.integers("rhs_batch_dims")
    if not left or left[-1] == lhs.type.rank - 1:
        return no_match("the left side contracts its last dimension", lhs, depth=2)
    free = [dim for dim in range(rhs.type.rank) if dim not in (*batch, *right)]
    if len(free) < 2 and batch == tuple(range(len(batch))):
        return no_match("the right side has one free dimension, after its batch", rhs, depth=3)
    order = (*batch, *right, *free)
    moved = rhs if order == tuple(range(rhs.type.rank)) else b.transpose(rhs, order)
    sizes = [moved.shape[: len(batch) + len(right)], moved.shape[len(batch) + len(right) :]]
    flat = b.reshape(moved, (*sizes[0], product(sizes[1])))
    places = range(len(batch)), range(len(batch), len(batch) + len(right))
    attrs = {
        **op.attrs,
        "rhs_batch_dims": tuple(places[0]),
        "rhs_contracting_dims": tuple(places[1]),
    }
    made = b.emit("dot_general", (lhs, flat), attrs).result
    return [b.reshape(made, op.result.shape)]
