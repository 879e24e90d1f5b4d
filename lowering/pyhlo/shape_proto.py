"""Shapes as programs read them back: the fields of protobuf's ShapeProto and ProgramShapeProto."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from graphgen.lowering.hlo.proto.fields import ELEMENT_TYPES
from graphgen.lowering.hlo.proto.shape import HloShape, write_shape


@dataclass(frozen=True, slots=True)
class ShapeProto:
    """One shape.

    Attributes:
        element_type: the number of XLA's PrimitiveType.
        dimensions: sizes of the dimensions of an array.
        tuple_shapes: shapes of the elements of a tuple.
        shape: the shape itself.
    """

    element_type: int
    dimensions: tuple[int, ...]
    tuple_shapes: tuple[ShapeProto, ...]
    shape: HloShape = field(compare=False, repr=False)

    def SerializeToString(self) -> bytes:  # noqa: N802 (protobuf's name of it)
        """The bytes, under protobuf's name."""
        return write_shape(self.shape)


@dataclass(frozen=True, slots=True)
class ProgramShapeProto:
    """The shapes of a program.

    Attributes:
        parameters: one shape each, in order.
        result: one array, or the tuple of all.
        parameter_names: one each.
    """

    parameters: tuple[ShapeProto, ...]
    result: ShapeProto
    parameter_names: tuple[str, ...]


def shape_proto(shape: HloShape) -> ShapeProto:
    """Make the fields of a shape."""
    members: Sequence[HloShape] = shape.members
    inner = tuple([shape_proto(member) for member in members])
    return ShapeProto(ELEMENT_TYPES[shape.element], shape.dims, inner, shape)
