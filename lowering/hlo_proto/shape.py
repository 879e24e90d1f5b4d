"""HLO shapes: arrays with a layout, tuples, tokens; as protobuf and as text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from graphgen.errors import GraphgenError
from graphgen.ir import TensorType, dtype, tensor
from graphgen.lowering.hlo_proto.fields import ELEMENT_NAMES, ELEMENT_TYPES, LayoutField, ShapeField
from graphgen.lowering.hlo_proto.layout_rest import layout_rest, show_layout_rest
from graphgen.lowering.hlo_proto.wire import Message, delimited, integer, integers

# The size of a dimension without a bound, in HLO's protobufs.
UNBOUNDED = -(1 << 63)
# Upper bound of the nesting depth of tuples.
MOST_NESTING = 32


@dataclass(frozen=True, slots=True)
class HloShape:
    """One shape.

    Attributes:
        element: HLO's name of the element type, or ``tuple``, ``token``, ``opaque``.
        dims: sizes of an array's dimensions; the upper bound of a dynamic one.
        members: of a tuple.
        layout: dimensions from minor to major; ``None`` where the file has none.
        dynamic: per dimension, if it is dynamic; empty where none is.
        rest: of the layout: tiles, memory space and more, as encoded fields.
    """

    element: str
    dims: tuple[int, ...] = ()
    members: tuple[HloShape, ...] = ()
    layout: tuple[int, ...] | None = None
    dynamic: tuple[bool, ...] = ()
    rest: bytes = b""

    @property
    def is_tuple(self) -> bool:
        """True for a tuple."""
        return self.element == "tuple"

    @property
    def leaves(self) -> tuple[HloShape, ...]:
        """The arrays, tokens and opaque types in it, from left to right."""
        if not self.is_tuple:
            return (self,)
        return tuple(leaf for member in self.members for leaf in member.leaves)

    @property
    def type(self) -> TensorType:
        """The IR's type (GG0101 for an element type that the IR does not have)."""
        return _tensor(self.element, self.dims)

    @property
    def in_order(self) -> bool:
        """True for a row-major layout, the only one in files for Neuron."""
        return self.layout is None or self.layout == tuple(reversed(range(len(self.dims))))

    @property
    def text(self) -> str:
        """HLO's spelling with layout: ``f32[2,3]{1,0}``, ``(f32[2]{0}, s32[])``."""
        if self.is_tuple:
            return f"({', '.join([member.text for member in self.members])})"
        if self.element in ("token", "opaque"):
            return f"{self.element}[]"
        marks = self.dynamic or (False,) * len(self.dims)
        sizes = ",".join([_size(d, mark) for d, mark in zip(self.dims, marks, strict=False)])
        rest = show_layout_rest(self.rest) if self.rest else ""
        order = ",".join(map(str, self.layout or ()))
        layout = f"{{{order}{rest}}}" if self.layout or rest else ""
        return f"{self.element}[{sizes}]{layout}"


def _size(size: int, dynamic: bool) -> str:
    if size == UNBOUNDED:
        return "?"
    return f"<={size}" if dynamic else str(size)


@lru_cache(maxsize=4096)
def _tensor(element: str, dims: tuple[int, ...]) -> TensorType:
    return tensor(dtype(element), dims)


@lru_cache(maxsize=4096)
def read_shape(data: bytes) -> HloShape:
    """Decode a ShapeProto; cached by its bytes, because layers repeat (GG0801, GG0101)."""
    return _read(Message(data), MOST_NESTING)


def _read(message: Message, depth: int) -> HloShape:
    number = message.integer(ShapeField.ELEMENT_TYPE)
    element = ELEMENT_NAMES.get(number)
    if element is None:
        raise GraphgenError("GG0101", f"HLO element type {number} is unknown")
    if element == "tuple":
        if depth == 0:
            raise GraphgenError("GG0801", f"tuples are nested deeper than {MOST_NESTING}")
        members = message.messages(ShapeField.TUPLE_SHAPES)
        return HloShape(element, members=tuple([_read(item, depth - 1) for item in members]))
    dims = message.integers(ShapeField.DIMENSIONS)
    if any(size < 0 and size != UNBOUNDED for size in dims):
        raise GraphgenError("GG0801", f"a shape has the dimensions {list(dims)}")
    layout = message.message(ShapeField.LAYOUT)
    order = layout.integers(LayoutField.MINOR_TO_MAJOR) if layout else None
    if order and sorted(order) != list(range(len(dims))):
        raise GraphgenError("GG0801", f"layout {list(order)} of {len(dims)} dimensions")
    marks = tuple(map(bool, message.integers(ShapeField.IS_DYNAMIC)))
    rest = layout_rest(layout) if layout else b""
    return HloShape(element, dims, (), order, marks if any(marks) else (), rest)


def write_shape(shape: HloShape, *, layout: bool = True) -> bytes:
    """Encode a ShapeProto; with its layout, row-major by default, unless ``layout`` is false.

    Raises:
        GraphgenError: GG0401 for an element type that HLO does not have, such as a quantized one.
    """
    number = ELEMENT_TYPES.get(shape.element)
    if number is None:
        what = f"HLO has no element type {shape.element}"
        raise GraphgenError("GG0401", what, help="write StableHLO instead")
    out = integer(ShapeField.ELEMENT_TYPE, number)
    if shape.is_tuple:
        inner = [write_shape(member, layout=layout) for member in shape.members]
        return out + b"".join([delimited(ShapeField.TUPLE_SHAPES, item) for item in inner])
    if shape.element in ("token", "opaque"):
        return out
    out += integers(ShapeField.DIMENSIONS, shape.dims)
    if layout:
        order = shape.layout or tuple(reversed(range(len(shape.dims))))
        inner = integers(LayoutField.MINOR_TO_MAJOR, order)
        # Of a field given twice, the last value holds.
        inner += integer(LayoutField.TAIL_PADDING, 1) + shape.rest
        out += delimited(ShapeField.LAYOUT, inner)
    dynamic = shape.dynamic or (False,) * len(shape.dims)
    return out + integers(ShapeField.IS_DYNAMIC, dynamic)


_whole: dict[TensorType, bytes] = {}


def type_bytes(type_: TensorType) -> bytes:
    """The ShapeProto of a row-major array, encoded once per type."""
    found = _whole.get(type_)
    if found is None:
        found = _whole[type_] = write_shape(shape_of(type_))
    return found


def shape_of(type_: TensorType) -> HloShape:
    """The shape of a row-major array (GG0106 while a symbol is unbound)."""
    return HloShape(type_.dtype.name, type_.dims, (), tuple(reversed(range(type_.rank))))


def tuple_of(types: list[TensorType] | tuple[TensorType, ...]) -> HloShape:
    """The tuple of these arrays."""
    return HloShape("tuple", members=tuple([shape_of(type_) for type_ in types]))
