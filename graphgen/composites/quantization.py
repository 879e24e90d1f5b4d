"""Decompositions of ``quantize``, ``dequantize`` and their forms by rows: numbers and scales."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.composites.basics import rms_norm
from graphgen.composites.registry import decomposition
from graphgen.ir import Attrs, Dim, Value, attrs_of
from graphgen.ir.dtype import f32, u8
from graphgen.ops.quantization import SCALE_BYTES

# The smallest normal f32: the scale of a channel of zeros must not be 0.
SMALLEST_SCALE = 2.0**-126


@decomposition
def quantize(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """Computed in f32; the conversion to integers saturates."""
    dtype, dimensions = attrs.element("dtype"), attrs.integers("dimensions")
    block = attrs.integers("block")
    wide = b.convert(operands[0], f32)
    size = b.abs(wide)
    largest = _of_blocks(b, size, block) if block else b.reduce(size, dimensions, "maximum")
    scale = b.binary("maximum", largest / attrs.number("limit"), SMALLEST_SCALE)
    if block:
        multiples = wide / spread_blocks(b, scale, block, wide.shape)
    else:
        kept = [dim for dim in range(wide.type.rank) if dim not in dimensions]
        multiples = wide / b.broadcast_in_dim(scale, wide.shape, kept)
    if dtype.is_integer:
        multiples = b.round_nearest_even(multiples)
    return [b.convert(multiples, dtype), scale]


def _of_blocks(b: Builder, x: Value, block: Sequence[int]) -> Value:
    """The largest number of each block; the last blocks are filled up with zeros."""
    parts: list[Dim] = []
    inner: list[int] = []
    high: list[int] = []
    for size, each in zip(x.shape, block, strict=True):
        if each == 1:
            parts.append(size)
            high.append(0)
            continue
        assert isinstance(size, int)
        count = -(-size // each)
        high.append(count * each - size)
        parts += [count, each]
        inner.append(len(parts) - 1)
    if any(high):
        x = b.pad(x, b.literal(0.0, x.dtype), [0] * len(high), high)
    return b.reduce(b.reshape(x, parts), inner, "maximum")


@decomposition
def rms_norm_quantize(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """The norm, then the numbers of its rows."""
    (normal,) = rms_norm(b, operands, attrs)
    rows = {"dimensions": (normal.type.rank - 1,), "block": ()}
    return quantize(b, [normal], attrs_of({**attrs, **rows}))


@decomposition
def dequantize(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """Computed in f32, a scale and a zero point spread over the elements of a block."""
    values, *facts = [b.convert(value, f32) for value in operands]
    scale, *zero = [spread_blocks(b, x, attrs.integers("block"), values.shape) for x in facts]
    steps = values - zero[0] if zero else values
    return [b.convert(steps * scale, attrs.element("dtype"))]


@decomposition
def quantize_rows(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """Computed in f32; a row of zeros is divided by a number that is not stored."""
    element, last = attrs.element("element"), operands[0].type.rank - 1
    wide, kept = b.convert(operands[0], f32), list(range(last))
    largest = b.reduce(b.abs(wide), [last], "maximum")
    divisor = b.binary("maximum", largest / attrs.number("limit"), SMALLEST_SCALE)
    multiples = wide / b.broadcast_in_dim(divisor, wide.shape, kept)
    if element.is_integer:
        multiples = b.round_nearest_even(multiples)
    zero = b.full(0, largest.type)
    scale = b.select(b.compare(largest, zero, "EQ"), zero, divisor)
    numbers = b.bitcast_convert(b.convert(multiples, element), u8)
    return [b.concatenate([numbers, b.bitcast_convert(scale, u8)], last)]


@decomposition
def dequantize_rows(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """Computed in f32."""
    (rows,), last = operands, operands[0].type.rank - 1
    size = rows.shape[last]
    numbers = b.slice_dim(rows, last, 0, size - SCALE_BYTES)
    scale = b.bitcast_convert(b.slice_dim(rows, last, size - SCALE_BYTES, size), f32)
    values = b.convert(b.bitcast_convert(numbers, attrs.element("element")), f32)
    spread = b.broadcast_in_dim(scale, values.shape, list(range(last)))
    return [b.convert(values * spread, attrs.element("dtype"))]


def spread_blocks(b: Builder, x: Value, block: Sequence[int], shape: Sequence[Dim]) -> Value:
    """Repeat each element of ``x`` over a block of ``shape``, whose last blocks may be short."""
    spread: list[Dim] = []
    places: list[int] = []
    joined: list[Dim] = []
    for size, each, count in zip(shape, block, x.shape, strict=True):
        places.append(len(spread))
        if each == 1:
            spread.append(count)
            joined.append(count)
        elif count == 1:
            spread.append(size)
            joined.append(size)
        else:
            spread += [count, each]
            joined.append(count * each)
    x = b.broadcast_in_dim(x, spread, places) if spread != list(x.shape) else x
    x = b.reshape(x, joined) if joined != spread else x
    return b.slice(x, [0] * len(joined), shape) if joined != list(shape) else x
