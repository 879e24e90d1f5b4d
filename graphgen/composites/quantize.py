"""Decomposition of ``quantize``: 8-bit numbers and their scales."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import Attrs, Value
from graphgen.ir.dtype import f32

# The smallest normal f32: the scale of a channel of zeros must not be 0.
SMALLEST_SCALE = 2.0**-126


def quantize(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """Computed in f32; the conversion to integers saturates."""
    dtype, dimensions = attrs.element("dtype"), attrs.integers("dimensions")
    wide = b.convert(operands[0], f32)
    largest = b.reduce(b.abs(wide), dimensions, "maximum")
    scale = b.binary("maximum", largest / attrs.number("limit"), SMALLEST_SCALE)
    kept = [dim for dim in range(wide.type.rank) if dim not in dimensions]
    multiples = wide / b.broadcast_in_dim(scale, wide.shape, kept)
    if dtype.is_integer:
        multiples = b.round_nearest_even(multiples)
    return [b.convert(multiples, dtype), scale]
