"""Types and conversions of caches in 8 bits: casts, fixed scales, or a scale a row."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from graphgen.build import Builder
from graphgen.ir import DType, TensorType, Value, tensor
from graphgen.ir.dtype import f8e4m3, f8e4m3fn, f8e5m2, f32, lowest, s8, u8
from graphgen.ops.quantization import SCALE_BYTES
from graphgen.passes.quantization.cache_ranges import Magnitudes

NO_SCALE, PER_TOKEN = "none", "per_token"
PER_TENSOR, PER_KEY, PER_CHANNEL = FIXED_SCALES = ("per_tensor", "per_key", "per_channel")
# Neuron's f8e4m3 ends at 240, OCP's f8e4m3fn at 448.
CACHE_ELEMENTS: dict[str, DType] = {
    "f8e4m3": f8e4m3,
    "f8e5m2": f8e5m2,
    "int8": s8,
    "f8e4m3fn": f8e4m3fn,
}


def limit_of(element: DType) -> float:
    """The largest number that caches use of a type; of integers as many below zero as above."""
    return float(-lowest(element)) - (1 if element.is_integer else 0)


def stored_type(plain: TensorType, element: DType, scale: str) -> TensorType:
    """The type of a cache [R,M,K,D] in numbers of ``element``; a scale a token ends its row."""
    if scale != PER_TOKEN:
        return tensor(element, plain.shape)
    *rest, size = plain.shape
    return tensor(u8, (*rest, size + SCALE_BYTES))


class CacheForm(Protocol):
    """A form that keys and values are kept in."""

    @property
    def label(self) -> str:
        """In names of pack functions; states of one label share them."""
        ...

    def stored(self, plain: TensorType) -> TensorType:
        """The type of a cache [R,M,K,D] in this form."""
        ...

    def narrow(self, b: Builder, x: Value) -> Value:
        """Numbers ``x`` [..., K,D] as they are kept; what is too large becomes the largest."""
        ...

    def widen(self, b: Builder, x: Value, dtype: DType) -> Value:
        """Stored numbers as those of ``dtype``."""
        ...


@dataclass(frozen=True, slots=True)
class Cast:
    """Numbers as they are, in the narrow type.

    Attributes:
        element: of the numbers.
    """

    element: DType

    @property
    def label(self) -> str:
        """See :class:`CacheForm`."""
        return self.element.name

    def stored(self, plain: TensorType) -> TensorType:
        """See :class:`CacheForm`."""
        return stored_type(plain, self.element, NO_SCALE)

    def narrow(self, b: Builder, x: Value) -> Value:
        """See :class:`CacheForm`."""
        return clamped(b, x, self.element)

    def widen(self, b: Builder, x: Value, dtype: DType) -> Value:
        """See :class:`CacheForm`."""
        return b.convert(x, dtype)


def clamped(b: Builder, x: Value, element: DType, limit: float = 0.0) -> Value:
    """``x`` in the narrow type, its largest number (or ``limit``) for what is beyond it."""
    limit = limit or limit_of(element)
    ends = [b.literal(end, x.dtype) for end in (-limit, limit)]
    x = b.clamp(ends[0], x, ends[1])
    return b.convert(b.round_nearest_even(x) if element.is_integer else x, element)


@dataclass(frozen=True, slots=True)
class PerRow:
    """Rows of numbers that end in their scale: one a token and head.

    Attributes:
        element: of the numbers.
    """

    element: DType

    @property
    def label(self) -> str:
        """See :class:`CacheForm`."""
        return f"{self.element.name}.{PER_TOKEN}"

    def stored(self, plain: TensorType) -> TensorType:
        """See :class:`CacheForm`."""
        return stored_type(plain, self.element, PER_TOKEN)

    def narrow(self, b: Builder, x: Value) -> Value:
        """See :class:`CacheForm`."""
        return b.op("quantize_rows", x, element=self.element, limit=limit_of(self.element))

    def widen(self, b: Builder, x: Value, dtype: DType) -> Value:
        """See :class:`CacheForm`."""
        return b.op("dequantize_rows", x, element=self.element, dtype=dtype)


@dataclass(frozen=True, slots=True)
class Scaled:
    """Numbers over scales that were found beforehand, which are constants of the programs.

    Attributes:
        element: of the numbers.
        name: of the state.
        scales: f32 values: a number, [K] or [K,D].
    """

    element: DType
    name: str
    scales: float | Sequence[float] | Sequence[Sequence[float]]

    @property
    def label(self) -> str:
        """See :class:`CacheForm`."""
        return f"{self.element.name}.{self.name}"

    def stored(self, plain: TensorType) -> TensorType:
        """See :class:`CacheForm`."""
        return stored_type(plain, self.element, PER_CHANNEL)

    def narrow(self, b: Builder, x: Value) -> Value:
        """See :class:`CacheForm`."""
        return clamped(b, b.divide(b.convert(x, f32), self._spread(b, x)), self.element)

    def widen(self, b: Builder, x: Value, dtype: DType) -> Value:
        """See :class:`CacheForm`."""
        return b.convert(b.multiply(b.convert(x, f32), self._spread(b, x)), dtype)

    def _spread(self, b: Builder, x: Value) -> Value:
        """The scales of each element of ``x`` [..., K,D]."""
        scale = b.literal(self.scales, f32)
        heads = x.type.rank - 2
        return b.broadcast_in_dim(scale, x.shape, list(range(heads, heads + scale.type.rank)))


def scales_of(
    magnitudes: Magnitudes, scale: str, element: DType
) -> float | list[float] | list[list[float]]:
    """The scales that take the largest magnitudes to the largest number of the type.

    Args:
        magnitudes: of a cache, for each head its channels [K][D].
        scale: what has one of its own: ``per_tensor``, ``per_key`` (a head) or ``per_channel``.
        element: the type.

    Returns:
        A number, [K] or [K][D]; 1 where all was zero.
    """
    limit = limit_of(element)
    heads = [max(channels) for channels in magnitudes]
    if scale == PER_TENSOR:
        return scale_of(max(heads), limit)
    if scale == PER_KEY:
        return [scale_of(head, limit) for head in heads]
    return [[scale_of(channel, limit) for channel in channels] for channels in magnitudes]


def scale_of(largest: float, limit: float) -> float:
    """The scale, f32, that takes ``largest`` to ``limit``; 1 where all was zero."""
    return _f32_from(largest / limit) if largest > 0 else 1.0


def _f32_from(value: float) -> float:
    """The least f32 that is not below ``value``: what was measured is never clamped."""
    bits = int.from_bytes(struct.pack("<f", value), "little")
    near = _f32_of(bits)
    return near if near >= value else _f32_of(bits + 1)


def _f32_of(bits: int) -> float:
    return float(struct.unpack("<f", bits.to_bytes(4, "little"))[0])
