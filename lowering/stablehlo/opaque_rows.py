"""Rows of ops that the IR has as HLO's instructions: the rank of a device, and barriers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.ir import Op, TensorType, Value
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import InstructionField
from graphgen.lowering.hlo_proto.replica_groups import read_groups, write_groups
from graphgen.lowering.hlo_proto.shape import shape_of, write_shape
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.mlir.mlir_types import read_tensor_type, type_text
from graphgen.lowering.mlir.syntax_tree import DialectAttr, MlirOp
from graphgen.lowering.stablehlo.op_row import (
    StableHloRow,
    groups_of,
    list_text,
    result_type,
    signature,
    types_text,
)
from graphgen.lowering.stablehlo.opaque_ops import emit_kept
from graphgen.lowering.stablehlo.read_context import StableHloReadContext

_RANKS = {"replica-id": "stablehlo.replica_id", "partition-id": "stablehlo.partition_id"}
_BROADCAST, _RESIZE = "collective-broadcast", "set-dimension-size"
_OF_BROADCAST = frozenset((InstructionField.CHANNEL_ID, InstructionField.REPLICA_GROUPS))
_BARRIER, _CONSTANT, _AFTER_ALL = "opt-barrier", "constant", "after-all"
_SHAPE_OF_LITERAL = 1


def _read_rank(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    """Read ``replica_id`` or ``partition_id`` as HLO's instruction."""
    opcode = node.name.partition(".")[2].replace("_", "-")
    return [to.emit("hlo.opaque", x, opcode=opcode, results=(result_type(node),))]


def _read_barrier(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value] | None:
    """Read a barrier, which in HLO takes and gives one array, or one tuple of several."""
    if not x or not all(text.startswith("tensor<") for text in node.types):
        return None
    types = tuple([read_tensor_type(text) for text in node.types])
    inside = "x" * len(x)
    form = f"({inside})->({inside})" if len(x) > 1 else ""
    return list(to.emit_all("hlo.opaque", x, opcode=_BARRIER, form=form, results=types))


def elided_constant(to: StableHloReadContext, type_: TensorType) -> Value:
    """Read a constant whose elements a file leaves out, as HLO's constant without them."""
    literal = wire.delimited(_SHAPE_OF_LITERAL, write_shape(shape_of(type_)))
    fields = wire.delimited(InstructionField.LITERAL, literal).hex()
    return to.emit("hlo.opaque", (), opcode=_CONSTANT, fields=fields, results=(type_,))


def _read_token(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    """Read a token, a new one or one after others, as HLO's after-all."""
    return [to.emit("hlo.opaque", x, opcode=_AFTER_ALL, results=(result_type(node),))]


def _emit_opaque(op: Op, out: str, x: Sequence[str]) -> str:
    if op.attrs.text("text"):
        return emit_kept(op, out, x)
    code = op.attrs.text("opcode")
    if code == _AFTER_ALL and op.operands:
        return f"{out} = stablehlo.after_all {', '.join(x)} : {type_text(op.results[0].type)}"
    if code == _AFTER_ALL:
        return f"{out} = stablehlo.create_token : {type_text(op.results[0].type)}"
    if code in _RANKS:
        return f"{out} = {_RANKS[code]} : {type_text(op.results[0].type)}"
    if code == _BARRIER and len(op.operands) == len(op.results):
        return f"{out} = stablehlo.optimization_barrier {', '.join(x)} : {types_text(op.results)}"
    if code == _CONSTANT:
        type_ = type_text(op.results[0].type)
        return f"{out} = stablehlo.constant dense_resource<__elided__> : {type_}"
    fields = Message(bytes.fromhex(op.attrs.text("fields") + op.attrs.text("more")))
    if code == _BROADCAST and fields.fields.keys() <= _OF_BROADCAST:
        return _broadcast_text(op, out, x, fields)
    if code == _RESIZE and fields.fields.keys() <= {InstructionField.DIMENSIONS}:
        (dimension,) = fields.integers(InstructionField.DIMENSIONS)
        sized = f"stablehlo.set_dimension_size {', '.join(x)}, dim = {dimension}"
        return f"{out} = {sized} : {signature(op)}"
    what = f"HLO's {code} has no StableHLO form"
    raise GraphgenError("GG0401", what, where=repr(op.loc), help="write HLO instead")


def _broadcast_text(op: Op, out: str, x: Sequence[str], fields: Message) -> str:
    rows = read_groups(fields)
    most = max(map(len, rows), default=0)
    filled = ", ".join([list_text((*row, *[-1] * (most - len(row)))) for row in rows])
    attrs = f"replica_groups = dense<[{filled}]> : tensor<{len(rows)}x{most}xi64>"
    channel = fields.integer(InstructionField.CHANNEL_ID)
    if channel:
        attrs += f", channel_handle = #stablehlo.channel_handle<handle = {channel}, type = 1>"
    return (
        f'{out} = "stablehlo.collective_broadcast"({", ".join(x)}) <{{{attrs}}}> : {signature(op)}'
    )


def _read_broadcast(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    """Read as HLO's instruction, which has no op in the IR."""
    channel = node.attrs.get("channel_handle")
    handle = channel.fields.get("handle") if isinstance(channel, DialectAttr) else 0
    fields = wire.integer(InstructionField.CHANNEL_ID, handle if isinstance(handle, int) else 0)
    more = write_groups(groups_of(node, "replica_groups"))
    given = {"opcode": _BROADCAST, "fields": fields.hex(), "more": more.hex()}
    return [to.emit("hlo.opaque", x, **given, results=(result_type(node),))]


OPAQUE_ROWS: Final[Sequence[StableHloRow]] = (
    StableHloRow("hlo.opaque", "", emit=_emit_opaque),
    StableHloRow("", "stablehlo.collective_broadcast", form="generic", read=_read_broadcast),
    StableHloRow("", "stablehlo.after_all", form="result", read=_read_token),
    StableHloRow("", "stablehlo.create_token", form="result", read=_read_token),
    StableHloRow("", "stablehlo.partition_id", read=_read_rank),
    StableHloRow("", "stablehlo.replica_id", read=_read_rank),
    StableHloRow("", "stablehlo.optimization_barrier", form="result", read=_read_barrier),
)
