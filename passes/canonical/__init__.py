"""Canonical forms: canonicalization, CSE, DCE, folding, shapes, projections, inlining, unrolling.

No pass here knows about targets.
"""
