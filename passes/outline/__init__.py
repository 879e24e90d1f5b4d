"""Repeated layers as one function with calls, and back."""

from __future__ import annotations

from graphgen.passes.canonical.inline_calls import InlineCalls
from graphgen.passes.canonical.unroll_loops import UnrollLoops
from graphgen.passes.outline.outline_layers import OutlineLayers

__all__ = ["InlineCalls", "OutlineLayers", "UnrollLoops"]
