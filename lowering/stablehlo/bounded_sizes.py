"""Sizes that are only bounded: annotations as of HLO's shapes, and types with their bounds."""

from __future__ import annotations

from collections.abc import Mapping

from graphgen.ir import TensorType, Value
from graphgen.ir.attrs import EMPTY
from graphgen.lowering.hlo.annotations import shape_annotation
from graphgen.lowering.hlo_proto.shape import HloShape, shape_of
from graphgen.lowering.hlo_text.hlo_shapes import parse_shape
from graphgen.lowering.mlir.mlir_types import type_text
from graphgen.ops.external import bounded_shape


def dynamic_sizes(value: Value) -> tuple[bool, ...]:
    """Per dimension of a value, whether its size is only bounded; empty where none is."""
    text = bounded_shape(value)
    return parse_shape(text).dynamic if text else ()


def value_type_text(value: Value) -> str:
    """Spell the type of a value, its bounds included."""
    owner = value.op or value
    return type_text(value.type, () if owner.annotations is EMPTY else dynamic_sizes(value))


def bounds_annotation(type_: TensorType, dynamic: tuple[bool, ...]) -> dict[str, str]:
    """The annotation of bounded sizes, which is that of HLO's shape; none without any."""
    if not dynamic:
        return {}
    whole = shape_of(type_)
    return shape_annotation(HloShape(whole.element, whole.dims, (), whole.layout, dynamic))


def without_bounds(annotations: Mapping[str, object]) -> dict[str, object]:
    """Annotations without bounds, which the types of a text state."""
    return {
        key: text
        for key, text in annotations.items()
        if not (key.endswith(".shape") and "<=" in str(text))
    }
