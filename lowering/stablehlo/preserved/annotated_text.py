"""Text of an op with its annotations as attributes."""

from __future__ import annotations

from collections.abc import Mapping

from graphgen.errors import GraphgenError
from graphgen.ir import Op
from graphgen.lowering.stablehlo.op_row import signature
from graphgen.lowering.stablehlo.preserved.attribute_notes import (
    PROMISES,
    attribute_texts,
    with_attributes,
)
from graphgen.lowering.stablehlo.preserved.bounded_sizes import without_bounds
from graphgen.lowering.stablehlo.preserved.composite_notes import is_composite, without_composite
from graphgen.lowering.stablehlo.preserved.custom_call_rows import CONSTRAINT, constraint_is_op
from graphgen.lowering.stablehlo.preserved.dot_precision import (
    ALGORITHM,
    PRECISION,
    precision_texts,
)
from graphgen.lowering.stablehlo.preserved.manual_computation import parts_of
from graphgen.lowering.stablehlo.preserved.module_notes import channel_texts
from graphgen.ops import OPS

_INDEXED = ("gather", "scatter", "scatter_add")


def annotated_text(op: Op, text: str) -> str:
    """The text of an op with its annotations (GG0401 for one without a word in StableHLO)."""
    if constraint_is_op(op) or parts_of(op) is not None:
        return text
    annotations: Mapping[str, object] = op.annotations
    pairs: list[tuple[str, str]] = []
    taken: tuple[str, ...] = ()
    if op.name in ("dot_general", "convolution"):
        pairs, taken = precision_texts(annotations), (PRECISION, ALGORITHM)
    elif OPS[op.name].collective:
        pairs = channel_texts(annotations)
    elif op.name in _INDEXED:
        taken = tuple([f"hlo.{key}" for key in PROMISES])
        pairs = [(key, "true") for key in PROMISES if annotations.get(f"hlo.{key}") == "true"]
    rest = {key: value for key, value in annotations.items() if key not in taken}
    if op.attrs.get("text"):
        rest = {key: str(value) for key, value in without_bounds(rest).items()}
    if is_composite(op):
        rest = without_composite(rest)
    try:
        return with_attributes(text, pairs + attribute_texts(rest))
    except GraphgenError as error:
        error.where = error.where or repr(op.loc)
        raise


def plain_text(op: Op, text: str) -> str:
    """The text of an op as a rank runs it: a sharding constraint is a custom call there."""
    if not constraint_is_op(op):
        return text
    out, _, rest = text.partition(" = sdy.sharding_constraint ")
    operand = rest.split(" ", 1)[0]
    return f"{out} = stablehlo.custom_call @{CONSTRAINT}({operand}) : {signature(op)}"
