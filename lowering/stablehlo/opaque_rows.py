"""Rows of ops that the IR has as HLO's instructions: the rank of a device, and barriers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.ir import Op, TensorType, Value
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import InstructionField
from graphgen.lowering.hlo_proto.shape import shape_of, write_shape
from graphgen.lowering.mlir.mlir_types import read_tensor_type, type_text
from graphgen.lowering.mlir.syntax_tree import MlirOp
from graphgen.lowering.stablehlo.op_row import StableHloRow, result_type, types_text
from graphgen.lowering.stablehlo.opaque_ops import emit_kept
from graphgen.lowering.stablehlo.read_context import StableHloReadContext

_RANKS = {"replica-id": "stablehlo.replica_id", "partition-id": "stablehlo.partition_id"}
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
    what = f"HLO's {code} has no StableHLO form"
    raise GraphgenError("GG0401", what, where=repr(op.loc), help="write HLO instead")


OPAQUE_ROWS: Final[Sequence[StableHloRow]] = (
    StableHloRow("hlo.opaque", "", emit=_emit_opaque),
    StableHloRow("", "stablehlo.after_all", form="result", read=_read_token),
    StableHloRow("", "stablehlo.create_token", form="result", read=_read_token),
    StableHloRow("", "stablehlo.partition_id", read=_read_rank),
    StableHloRow("", "stablehlo.replica_id", read=_read_rank),
    StableHloRow("", "stablehlo.optimization_barrier", form="result", read=_read_barrier),
)
