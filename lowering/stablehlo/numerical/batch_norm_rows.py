"""Rows of batch norms: read as the ops that they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.ir import Value
from graphgen.lowering.batch_norm import BatchNorm
from graphgen.lowering.stablehlo.op_row import StableHloRow, integer_of
from graphgen.lowering.stablehlo.read_context import StableHloReadContext
from graphgen.lowering.stablehlo.text.syntax_tree import MlirOp
from graphgen.ops import InferError

_PREFIX: Final = "stablehlo.batch_norm_"


def _read(to: StableHloReadContext, node: MlirOp, x: Sequence[Value]) -> list[Value]:
    epsilon = node.attrs.get("epsilon")
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float):
        raise GraphgenError("GG0104", f"{node.name} needs the number 'epsilon'")
    if not x:
        raise GraphgenError("GG0105", f"{node.name} has no operand")
    feature = integer_of(node, "feature_index")
    norm = BatchNorm(to.emit, x[0].type, feature, float(epsilon))
    try:
        return norm.read(node.name.removeprefix(_PREFIX), x)
    except InferError as error:
        raise GraphgenError("GG0105", f"{node.name}: {error}") from error


BATCH_NORM_ROWS: Final[Sequence[StableHloRow]] = tuple(
    [
        StableHloRow("", f"{_PREFIX}{name}", form="generic", read=_read)
        for name in ("training", "inference", "grad")
    ]
)
