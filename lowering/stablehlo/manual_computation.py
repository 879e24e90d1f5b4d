"""Shardy's ``sdy.manual_computation``, which HLO writes as a call between two custom calls.

The first custom call takes each operand's part on a device, the second puts the parts of the
results together. Written again as one op, where the three belong together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from graphgen.ir import Op, Value
from graphgen.lowering.hlo.annotations import frontend_map
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import InstructionField as F
from graphgen.lowering.mlir.mlir_attributes import bracketed, read_dict, symbol
from graphgen.lowering.mlir.mlir_parser import ReadRegion, read_argument
from graphgen.lowering.mlir.mlir_types import string, type_text
from graphgen.lowering.mlir.syntax_tree import MlirOp
from graphgen.lowering.mlir.tokens import MlirTokens
from graphgen.lowering.stablehlo.op_row import local, types_text

TO_LOCAL: Final = "xla.sdy.GlobalToLocalShape"
TO_GLOBAL: Final = "xla.sdy.LocalToGlobalShape"
BODY: Final = "xla.sdy.manual_computation_body"
PLAIN: Final = "manual_computation_body"
KEYS = ("in_shardings", "out_shardings", "manual_axes")
# Shardy's attributes of both custom calls, and their names in HLO.
IN = {"in_shardings": "xla.sdy.in_shardings", "manual_axes": "xla.sdy.manual_axes"}
OUT = {"manual_axes": "xla.sdy.manual_axes", "out_shardings": "xla.sdy.out_shardings"}
_PER_VALUE, _AXES = "#sdy.sharding_per_value<", "#sdy<manual_axes"


def fields(operands: Sequence[Value]) -> str:
    """The fields of one of the custom calls, as XLA writes them."""
    out = wire.integer(F.FEATURE_GROUP_COUNT, 1)
    out += wire.delimited(F.PRECISION, wire.delimited(1, bytes(len(operands))))
    out += wire.integer(F.BATCH_GROUP_COUNT, 1) + wire.integer(F.CUSTOM_CALL_HAS_SIDE_EFFECT, 1)
    return (out + wire.integer(F.CUSTOM_CALL_API_VERSION, 1)).hex()


def attribute_text(node: MlirOp, key: str) -> str:
    """An attribute in the words of the generic form, whichever form it was in."""
    node.attrs.get(key)
    text = node.attrs.text(key)
    if text.startswith("#"):
        return text
    return f"{_AXES}{text}>" if key == "manual_axes" else f"{_PER_VALUE}{text}>"


def parse(t: MlirTokens, node: MlirOp, region: ReadRegion) -> None:
    """Parse ``(%a) in_shardings=[..] out_shardings=[..] manual_axes={..} (%b: type) {..} : types``.

    The body's arguments are written in front of its brace.
    """
    t.expect("(")
    node.operands = [t.need("value", "an operand") for _ in t.items(")")]
    node.attrs.source = t.source
    for key in KEYS:
        t.expect(key)
        t.expect("=")
        start = t.at
        bracketed(t)
        node.attrs.place(key, True, start, t.passed)
    t.expect("(")
    arguments = [read_argument(t) for _ in t.items(")")]
    body = region()
    body.args = arguments
    node.regions.append(body)
    if t.text == "{":
        node.attrs.add(read_dict(t))
    t.expect(":")
    from graphgen.lowering.stablehlo.assembly import parse_types

    node.types = parse_types(t, node)


def parse_mesh_op(t: MlirTokens, node: MlirOp, region: ReadRegion) -> None:
    """Parse ``@name = <["x"=2]> {attributes}``."""
    node.attrs["sym_name"] = symbol(t, "a mesh's name")
    t.expect("=")
    node.attrs.source = t.source
    start = t.at
    bracketed(t)
    node.attrs.place("mesh", True, start, t.passed)
    if t.text == "{":
        node.attrs.add(read_dict(t))


@dataclass(frozen=True, slots=True)
class Parts:
    """The three ops of one manual computation."""

    to_local: Op
    call: Op
    to_global: Op


def parts_of(op: Op) -> Parts | None:
    """The manual computation that an op is a part of; ``None`` for any other op."""
    if op.name == "custom_call":
        target = op.attrs.text("target")
        if target == TO_LOCAL:
            users = list(op.results[0].users)
            return parts_of(users[0]) if len(users) == 1 and users[0].name == "call" else None
        if target != TO_GLOBAL:
            return None
        call = op.operands[0].op
        return parts_of(call) if call is not None and call.name == "call" else None
    if op.name != "call" or not op.operands or not op.results:
        return None
    first = op.operands[0].op
    last = list(op.results[0].users)
    if first is None or len(last) != 1:
        return None
    found = Parts(first, op, last[0])
    return found if _belong(found) else None


def _belong(found: Parts) -> bool:
    """True where the values between the three are all that each reads, and read by no other."""
    for op, target in ((found.to_local, TO_LOCAL), (found.to_global, TO_GLOBAL)):
        if op.name != "custom_call" or op.attrs.text("target") != target:
            return False
    return (
        found.call.operands == found.to_local.results
        and found.to_global.operands == found.call.results
        and all(set(value.users) == {found.call} for value in found.to_local.results)
        and all(set(value.users) == {found.to_global} for value in found.call.results)
        and "xla.sdy.in_shardings" in frontend_map(found.to_local.annotations)
        and "xla.sdy.out_shardings" in frontend_map(found.to_global.annotations)
    )


def written_operands(op: Op) -> Sequence[Value]:
    """The values that an op is written with: those of the first for the last of the three."""
    found = parts_of(op) if op.name == "custom_call" else None
    return found.to_local.operands if found is not None and op is found.to_global else op.operands


def emit_part(found: Parts, op: Op, out: str, x: Sequence[str]) -> str:
    """Write one of the three: the whole at the last, which the others only announce."""
    if op is not found.to_global:
        return f"// {out}: inside of the next sdy.manual_computation"
    entries = {
        **frontend_map(found.to_local.annotations),
        **frontend_map(found.to_global.annotations),
    }
    inner, outer, axes = (
        entries["xla.sdy.in_shardings"].removeprefix(_PER_VALUE).removesuffix(">"),
        entries["xla.sdy.out_shardings"].removeprefix(_PER_VALUE).removesuffix(">"),
        entries.get("xla.sdy.manual_axes", "").removeprefix(_AXES).removesuffix(">"),
    )
    first = out.split(", ")[0]
    names = [local(first, f"m{index}") for index in range(len(found.call.operands))]
    results = ", ".join([local(first, f"r{index}") for index in range(len(found.call.results))])
    pairs = zip(names, found.call.operands, strict=True)
    head = ", ".join([f"{name}: {type_text(value.type)}" for name, value in pairs])
    callee = f"@{string('call.' + found.call.attrs.text('to_apply').replace(BODY, PLAIN))}"
    inside, given = types_text(found.call.operands), types_text(found.call.results)
    types = f"({types_text(found.to_local.operands)}) -> ({types_text(found.to_global.results)})"
    return "\n".join(
        [
            f"{out} = sdy.manual_computation({', '.join(x)}) in_shardings={inner} "
            f"out_shardings={outer} manual_axes={axes or '{}'} ({head}) {{",
            f"      {results} = func.call {callee}({', '.join(names)}) : ({inside}) -> ({given})",
            f"      sdy.return {results} : {given}",
            f"    }} : {types}",
        ]
    )
