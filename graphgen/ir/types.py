"""Tensor types, interned: equality is identity, and the printed text is made once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import cast

from graphgen.errors import GraphgenError
from graphgen.ir.dims import Dim, Poly, Shape, bind, product
from graphgen.ir.dtype import DType


class TensorType:
    """Shape and element type of a value; make it with :func:`tensor`.

    Attributes:
        shape: the dimensions, each an int or a :class:`~graphgen.ir.dims.Poly`.
        dtype: the element type.
        text: as printed, e.g. ``bf16[B,S,576]``.
    """

    __slots__ = ("_nbytes", "_size", "dtype", "shape", "static", "text")

    def __init__(self, shape: Shape, dtype: DType) -> None:
        self.shape = shape
        self.dtype = dtype
        self.text = f"{dtype.name}[{','.join(map(str, shape))}]"
        self.static = not any(isinstance(dim, Poly) for dim in shape)
        # Types are few and asked often.
        self._size = product(shape)
        self._nbytes = self._size * dtype.bytes if isinstance(self._size, int) else 0

    def __repr__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[Callable[[DType, Shape], TensorType], tuple[DType, Shape]]:
        return tensor, (self.dtype, self.shape)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def text_name(self) -> str:
        """The text in letters a function's name may have: ``bf16.2x8``."""
        element = re.sub(r"\W+", "_", self.dtype.name).strip("_")
        return f"{element}.{'x'.join(map(str, self.shape))}"

    @property
    def size(self) -> Dim:
        """Number of elements."""
        return self._size

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape as ints.

        Raises:
            GraphgenError: GG0106 while a symbol is unbound.
        """
        if not self.static:
            raise self._unbound()
        return cast(tuple[int, ...], self.shape)

    @property
    def nbytes(self) -> int:
        """Dense size in bytes; needs a static shape (GG0106)."""
        if not self.static:
            raise self._unbound()
        return self._nbytes

    def _unbound(self) -> GraphgenError:
        return GraphgenError(
            "GG0106",
            f"{self.text} has unbound symbols",
            help="bind them first, e.g. with the pass specialize{context=[128]}",
        )

    def bind(self, values: Mapping[str, Dim]) -> TensorType:
        """The same type with the symbols in ``values`` replaced."""
        if self.static:
            return self
        return tensor(self.dtype, [bind(dim, values) for dim in self.shape])


_interned: dict[tuple[DType, Shape], TensorType] = {}


def tensor(dtype: DType, shape: Iterable[Dim] = ()) -> TensorType:
    """The interned tensor type of this element type and shape.

    Raises:
        GraphgenError: GG0102 for a negative size, or what is neither an int nor a polynomial;
            GG0101 for anything but an element type.
    """
    key = (dtype, tuple(shape))
    found = _interned.get(key)
    if found is None:
        if not isinstance(cast(object, dtype), DType):
            raise GraphgenError(
                "GG0101", f"{dtype!r} is not an element type", help="such as graphgen.dtype('f32')"
            )
        for dim in key[1]:
            if not (type(dim) is int or isinstance(dim, Poly)):
                raise GraphgenError("GG0102", f"{dim!r} is not a dimension, in {list(key[1])}")
            if isinstance(dim, int) and dim < 0:
                raise GraphgenError("GG0102", f"negative dimension {dim} in {list(key[1])}")
        found = _interned[key] = TensorType(key[1], dtype)
    return found
