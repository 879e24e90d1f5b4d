"""Decompositions of composite ops, as shape-polymorphic builders. Read basics.py first.

A decomposition is instantiated from the operand types when a composite is inlined.
``DECOMPOSITIONS`` maps each composite's name to its builder; importing the modules registers them.
"""

from __future__ import annotations

from graphgen.composites import (
    accept_proposals,
    attention,
    attention_parts,
    basics,
    mixture_of_experts,
    quantize,
    top_k,
    tree_decompositions,
)
from graphgen.composites.decomposition_registry import DECOMPOSITIONS, Decomposition, decompose
from graphgen.composites.take import take_by_gather

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
