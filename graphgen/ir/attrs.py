"""Static data of an op: plain immutable Python values, interned so that equal sets are one object.

Identity of the attribute set is what makes checking thousands of identical layers cheap: an
inference result is looked up by ``(op, attrs, operand types)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from graphgen.errors import GraphgenError
from graphgen.ir.dims import Dim
from graphgen.ir.dtype import DType, decode, decode_complex, encode
from graphgen.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant's elements, row-major little-endian; one element stands for a scalar.

    Attributes:
        dtype: element type.
        shape: static sizes.
        data: ``product(shape) * dtype.bytes`` bytes; a read-only view where they lie in a file.
    """

    dtype: DType
    shape: tuple[int, ...]
    data: bytes | memoryview

    def __reduce__(self) -> tuple[type[Literal], tuple[DType, tuple[int, ...], bytes]]:
        return Literal, (self.dtype, self.shape, bytes(self.data))

    @staticmethod
    def of(dtype: DType, value: object) -> Literal:
        """Make a literal from a Python number or nested lists of them (GG0104 if ragged)."""
        shape = tuple(_shape_of(value))
        flat = list(_flatten(value, shape))
        return Literal(dtype, shape, b"".join(encode(dtype, item) for item in flat))

    def values(self) -> list[bool | int | float]:
        """The elements in row-major order as Python values (GG0104 for complex numbers)."""
        return decode(self.dtype, bytes(self.data))

    def complex_values(self) -> list[complex]:
        """The elements of a complex literal in row-major order."""
        return decode_complex(self.dtype, bytes(self.data))


def _shape_of(value: object) -> Iterator[int]:
    while isinstance(value, list | tuple):
        yield len(value)  # pyright: ignore[reportUnknownArgumentType]
        if not value:
            return
        value = value[0]  # pyright: ignore[reportUnknownVariableType]


def _flatten(value: object, shape: tuple[int, ...]) -> Iterator[bool | int | float | complex]:
    if not shape:
        if not isinstance(value, bool | int | float | complex):
            raise GraphgenError("GG0104", f"{value!r} is not a number")
        yield value
        return
    if not isinstance(value, list | tuple) or len(value) != shape[0]:  # pyright: ignore[reportUnknownArgumentType]
        raise GraphgenError("GG0104", "a literal's nested lists are ragged")
    for item in value:  # pyright: ignore[reportUnknownVariableType]
        yield from _flatten(item, shape[1:])  # pyright: ignore[reportUnknownArgumentType]


AttrScalar = bool | int | float | str | Dim | DType | Literal
AttrValue = (
    AttrScalar
    | tuple[Dim, ...]
    | tuple[str, ...]
    | tuple[tuple[int, ...], ...]
    | tuple[TensorType, ...]
)


class Attrs(Mapping[str, AttrValue]):
    """An immutable, interned attribute set; compare with ``is``."""

    __slots__ = ("_items",)

    def __init__(self, items: dict[str, AttrValue]) -> None:
        self._items = items

    def __getitem__(self, key: str) -> AttrValue:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return repr(self._items)

    def __reduce__(self) -> tuple[Callable[..., Attrs], tuple[dict[str, AttrValue]]]:
        return attrs_of, (self._items,)

    # Interned: identity is equality, and the C slots of object are what makes look-ups fast.
    __hash__ = object.__hash__  # pyright: ignore[reportAssignmentType]
    __eq__ = object.__eq__

    def integer(self, key: str) -> int:
        """The attribute ``key``, an int."""
        value = self._items[key]
        assert isinstance(value, int), key
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        """The attribute ``key``, a tuple of ints."""
        value = self._items[key]
        assert isinstance(value, tuple), key
        return tuple([item for item in value if isinstance(item, int)])

    def dim(self, key: str) -> Dim:
        """The attribute ``key``, a dimension."""
        return self._items[key]  # pyright: ignore[reportReturnType]

    def dims(self, key: str) -> tuple[Dim, ...]:
        """The attribute ``key``, a tuple of dimensions."""
        return self._items[key]  # pyright: ignore[reportReturnType]

    def groups(self, key: str) -> tuple[tuple[int, ...], ...]:
        """The attribute ``key``, a tuple of int tuples (replica groups)."""
        return self._items[key]  # pyright: ignore[reportReturnType]

    def types(self, key: str) -> tuple[TensorType, ...]:
        """The attribute ``key``, a tuple of types."""
        return self._items[key]  # pyright: ignore[reportReturnType]

    def names(self, key: str) -> tuple[str, ...]:
        """The attribute ``key``, a tuple of words."""
        return self._items[key]  # pyright: ignore[reportReturnType]

    def number(self, key: str) -> float:
        """The attribute ``key``, a float."""
        value = self._items[key]
        assert isinstance(value, float), key
        return value

    def text(self, key: str) -> str:
        """The attribute ``key``, a string."""
        value = self._items[key]
        assert isinstance(value, str), key
        return value

    def element(self, key: str) -> DType:
        """The attribute ``key``, an element type."""
        value = self._items[key]
        assert isinstance(value, DType), key
        return value

    def literal(self, key: str) -> Literal:
        """The attribute ``key``, a literal."""
        value = self._items[key]
        assert isinstance(value, Literal), key
        return value


def _kind(value: AttrValue) -> object:
    """A key that separates values equal in Python: 1, 1.0 and True, 0.0 and -0.0."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, tuple):
        return tuple(map(type, value))
    return type(value)


_interned: dict[tuple[tuple[str, object, AttrValue], ...], Attrs] = {}


def attrs_of(items: Mapping[str, AttrValue]) -> Attrs:
    """The interned attribute set with these items, in this order."""
    if not items:
        return EMPTY
    key = tuple([(name, _kind(value), value) for name, value in items.items()])
    found = _interned.get(key)
    if found is None:
        found = _interned[key] = Attrs(dict(items))
    return found


EMPTY = _interned[()] = Attrs({})
