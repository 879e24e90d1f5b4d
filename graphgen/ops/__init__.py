"""Op table: definitions with inference, traits, factors and cost; stages and the verifier.

``opdef.py`` declares ops; each family of ops, such as ``elementwise.py``, has a file.
"""

from __future__ import annotations

from graphgen.ops import (
    attention,
    bits,
    collective,
    composite,
    control,
    convolution,
    elementwise,
    external,
    fourier,
    indexing,
    linalg,
    linear_systems,
    quantization,
    random_bits,
    reduce_window,
    shape,
    sorting,
    speculative_sampling,
)
from graphgen.ops import composite as rms_norm_quantize
from graphgen.ops import elementwise as complex_parts
from graphgen.ops import experts as experts_op
from graphgen.ops import quantization as quantized_rows
from graphgen.ops import token_tree as tree_ops
from graphgen.ops.legality import IR_STAGES, IRStage
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
    *(
        elementwise,
        complex_parts,
        bits,
        external,
        control,
        shape,
        linalg,
        convolution,
        reduce_window,
        sorting,
        indexing,
        linear_systems,
        fourier,
        random_bits,
        collective,
        composite,
        tree_ops,
        quantization,
        attention,
        quantized_rows,
        rms_norm_quantize,
        speculative_sampling,
        experts_op,
    ),
)

__all__ = [
    "FAMILIES",
    "IR_STAGES",
    "OPS",
    "Attr",
    "IRStage",
    "InferError",
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
