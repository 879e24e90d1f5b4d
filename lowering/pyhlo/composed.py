"""Ops of PyHLO that are written as several: padding, norms, random numbers; and kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from graphgen.build import Builder
from graphgen.ir import Value
from graphgen.ir.dtype import f32, u32
from graphgen.lowering.pyhlo.given import Given
from graphgen.lowering.pyhlo.ops import Write, operands
from graphgen.lowering.pyhlo.scribe import Trace
from graphgen.lowering.pyhlo.shapes import Result, Shape, mistake
from graphgen.lowering.pyhlo.threefry import threefry

UNIFORM, NORMAL = 1, 2


def _pad(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    """What is negative is cut off; gaps between elements are a dimension for a while."""
    value, fill = operands(a, x, 2)
    config = a.message("padding_config")
    for axis, edge in enumerate(config.messages("dimensions")):
        between = edge.integer("interior_padding", 0)
        low, high = edge.integer("edge_padding_low", 0), edge.integer("edge_padding_high", 0)
        edge.finish()
        if between:
            value = _spread(t.b, value, fill, axis, between)
        value = _edges(t.b, value, fill, axis, low, high)
    config.finish()
    return [value]


def _spread(b: Builder, x: Value, fill: Value, axis: int, between: int) -> Value:
    """``between`` fillings after each element of a dimension but the last."""
    size = cast(int, x.shape[axis])
    rank = x.type.rank
    column = b.reshape(x, (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :]))
    high = [between if dim == axis + 1 else 0 for dim in range(rank + 1)]
    wide = b.pad(column, fill, [0] * (rank + 1), high)
    flat = b.reshape(wide, (*x.shape[:axis], size * (between + 1), *x.shape[axis + 1 :]))
    return b.slice_dim(flat, axis, 0, max(size * (between + 1) - between, 0))


def _edges(b: Builder, x: Value, fill: Value, axis: int, low: int, high: int) -> Value:
    if low > 0 or high > 0:
        sides = [(max(low, 0), max(high, 0)) if i == axis else (0, 0) for i in range(x.type.rank)]
        x = b.pad(x, fill, [side[0] for side in sides], [side[1] for side in sides])
    if low < 0 or high < 0:
        size = cast(int, x.shape[axis])
        x = b.slice_dim(x, axis, max(-low, 0), size - max(-high, 0))
    return x


def _batch_norm(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    """The normalized operand, and mean and variance of each feature over everything else."""
    value, scale, offset = operands(a, x, 3)
    axis, epsilon = a.integer("feature_index"), a.number("epsilon")
    if not 0 <= axis < value.type.rank:
        raise mistake("GG0105", f"BatchNormTraining: feature {axis} of {x[0].text}")
    b, kind = t.b, value.dtype
    over = [dim for dim in range(value.type.rank) if dim != axis]
    count = float(math.prod(value.type.dims[dim] for dim in over))
    wide = b.convert(value, f32)

    def spread(item: Value) -> Value:
        return b.broadcast_in_dim(b.convert(item, f32), value.shape, [axis])

    mean = b.divide(b.reduce(wide, over, "add"), count)
    centered = b.subtract(wide, spread(mean))
    variance = b.divide(b.reduce(b.multiply(centered, centered), over, "add"), count)
    unit = b.rsqrt(b.add(variance, epsilon))
    normal = b.add(b.multiply(b.multiply(centered, spread(unit)), spread(scale)), spread(offset))
    return [b.convert(item, kind) for item in (normal, mean, variance)]


def _rng(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    """Numbers that follow from ``rng_key`` and from which of the program's draws this is.

    ``distribution`` 1 is uniform in [x0, x1), 2 is normal of mean x0 and deviation x1.
    """
    low, high = operands(a, x, 2)
    how = a.integer("distribution")
    if how not in (UNIFORM, NORMAL):
        raise mistake("GG0104", f"Rng: distribution {how} is neither 1 (uniform) nor 2 (normal)")
    b, kind = t.b, want.dtype.element
    bits, more = _draw(t, want.sizes)
    if kind.is_integer and how == UNIFORM:
        first, last = (_everywhere(b, item, want.sizes) for item in (low, high))
        width = b.bitcast_convert(b.subtract(last, first), u32) if kind.bits == 32 else None
        if width is None:
            raise mistake("GG0104", f"Rng: {kind.name} is not of 32 bits")
        return [b.add(first, b.bitcast_convert(b.remainder(bits, width), kind))]
    if not kind.is_float:
        raise mistake("GG0104", f"Rng: no such distribution of {kind.name}")
    first, last = (_everywhere(b, b.convert(item, f32), want.sizes) for item in (low, high))
    if how == UNIFORM:
        made = b.add(b.multiply(_unit(b, bits), b.subtract(last, first)), first)
    else:
        # Box and Muller: the radius from one number in (0, 1], the angle from another.
        radius = b.sqrt(b.multiply(b.log(b.subtract(1.0, _unit(b, bits))), -2.0))
        normal = b.multiply(radius, b.cosine(b.multiply(_unit(b, more), 2 * math.pi)))
        made = b.add(b.multiply(normal, last), first)
    return [b.convert(made, kind)]


def _everywhere(b: Builder, x: Value, sizes: Sequence[int]) -> Value:
    return b.broadcast_in_dim(x, sizes, ()) if sizes and not x.shape else x


def _unit(b: Builder, bits: Value) -> Value:
    """Floats in [0, 1) from the upper 23 bits of each number."""
    fraction = b.or_(b.shift_right_logical(bits, 9), 0x3F800000)
    return b.subtract(b.bitcast_convert(fraction, f32), 1.0)


def _draw(t: Trace, sizes: Sequence[int]) -> tuple[Value, Value]:
    """Two 32-bit numbers an element, of the next stream."""
    scribe = t.scribe
    if len(scribe.traces) > 1:
        raise mistake("GG0705", "Rng: no random numbers inside another op's computation")
    if scribe.key is None:
        from graphgen.ir import tensor

        scribe.key = t.function.block.add_arg(tensor(u32, (2,)), "rng_key")
    b, count = t.b, math.prod(sizes)
    keys = [b.reshape(b.slice_dim(scribe.key, 0, i, i + 1), ()) for i in (0, 1)]
    counter = b.iota(u32, (count,), 0)
    stream = b.full(scribe.streams, counter.type)
    scribe.streams += 1
    pair = threefry(b, (keys[0], keys[1]), (counter, stream))
    return b.reshape(pair[0], sizes), b.reshape(pair[1], sizes)


def _custom_call(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    """A kernel of the target's compiler, under its name."""
    target, config = a.text("custom_call_target"), a.text("backend_config", "")
    return t.b.custom_call(target, [item.value for item in x], want.types, config)


COMPOSED: dict[str, Write] = {
    "Pad": _pad,
    "BatchNormTraining": _batch_norm,
    "Rng": _rng,
    "CustomCall": _custom_call,
}
