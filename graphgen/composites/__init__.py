"""Decompositions of composite ops, as shape-polymorphic builders.

A decomposition is instantiated from the operand types when a composite is inlined.
``DECOMPOSITIONS`` maps each composite's name to its builder; importing the modules registers them.
"""

from __future__ import annotations

from graphgen.composites import attention, basics, top_k
from graphgen.composites import experts as mixture_of_experts
from graphgen.composites import partial_attention as attention_parts
from graphgen.composites import quantization as quantize
from graphgen.composites import speculative_sampling as accept_proposals
from graphgen.composites import token_tree as tree_decompositions
from graphgen.composites.basics import take_by_gather
from graphgen.composites.registry import DECOMPOSITIONS, Decomposition, decompose

MODULES = (
    accept_proposals,
    attention,
    attention_parts,
    basics,
    mixture_of_experts,
    quantize,
    top_k,
    tree_decompositions,
)

__all__ = ["DECOMPOSITIONS", "MODULES", "Decomposition", "decompose", "take_by_gather"]
