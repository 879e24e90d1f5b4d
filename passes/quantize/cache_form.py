"""Types and conversions of caches in 8 bits: of the numbers alone, or with a scale for each row."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import DType, TensorType, Value, tensor
from graphgen.ir.dtype import f8e4m3, f8e5m2, lowest, s8

NO_SCALE = "none"
CACHE_SCALES = (NO_SCALE,)
# Neuron's f8e4m3, which ends at 240. No checkpoint holds caches, so nothing asks for OCP's type.
CACHE_ELEMENTS: dict[str, DType] = {"f8e4m3": f8e4m3, "f8e5m2": f8e5m2, "int8": s8}


@dataclass(frozen=True, slots=True)
class CacheForm:
    """A form that keys and values are kept in.

    Attributes:
        element: of the numbers.
        scale: what has a scale of its own.
    """

    element: DType
    scale: str

    @property
    def label(self) -> str:
        """In names of pack functions."""
        return self.element.name

    def stored(self, plain: TensorType) -> TensorType:
        """The type of a cache [R,M,K,D] in this form."""
        return tensor(self.element, plain.shape)

    def narrow(self, b: Builder, x: Value) -> Value:
        """Numbers ``x`` [B,S,K,D] as they are kept; what is too large becomes the largest."""
        ends = [b.literal(sign * lowest(self.element), x.dtype) for sign in (1, -1)]
        return b.convert(b.clamp(ends[0], x, ends[1]), self.element)

    def widen(self, b: Builder, x: Value, dtype: DType) -> Value:
        """Stored numbers as those of ``dtype``."""
        return b.convert(x, dtype)
