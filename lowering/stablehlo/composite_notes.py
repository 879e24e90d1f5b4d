"""Composites of StableHLO: calls of their decomposition, annotated as HLO has them."""

from __future__ import annotations

from collections.abc import Mapping

from graphgen.ir import Op
from graphgen.lowering.hlo.annotations import FRONTEND, frontend_map, frontend_text
from graphgen.lowering.mlir.mlir_attributes import read_dict
from graphgen.lowering.mlir.mlir_parser import ReadRegion
from graphgen.lowering.mlir.mlir_types import string
from graphgen.lowering.mlir.syntax_tree import MlirOp
from graphgen.lowering.mlir.tokens import MlirTokens, unquoted
from graphgen.lowering.stablehlo.assembly import parse_types
from graphgen.lowering.stablehlo.op_row import integer_of

COMPOSITE = "hlo.is_composite"
_NAME, _ATTRIBUTES, _VERSION = "composite.name", "composite.attributes", "composite.version"


def composite_notes(node: MlirOp) -> dict[str, str]:
    """The annotations of a call that was a composite."""
    name = node.attrs.get("name", "")
    version = integer_of(node, "version") if "version" in node.attrs else 0
    node.attrs.get("composite_attributes")
    entries = {_NAME: name if isinstance(name, str) else "", _VERSION: str(version)}
    entries[_ATTRIBUTES] = node.attrs.text("composite_attributes") or "{}"
    return {COMPOSITE: "true", FRONTEND: frontend_text(entries)}


def parse_composite(t: MlirTokens, node: MlirOp, region: ReadRegion) -> None:
    """Parse ``"name" %a, %b {attributes} : (types) -> types``."""
    node.attrs["name"] = unquoted(t.need("string", "a name"))
    while t.kind == "value":
        node.operands.append(t.advance())
        t.take(",")
    if t.text == "{":
        node.attrs.add(read_dict(t))
    t.expect(":")
    node.types = parse_types(t, node)


def is_composite(op: Op) -> bool:
    """True for a call that is written as a composite."""
    return op.name == "call" and op.annotations.get(COMPOSITE) == "true"


def composite_text(op: Op, out: str, x: str, callee: str, types: str) -> str:
    """Write a call as the composite that it was.

    Args:
        op: the call.
        out: names of its results.
        x: names of its operands.
        callee: the symbol of its decomposition.
        types: its signature.
    """
    entries = frontend_map(op.annotations)
    attributes = entries.get(_ATTRIBUTES, "{}")
    inside = f"composite_attributes = {attributes}, " if attributes != "{}" else ""
    rest = f"decomposition = {callee}, version = {entries.get(_VERSION) or 0} : i32"
    name = string(entries.get(_NAME, ""))
    operands = f" {x}" if x else ""
    return f"{out} = stablehlo.composite {name}{operands} {{{inside}{rest}}} : {types}"


def without_composite(annotations: Mapping[str, object]) -> dict[str, object]:
    """The annotations of a call that its form as a composite does not say."""
    rest = {key: value for key, value in annotations.items() if key not in (COMPOSITE, FRONTEND)}
    entries = frontend_map(annotations)
    for key in (_NAME, _ATTRIBUTES, _VERSION):
        entries.pop(key, None)
    return {**rest, FRONTEND: frontend_text(entries)} if entries else rest
