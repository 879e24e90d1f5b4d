"""The op table and what is legal where: inference, attributes, levels, the verifier."""

from __future__ import annotations

from graphgen.ops import (
    bits,
    collective,
    composite,
    control,
    elementwise,
    foreign,
    linalg,
    memory,
    order,
    shape,
)
from graphgen.ops.levels import LEVELS, Level
from graphgen.ops.opdef import OPS, Attr, InferError, OpDef, infer, make_attrs, op_def
from graphgen.ops.verify import verify

# Importing a family registers its ops; naming the modules here keeps the import from looking idle.
FAMILIES = (
    *(elementwise, bits, foreign, control, shape, linalg, order, memory, collective, composite),
)

__all__ = [
    "FAMILIES",
    "LEVELS",
    "OPS",
    "Attr",
    "InferError",
    "Level",
    "OpDef",
    "infer",
    "make_attrs",
    "op_def",
    "verify",
]
