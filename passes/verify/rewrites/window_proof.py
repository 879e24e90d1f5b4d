"""Proof that both sides of a window are equal for all sizes and all boundary values."""

from __future__ import annotations

from graphgen.passes.core.relation import EQUAL
from graphgen.passes.verify.proof.prove_equal import prove_values
from graphgen.passes.verify.rewrites.rewrite_window import WindowCut


def is_proved(cut: WindowCut) -> bool:
    """True if every pair has equal values by the normal form of their elements alone."""
    if any(relation is not EQUAL for _, _, relation in cut.pairs):
        return False
    window = cut.function({})
    outputs = dict(window.outputs)
    pairs = [(outputs[f"before.{n}"], outputs[f"after.{n}"]) for n in range(len(cut.pairs))]
    return prove_values(window, pairs)
