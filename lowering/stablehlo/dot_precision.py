"""Precision and algorithm of a product: StableHLO's attributes, as annotations in HLO's words."""

from __future__ import annotations

import re
from collections.abc import Mapping

from graphgen.lowering.mlir.syntax_tree import DialectAttr, MlirAttr, MlirOp, TypeAttr, word_of

PRECISION, ALGORITHM = "hlo.operand_precision", "hlo.algorithm"
_FIELDS = (
    *("lhs_precision_type", "rhs_precision_type", "accumulation_type", "lhs_component_count"),
    *("rhs_component_count", "num_primitive_operations", "allow_imprecise_accumulation"),
)
# HLO's name -> types of the operands and of the sum, parts of each operand, products, if fast.
_ALGORITHMS = {
    "dot_any_f8_any_f8_f32": ("f8E5M2", "f8E5M2", "f32", 1, 1, 1, False),
    "dot_any_f8_any_f8_f32_fast_accum": ("f8E5M2", "f8E5M2", "f32", 1, 1, 1, True),
    "dot_f16_f16_f16": ("f16", "f16", "f16", 1, 1, 1, False),
    "dot_f16_f16_f32": ("f16", "f16", "f32", 1, 1, 1, False),
    "dot_bf16_bf16_bf16": ("bf16", "bf16", "bf16", 1, 1, 1, False),
    "dot_bf16_bf16_f32": ("bf16", "bf16", "f32", 1, 1, 1, False),
    "dot_bf16_bf16_f32_x3": ("bf16", "bf16", "f32", 1, 1, 3, False),
    "dot_bf16_bf16_f32_x6": ("bf16", "bf16", "f32", 1, 1, 6, False),
    "dot_bf16_bf16_f32_x9": ("bf16", "bf16", "f32", 1, 1, 9, False),
    "dot_tf32_tf32_f32": ("tf32", "tf32", "f32", 1, 1, 1, False),
    "dot_tf32_tf32_f32_x3": ("tf32", "tf32", "f32", 1, 1, 3, False),
    "dot_f32_f32_f32": ("f32", "f32", "f32", 1, 1, 1, False),
    "dot_f64_f64_f64": ("f64", "f64", "f64", 1, 1, 1, False),
}
_BY_FIELDS: dict[tuple[object, ...], str] = {fields: name for name, fields in _ALGORITHMS.items()}


def precision_notes(node: MlirOp) -> dict[str, str]:
    """The annotations of a product; an algorithm that HLO has no name for is left unread."""
    found: dict[str, str] = {}
    config = node.attrs.get("precision_config", ())
    words = [word_of(item).lower() for item in config] if isinstance(config, tuple) else []
    if set(words) - {"default", ""}:
        found[PRECISION] = "{" + ",".join(words) + "}"
    algorithm = node.attrs.peek("algorithm")
    name = _BY_FIELDS.get(_fields(algorithm))
    if name is not None:
        node.attrs.get("algorithm")
        found[ALGORITHM] = name
    return found


def _fields(value: MlirAttr | None) -> tuple[object, ...]:
    given = value.fields if isinstance(value, DialectAttr) else {}
    items = [given.get(key) for key in _FIELDS]
    return tuple([item.text if isinstance(item, TypeAttr) else item for item in items])


def precision_texts(annotations: Mapping[str, object]) -> list[tuple[str, str]]:
    """The attributes that the annotations of a product are written as."""
    found: list[tuple[str, str]] = []
    if PRECISION in annotations:
        words = re.findall(r"\w+", str(annotations[PRECISION]))
        items = ", ".join([f"#stablehlo<precision {word.upper()}>" for word in words])
        found.append(("precision_config", f"[{items}]"))
    fields = _ALGORITHMS.get(str(annotations.get(ALGORITHM, "")))
    if fields is not None:
        pairs = zip(_FIELDS, fields, strict=True)
        shown = ", ".join(
            [
                f"{key} = {str(value).lower() if isinstance(value, bool) else value}"
                for key, value in pairs
            ]
        )
        found.append(("algorithm", f"#stablehlo.dot_algorithm<{shown}>"))
    return found
