"""Draws from candidates with probabilities, by inverse transform with a given random number."""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.ir import Value, tensor
from graphgen.ir.dtype import f32, s32

# Prefix sums are computed in blocks: a triangle over a whole vocabulary does not fit in memory.
_BLOCK = 256


def prefix_sums(b: Builder, x: Value, *, inclusive: bool) -> Value:
    """Sums of each row's elements up to each place; in one block where their number is a symbol."""
    size = x.shape[1]
    if not isinstance(size, int) or size <= _BLOCK:
        return _triangle(b, x, inclusive=inclusive)
    rows, blocks = x.shape[0], -(-size // _BLOCK)
    zero = b.full(0.0, tensor(f32, ()))
    whole = b.pad(x, zero, [0, 0], [0, blocks * _BLOCK - size])
    parts = b.reshape(whole, (rows, blocks, _BLOCK))
    before = prefix_sums(b, b.reduce(parts, [2], "add"), inclusive=False)
    inside = _triangle(b, parts, inclusive=inclusive)
    reached = inside + b.broadcast_in_dim(before, inside.shape, [0, 1])
    return b.slice_dim(b.reshape(reached, whole.shape), 1, 0, size)


def _triangle(b: Builder, x: Value, *, inclusive: bool) -> Value:
    """Sums along the last dimension: a product with a triangle of ones."""
    last = len(x.shape) - 1
    square = (x.shape[last], x.shape[last])
    earlier = b.compare(b.iota(s32, square, 0), b.iota(s32, square, 1), "LE" if inclusive else "LT")
    triangle = b.select(earlier, b.full(1.0, tensor(f32, square)), b.full(0.0, tensor(f32, square)))
    return b.dot_general(x, triangle, ([last], [0]), dtype=f32)


def draw(b: Builder, left: Value, ids: Value, random: Value) -> Value:
    """The candidate s32 [B] at which the sum of what is left passes the random part of it all.

    Args:
        b: where to build.
        left: probabilities f32 [B,K], which need not sum to 1; 0 for removed candidates.
        ids: s32 [B,K].
        random: f32 [B], in [0, 1).
    """
    rows, count = left.shape
    shape = (rows, count)
    reached = prefix_sums(b, left, inclusive=True)
    whole = b.slice_dim(reached, 1, count - 1, count)
    wanted = b.reshape(whole, (rows,)) * random
    passed = b.compare(reached, b.broadcast_in_dim(wanted, shape, [0]), "LE")
    index = _counted(b, passed)
    # Rounding may let no sum pass: then the last one that is left.
    places = b.iota(s32, shape, 1)
    stays = b.compare(left, b.full(0.0, left.type), "GT")
    last = b.reduce(b.select(stays, places, b.full(0, places.type)), [1], "maximum")
    at = b.broadcast_in_dim(b.binary("minimum", index, last), shape, [0])
    chosen = b.compare(places, at, "EQ")
    return b.reduce(b.select(chosen, ids, b.full(-1, ids.type)), [1], "maximum")


def _counted(b: Builder, flags: Value) -> Value:
    """Number of true elements in each row, s32 [B]."""
    return b.reduce(b.convert(flags, s32), [1], "add")
