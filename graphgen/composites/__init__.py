"""Decompositions of composite ops, as shape-polymorphic builders. Read basics.py first.

A decomposition is instantiated from the operand types when a composite is inlined.
``DECOMPOSITIONS`` maps each composite's name to its builder.
"""

from __future__ import annotations

from graphgen.composites.accept_proposals import accept
from graphgen.composites.attention import ATTENTION
from graphgen.composites.attention_parts import attention_part
from graphgen.composites.basics import BASICS
from graphgen.composites.decomposition_registry import Decomposition, decompose
from graphgen.composites.mixture_of_experts import every_expert
from graphgen.composites.quantize import (
    dequantize,
    dequantize_rows,
    quantize,
    quantize_rows,
    rms_norm_quantize,
)
from graphgen.composites.take import take_by_gather
from graphgen.composites.top_k import top_k
from graphgen.composites.tree_decompositions import TREE

DECOMPOSITIONS: dict[str, Decomposition] = {
    **BASICS,
    **ATTENTION,
    "attention_part": attention_part,
    "accept": accept,
    "experts": every_expert,
    **TREE,
    "dequantize": dequantize,
    "dequantize_rows": dequantize_rows,
    "quantize": quantize,
    "quantize_rows": quantize_rows,
    "rms_norm_quantize": rms_norm_quantize,
    "top_k": top_k,
}

__all__ = ["DECOMPOSITIONS", "Decomposition", "decompose", "take_by_gather"]
