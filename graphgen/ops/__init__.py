"""The op table: definitions with inference, traits, factors and cost; stages and the verifier.

Read :mod:`graphgen.ops.opdef` first, then a family such as :mod:`graphgen.ops.elementwise`.
"""

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
from graphgen.ops.opdef import (
    OPS,
    Attr,
    InferError,
    OpDef,
    has_trait,
    infer,
    make_attrs,
    op_def,
    ops_with,
)
from graphgen.ops.traits import LinearIn, Trait, UpdatesPart
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
    "LinearIn",
    "OpDef",
    "Trait",
    "UpdatesPart",
    "has_trait",
    "infer",
    "make_attrs",
    "op_def",
    "ops_with",
    "verify",
]
