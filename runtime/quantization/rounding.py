"""Rounding to nearest: values of a scheme and a scale for each block of a weight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import numpy.typing as npt

from graphgen.passes.quantization.schemes import WeightScheme, limit

Floats = npt.NDArray[np.float32]

# As of the composite ``quantize``: the smallest normal f32, so that no channel has the scale 0.
_SMALLEST_SCALE = np.float32(2.0**-126)
# Largest exponents of the element and of the shared scale of OCP's MXFP4.
_MX_ELEMENT, _MX_SCALE = 2, 127
# Elements that are widened at a time.
_SLAB = 1 << 20
_LARGEST = {"int8": (-128, 127), "int4": (-8, 7), "f8e4m3": (-240, 240), "f8e5m2": (-57344, 57344)}
STORED: dict[str, np.dtype[np.generic]] = {
    "int8": np.dtype(np.int8),
    "int4": np.dtype(np.int8),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "mxfp4": np.dtype(ml_dtypes.float4_e2m1fn),
}


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """A weight [N,K] as values and scales.

    Attributes:
        scheme: how it was quantized.
        values: [N,K], 4-bit integers as int8.
        scale: f32, one element a block.
    """

    scheme: WeightScheme
    values: npt.NDArray[np.generic]
    scale: Floats

    def dequantized(self) -> Floats:
        """``values * scale``, f32 [N,K]."""
        rows, columns = self.values.shape
        return self.values.astype(np.float32) * spread(self.scale, self.scheme, (rows, columns))


def quantize_to_nearest(weight: npt.NDArray[np.generic], scheme: WeightScheme) -> QuantizedWeight:
    """Round each element to the nearest multiple of its block's scale.

    Some rows at a time are widened to f32; beside the weight, only the values are in memory.

    Args:
        weight: [N,K] of any float type, contracted over K.
        scheme: element type and blocks.
    """
    rows, columns = weight.shape
    high, _ = scheme.block((rows, columns))
    scale = block_scales(weight, scheme)
    values = np.empty((rows, columns), STORED[scheme.dtype])
    for start, stop in _slabs(rows, columns, high):
        part = weight[start:stop].astype(np.float32)
        own = scale if high == rows else scale[start // high : -(-stop // high)]
        part /= _spread(own, (high, scheme.block((rows, columns))[1]), (stop - start, columns))
        values[start:stop] = encode(part, scheme)
    return QuantizedWeight(scheme, values, scale)


def _slabs(rows: int, columns: int, high: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows of a few megabytes, in whole blocks where there are several."""
    step = max(_SLAB // columns, 1)
    if high < rows:
        step = -(-step // high) * high
    for start in range(0, rows, step):
        yield start, min(start + step, rows)


def block_scales(weight: npt.NDArray[np.generic], scheme: WeightScheme) -> Floats:
    """Largest magnitude of each block over the scheme's limit, f32.

    MXFP4 has powers of two, ``2 ** (floor(log2(largest)) - 2)`` by the OCP Microscaling Formats
    specification 1.0, section 6.3.
    """
    rows, columns = weight.shape
    high, wide = scheme.block((rows, columns))
    parts = [
        _largest(weight[start:stop].astype(np.float32), high, wide)
        for start, stop in _slabs(rows, columns, high)
    ]
    whole = high == rows
    largest = np.max(parts, axis=0) if whole else np.concatenate(parts)
    if scheme.dtype == "mxfp4":
        exponent = np.frexp(largest)[1] - 1 - _MX_ELEMENT
        bound = np.clip(np.where(largest > 0, exponent, -_MX_SCALE), -_MX_SCALE, _MX_SCALE)
        return np.ldexp(np.float32(1), bound).astype(np.float32)
    scale = largest / np.float32(limit(scheme.dtype, scheme.scheme))
    return np.maximum(scale, _SMALLEST_SCALE)


def _largest(part: Floats, high: int, wide: int) -> Floats:
    """The largest magnitude of each block of some rows."""
    np.abs(part, out=part)
    rows, columns = part.shape
    tall = np.maximum.reduceat(part, starts(rows, high), axis=0)
    return np.maximum.reduceat(tall, starts(columns, wide), axis=1)


def starts(size: int, each: int) -> npt.NDArray[np.intp]:
    """The index of the first element of each block along a dimension."""
    return np.array(range(0, size, each), np.intp)


def spread(scale: Floats, scheme: WeightScheme, shape: tuple[int, int]) -> Floats:
    """The scale of each element, f32 ``shape``."""
    return _spread(scale, scheme.block(shape), shape)


def _spread(scale: Floats, block: tuple[int, int], shape: tuple[int, int]) -> Floats:
    """The same; one row or column of scales is for all rows or columns."""
    for axis, (size, each) in enumerate(zip(shape, block, strict=True)):
        if scale.shape[axis] > 1 and each > 1:
            counts = np.full(scale.shape[axis], each)
            counts[-1] = size - each * (len(counts) - 1)
            scale = np.repeat(scale, counts, axis=axis)
    return np.broadcast_to(scale, shape)


def encode(multiples: Floats, scheme: WeightScheme) -> npt.NDArray[np.generic]:
    """The nearest values of the element type, ties to even; what is out of range is its end."""
    if scheme.dtype == "mxfp4":
        return np.clip(multiples, -6, 6).astype(STORED["mxfp4"])
    low, high = _LARGEST[scheme.dtype]
    if scheme.dtype.startswith("int"):
        multiples = np.rint(multiples)
    return np.clip(multiples, low, high).astype(STORED[scheme.dtype])


def round_trip(array: npt.NDArray[np.generic], contracted: int, scheme: WeightScheme) -> Floats:
    """A matrix, or each of a stack, as it is after quantization and back, f32 in its own shape.

    Args:
        array: a weight in any float type.
        contracted: the dimension of the inputs.
        scheme: element type and blocks.
    """
    if array.ndim == 3:
        return np.stack([round_trip(matrix, contracted - 1, scheme) for matrix in array])
    made = quantize_to_nearest(array if contracted == 1 else array.T, scheme).dequantized()
    return made if contracted == 1 else made.T
