"""Rounding to nearest: values of a scheme and a scale for each block of a weight."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import numpy.typing as npt

from graphgen.passes.quantize.schemes import WeightScheme, limit

Floats = npt.NDArray[np.float32]

# As of the composite ``quantize``: the smallest normal f32, so that no channel has the scale 0.
_SMALLEST_SCALE = np.float32(2.0**-126)
# Largest exponents of the element and of the shared scale of OCP's MXFP4.
_MX_ELEMENT, _MX_SCALE = 2, 127
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


def quantize_to_nearest(weight: Floats, scheme: WeightScheme) -> QuantizedWeight:
    """Round each element to the nearest multiple of its block's scale.

    Args:
        weight: f32 [N,K], contracted over K.
        scheme: element type and blocks.
    """
    rows, columns = weight.shape
    scale = block_scales(weight, scheme)
    return QuantizedWeight(
        scheme, encode(weight / spread(scale, scheme, (rows, columns)), scheme), scale
    )


def block_scales(weight: Floats, scheme: WeightScheme) -> Floats:
    """Largest magnitude of each block over the scheme's limit, f32.

    MXFP4 has powers of two, ``2 ** (floor(log2(largest)) - 2)`` by the OCP Microscaling Formats
    specification 1.0, section 6.3.
    """
    rows, columns = weight.shape
    high, wide = scheme.block((rows, columns))
    tall = np.maximum.reduceat(np.abs(weight), np.arange(0, rows, high), axis=0)
    largest = np.maximum.reduceat(tall, np.arange(0, columns, wide), axis=1)
    if scheme.dtype == "mxfp4":
        exponent = np.frexp(largest)[1] - 1 - _MX_ELEMENT
        bound = np.clip(np.where(largest > 0, exponent, -_MX_SCALE), -_MX_SCALE, _MX_SCALE)
        return np.ldexp(np.float32(1), bound).astype(np.float32)
    scale = largest / np.float32(limit(scheme.dtype, scheme.scheme))
    return np.maximum(scale, _SMALLEST_SCALE)


def spread(scale: Floats, scheme: WeightScheme, shape: tuple[int, int]) -> Floats:
    """The scale of each element, f32 ``shape``."""
    for axis, (size, each) in enumerate(zip(shape, scheme.block(shape), strict=True)):
        counts = np.full(scale.shape[axis], each)
        counts[-1] = size - each * (len(counts) - 1)
        scale = np.repeat(scale, counts, axis=axis)
    return scale


def encode(multiples: Floats, scheme: WeightScheme) -> npt.NDArray[np.generic]:
    """The nearest values of the element type, ties to even; what is out of range is its end."""
    if scheme.dtype == "mxfp4":
        return np.clip(multiples, -6, 6).astype(STORED["mxfp4"])
    low, high = _LARGEST[scheme.dtype]
    if scheme.dtype.startswith("int"):
        multiples = np.rint(multiples)
    return np.clip(multiples, low, high).astype(STORED[scheme.dtype])


def round_trip(array: npt.NDArray[np.generic], contracted: int, scheme: WeightScheme) -> Floats:
    """A matrix as it is after quantization and back, f32 in its own shape.

    Args:
        array: a weight in any float type.
        contracted: the dimension of the inputs.
        scheme: element type and blocks.
    """
    weight = array.astype(np.float32)
    rows = weight if contracted == 1 else weight.T
    made = quantize_to_nearest(np.ascontiguousarray(rows), scheme).dequantized()
    return made if contracted == 1 else made.T
