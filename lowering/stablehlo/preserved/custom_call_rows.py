"""Rows of custom calls, and of Shardy's ops, which are custom calls of the names XLA gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from graphgen.ir import AttrValue, Op, Value, attrs_of
from graphgen.lowering.hlo.preserved.frontend_map import FRONTEND, frontend_map, frontend_text
from graphgen.lowering.hlo.preserved.hlo_annotations import of_part, shape_annotation
from graphgen.lowering.stablehlo.assembly import parse_types
from graphgen.lowering.stablehlo.op_row import (
    StableHloRow,
    UnmodelledForm,
    integer_of,
    signature,
    types_text,
)
from graphgen.lowering.stablehlo.preserved import manual_computation as manual
from graphgen.lowering.stablehlo.preserved.attribute_notes import MLIR, dictionary_text
from graphgen.lowering.stablehlo.preserved.custom_call_fields import (
    ORIGINAL,
    TYPED,
    field_texts,
    read_fields,
    result_shapes,
)
from graphgen.lowering.stablehlo.preserved.shardy import SHARDING, hlo_sharding
from graphgen.lowering.stablehlo.read_context import StableHloReadContext
from graphgen.lowering.stablehlo.text.mlir_attributes import (
    bracketed,
    read_dict,
    read_operands,
    symbol,
)
from graphgen.lowering.stablehlo.text.mlir_parser import ReadRegion
from graphgen.lowering.stablehlo.text.mlir_types import read_tensor_type, string, type_text
from graphgen.lowering.stablehlo.text.syntax_tree import MlirAttrs, MlirOp, SymbolRef
from graphgen.lowering.stablehlo.text.tokens import MlirTokens
from graphgen.ops.external import SILENT

# Target of a call that states the sharding of its operand.
CONSTRAINT: Final = "Sharding"
_DIALECT = "sdy."
_HEAD = "#sdy.sharding"


def emit_custom_call(op: Op, out: str, x: Sequence[str]) -> str:
    """Write a call: one that XLA makes of an op of Shardy as that op."""
    target = op.attrs.text("target")
    if target.startswith(_DIALECT):
        return f'{out} = "{target}"({", ".join(x)}) : {signature(op)}'
    found = manual.parts_of(op)
    if found is not None:
        return manual.emit_part(found, op, out, x)
    entries = frontend_map(op.annotations)
    if target == CONSTRAINT and SHARDING in entries and len(op.results) == 1:
        sharding = entries[SHARDING].removeprefix(f"{_HEAD}_per_value<[").removesuffix("]>")
        type_ = type_text(op.results[0].type)
        return f"{out} = sdy.sharding_constraint {x[0]} {sharding} : {type_}"
    silent = op.attrs["silent"] is True
    types = f"({types_text(op.operands)}) -> ()" if silent else signature(op)
    left = "" if silent else f"{out} = "
    pairs = field_texts(op)
    config = op.attrs.text("config")
    if config:
        typed = any(key == "api_version" and text.startswith(f"{TYPED} ") for key, text in pairs)
        dictionary = typed and config.startswith("{")
        pairs.append(("backend_config", config if dictionary else string(config)))
    attrs = dictionary_text(sorted(pairs))
    shown = f" {attrs}" if attrs else ""
    return f"{left}stablehlo.custom_call @{string(target)}({', '.join(x)}){shown} : {types}"


def constraint_is_op(op: Op) -> bool:
    """True for a call that is written as ``sdy.sharding_constraint``, its sharding included."""
    named = op.name == "custom_call" and op.attrs.text("target") == CONSTRAINT
    return named and SHARDING in frontend_map(op.annotations)


def _read_custom_call(
    to: StableHloReadContext, node: MlirOp, operands: Sequence[Value]
) -> list[Value] | None:
    """Read a call; ``None`` for one that calls functions, or has other results than arrays."""
    target = node.attrs.get("call_target_name")
    name = target.name if isinstance(target, SymbolRef) else target
    arrays = all(text.startswith("tensor<") for text in node.types)
    if not isinstance(name, str) or not arrays or node.attrs.get("called_computations"):
        return None
    config, typed = _config(node.attrs)
    api = integer_of(node, "api_version") if "api_version" in node.attrs else ORIGINAL
    more = read_fields(node, operands, TYPED if typed else api)
    types = [read_tensor_type(text) for text in node.types]
    shapes = result_shapes(node, types)
    given: dict[str, AttrValue] = {"target": name, "config": config, "more": more}
    if not types:
        to.emit_all("custom_call", operands, **given, results=(SILENT,), silent=True)
        return []
    made = to.emit_all("custom_call", operands, **given, results=tuple(types))
    for index, shape in enumerate(shapes):
        noted = shape_annotation(shape)
        to.note(noted if len(shapes) == 1 else of_part(noted, f"element{index}"))
    return list(made)


def _config(attrs: MlirAttrs) -> tuple[str, bool]:
    """The configuration of a call as text, and whether it is a dictionary of typed attributes."""
    typed, found = attrs.get("mhlo.backend_config"), attrs.get("backend_config", "")
    if isinstance(typed, MlirAttrs):
        return attrs.text("mhlo.backend_config"), True
    if isinstance(found, MlirAttrs):
        return attrs.text("backend_config"), True
    return (found, False) if isinstance(found, str) else (attrs.text("backend_config"), False)


def parse_custom_call(t: MlirTokens, node: MlirOp, region: ReadRegion) -> None:
    """Parse ``@target(%a, %b) {attributes} : (types) -> types``."""
    node.attrs["call_target_name"] = SymbolRef(symbol(t, "a target"))
    node.operands = read_operands(t)
    if t.text == "{":
        node.attrs.add(read_dict(t))
    t.expect(":")
    node.types = parse_types(t, node)


def _read_constraint(
    to: StableHloReadContext, node: MlirOp, operands: Sequence[Value]
) -> list[Value]:
    node.attrs.get("sharding")
    one = node.attrs.text("sharding").removeprefix(_HEAD)
    text = f"{_HEAD}_per_value<[{one}]>"
    made = to.emit_all(
        "custom_call", operands, target=CONSTRAINT,
        more=read_fields(node, operands, ORIGINAL),
        results=tuple([value.type for value in operands]),
    )  # fmt: skip
    sharding = hlo_sharding(one, to.source.meshes)
    noted = {"hlo.sharding": sharding} if sharding else {}
    to.note({**noted, FRONTEND: frontend_text({SHARDING: text})})
    return list(made)


def _parse_constraint(t: MlirTokens, node: MlirOp, region: ReadRegion) -> None:
    """Parse ``%a <@mesh, [{"x"}]> {attributes} : type``."""
    node.operands = [t.need("value", "an operand")]
    start = t.at
    bracketed(t)
    node.attrs.source = t.source
    node.attrs.place("sharding", True, start, t.passed)
    if t.text == "{":
        node.attrs.add(read_dict(t))
    t.expect(":")
    node.types = parse_types(t, node)


def read_shardy_op(
    to: StableHloReadContext, node: MlirOp, operands: Sequence[Value]
) -> list[Value] | None:
    """Read any op of Shardy as a call of its name, with its attributes as annotations."""
    if node.regions or not node.types:
        return None
    types = tuple([read_tensor_type(text) for text in node.types])
    noted = {f"{MLIR}{key}": text for key, text in node.attrs.unread().items()}
    for key in node.attrs:
        node.attrs.get(key)
    made = to.emit_all("custom_call", operands, target=node.name, results=types)
    to.note(noted)
    return list(made)


def _read_manual(to: StableHloReadContext, node: MlirOp, operands: Sequence[Value]) -> list[Value]:
    """Read as XLA writes it into HLO: parts of the operands, a call, the whole of its results."""
    if not operands or not node.types or len(node.regions) != 1:
        raise UnmodelledForm("a manual computation without operands or results")
    region = node.regions[0]
    texts = {key: manual.attribute_text(node, key) for key in manual.KEYS}
    inside = tuple([read_tensor_type(argument.type) for argument in region.args])
    if len(inside) != len(operands):
        raise UnmodelledForm("a manual computation of other operands")
    function = to.function(manual.BODY)
    values = {
        argument.name: function.block.add_arg(type_, f"arg{index}")
        for index, (argument, type_) in enumerate(zip(region.args, inside, strict=True))
    }
    to.fill(function, region, values, [])
    local = to.emit_all(
        "custom_call", operands, target=manual.TO_LOCAL, results=inside,
        more=manual.fields(operands),
    )  # fmt: skip
    results = tuple([value.type for _, value in function.outputs])
    called = to.emit_all("call", list(local), to_apply=function.name, results=results)
    types = tuple([read_tensor_type(text) for text in node.types])
    made = to.emit_all(
        "custom_call", list(called), target=manual.TO_GLOBAL, results=types,
        more=manual.fields(called),
    )  # fmt: skip
    for value, entries in ((local[0], manual.IN), (called[0], {}), (made[0], manual.OUT)):
        found = {name: texts[key] for key, name in entries.items()}
        entry = found or {"inlineable": "false"}
        if value.op is not None:
            value.op.annotations = attrs_of({FRONTEND: frontend_text(entry)})
    return list(made)


EXTERNAL_ROWS: Final[Sequence[StableHloRow]] = (
    StableHloRow("custom_call", "", emit=emit_custom_call),
    StableHloRow("", "stablehlo.custom_call", read=_read_custom_call, parse=parse_custom_call),
    StableHloRow("", "sdy.sharding_constraint", read=_read_constraint, parse=_parse_constraint),
    StableHloRow("", "sdy.manual_computation", read=_read_manual, parse=manual.parse),
    StableHloRow("", "sdy.mesh", parse=manual.parse_mesh_op),
)
