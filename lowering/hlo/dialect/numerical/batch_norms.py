"""Rows of batch norms: read as the ops that they are made of."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import AttrValue, Value
from graphgen.lowering.batch_norm import BatchNorm
from graphgen.lowering.hlo.dialect.op_builder import Tree
from graphgen.lowering.hlo.dialect.op_row import HloInstruction, HloRow, attribute, row
from graphgen.lowering.hlo.dialect.unmodelled import ContradictionError, UnmodelledError
from graphgen.ops import InferError

_PREFIX = "batch-norm-"


def _read(row: HloRow, i: HloInstruction) -> Tree:
    number = 0

    def emit(name: str, operands: Sequence[Value], **attrs: AttrValue) -> Value:
        nonlocal number
        i.to.part(f"{name}{number}")
        number += 1
        return i.to.emit(name, operands, **attrs)

    x = i.values
    if not x:
        raise UnmodelledError("it has no operand")
    epsilon, feature = (
        attribute(key, row.name).decode(i.message) for key in ("epsilon", "feature_index")
    )
    assert isinstance(epsilon, float)
    assert isinstance(feature, int)
    try:
        made = BatchNorm(emit, x[0].type, feature, epsilon).read(row.name.removeprefix(_PREFIX), x)
    except InferError as error:
        raise ContradictionError(str(error)) from error
    return tuple(made) if i.shape.is_tuple else made[0]


BATCH_NORM_ROWS: tuple[HloRow, ...] = tuple(
    [row("", name=f"{_PREFIX}{name}", read=_read) for name in ("training", "inference", "grad")]
)
