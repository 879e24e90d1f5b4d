"""Ops of PyHLO that are several of the IR (padding, norms, random numbers), and kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, cast

from graphgen.build import Builder
from graphgen.ir import Value
from graphgen.ir.dtype import f32, u32
from graphgen.lowering.pyhlo.op_row import PyHloRow, custom_row
from graphgen.lowering.pyhlo.shapes import mistake
from graphgen.lowering.pyhlo.trace_context import PyHloCall

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def threefry(
    b: Builder, key: tuple[Value, Value], counter: tuple[Value, Value]
) -> tuple[Value, Value]:
    """Two u32 for each element of the counters.

    Args:
        b: appends the ops.
        key: two scalars u32.
        counter: two u32 of one shape.
    """
    shape = counter[0].shape
    parity = b.xor(b.xor(key[0], key[1]), _PARITY)
    keys = [b.broadcast_in_dim(item, shape, ()) for item in (*key, parity)]
    x, y = b.add(counter[0], keys[0]), b.add(counter[1], keys[1])
    for group in range(5):
        for bits in _ROTATIONS[group % 2]:
            x = b.add(x, y)
            turned = b.or_(b.shift_left(y, bits), b.shift_right_logical(y, 32 - bits))
            y = b.xor(turned, x)
        x = b.add(x, keys[(group + 1) % 3])
        y = b.add(b.add(y, keys[(group + 2) % 3]), group + 1)
    return x, y


UNIFORM, NORMAL = 1, 2


def _pad(c: PyHloCall) -> Sequence[Value]:
    """Write a padding by dimension: interior padding by a reshape, a negative one by a slice."""
    value, fill = c.values(2)
    config = c.attrs.message("padding_config")
    for axis, edge in enumerate(config.messages("dimensions")):
        between = edge.integer("interior_padding", 0)
        low, high = edge.integer("edge_padding_low", 0), edge.integer("edge_padding_high", 0)
        edge.finish()
        if between:
            value = _spread(c.b, value, fill, axis, between)
        value = _edges(c.b, value, fill, axis, low, high)
    config.finish()
    return [value]


def _spread(b: Builder, x: Value, fill: Value, axis: int, between: int) -> Value:
    """Insert ``between`` fillings after each element of a dimension except the last."""
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


def _batch_norm(c: PyHloCall) -> Sequence[Value]:
    """Write the normalized operand, and mean and variance of each feature over the other dims."""
    value, scale, offset = c.values(3)
    axis, epsilon = c.attrs.integer("feature_index"), c.attrs.number("epsilon")
    if not 0 <= axis < value.type.rank:
        raise mistake("GG0105", f"BatchNormTraining: feature {axis} of {c.operands[0].text}")
    b, kind = c.b, value.dtype
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


def _rng(c: PyHloCall) -> Sequence[Value]:
    """Write random numbers, a function of ``rng_key`` and of the number of this draw.

    ``distribution`` 1 is uniform in [x0, x1), 2 is normal of mean x0 and deviation x1.
    """
    low, high = c.values(2)
    how = c.attrs.integer("distribution")
    if how not in (UNIFORM, NORMAL):
        raise mistake("GG0104", f"Rng: distribution {how} is neither 1 (uniform) nor 2 (normal)")
    b, kind = c.b, c.stated.dtype.element
    bits, more = _draw(c, c.stated.sizes)
    if kind.is_integer and how == UNIFORM:
        first, last = (_everywhere(b, item, c.stated.sizes) for item in (low, high))
        width = b.bitcast_convert(b.subtract(last, first), u32) if kind.bits == 32 else None
        if width is None:
            raise mistake("GG0104", f"Rng: {kind.name} is not of 32 bits")
        return [b.add(first, b.bitcast_convert(b.remainder(bits, width), kind))]
    if not kind.is_float:
        raise mistake("GG0104", f"Rng: no such distribution of {kind.name}")
    first, last = (_everywhere(b, b.convert(item, f32), c.stated.sizes) for item in (low, high))
    if how == UNIFORM:
        made = b.add(b.multiply(_unit(b, bits), b.subtract(last, first)), first)
    else:
        # Box-Muller transform: the radius from one number in (0, 1], the angle from another.
        radius = b.sqrt(b.multiply(b.log(b.subtract(1.0, _unit(b, bits))), -2.0))
        normal = b.multiply(radius, b.cosine(b.multiply(_unit(b, more), 2 * math.pi)))
        made = b.add(b.multiply(normal, last), first)
    return [b.convert(made, kind)]


def _everywhere(b: Builder, x: Value, sizes: Sequence[int]) -> Value:
    return b.broadcast_in_dim(x, sizes, ()) if sizes and not x.shape else x


def _unit(b: Builder, bits: Value) -> Value:
    """Convert the upper 23 bits of each number to floats in [0, 1)."""
    fraction = b.or_(b.shift_right_logical(bits, 9), 0x3F800000)
    return b.subtract(b.bitcast_convert(fraction, f32), 1.0)


def _draw(c: PyHloCall, sizes: Sequence[int]) -> tuple[Value, Value]:
    """Draw two 32-bit numbers per element from the next stream."""
    scribe = c.trace.scribe
    if len(scribe.traces) > 1:
        raise mistake("GG0705", "Rng: no random numbers inside another op's computation")
    if scribe.key is None:
        from graphgen.ir import tensor

        scribe.key = c.trace.function.block.add_arg(tensor(u32, (2,)), "rng_key")
    b, count = c.b, math.prod(sizes)
    keys = [b.reshape(b.slice_dim(scribe.key, 0, i, i + 1), ()) for i in (0, 1)]
    counter = b.iota(u32, (count,), 0)
    stream = b.full(scribe.streams, counter.type)
    scribe.streams += 1
    pair = threefry(b, (keys[0], keys[1]), (counter, stream))
    return b.reshape(pair[0], sizes), b.reshape(pair[1], sizes)


def _custom_call(c: PyHloCall) -> Sequence[Value]:
    """Write a call of a kernel of the target's compiler, by its name."""
    target, config = c.attrs.text("custom_call_target"), c.attrs.text("backend_config", "")
    return c.b.custom_call(target, [item.value for item in c.operands], c.stated.types, config)


COMPOSITE_ROWS: Final[Sequence[PyHloRow]] = (
    custom_row("Pad", _pad),
    custom_row("BatchNormTraining", _batch_norm),
    custom_row("Rng", _rng),
    custom_row("CustomCall", _custom_call),
)
