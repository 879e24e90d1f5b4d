"""Canonical forms: read :mod:`graphgen.passes.canonical.canonicalize` first.

Canonicalization, common subexpressions, dead code, constant folding and shape simplification; no
pass here knows about weights or targets.
"""
