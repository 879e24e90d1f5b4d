"""Convert the accumulated tiles of an attention into the results of its op."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.composites.attention_parts import part_results
from graphgen.composites.partial_attention import PartialAttention, finished
from graphgen.ir import Op, Value
from graphgen.ops.attention import attention_terms

# The ops that are computed in tiles.
TILED = ("attention", "attention_part")


def sinks_of(op: Op) -> Value | None:
    """The sinks of an attention; a part has none."""
    at = attention_terms(op.operands).sinks
    return None if at is None else op.operands[at]


def results_of(b: Builder, op: Op, part: PartialAttention, sinks: Value | None) -> Sequence[Value]:
    """The results of ``op`` for the tokens of ``part``.

    Args:
        b: where ops are appended.
        op: one of :data:`TILED`.
        part: over all slots.
        sinks: those of the op, as they are called where ops are appended.
    """
    if op.name == "attention_part":
        return part_results(b, part)
    return [finished(b, part, op.result.dtype, sinks)]
