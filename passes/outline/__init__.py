"""Repeated layers as one function with calls, and back; loops unrolled.

Read :mod:`graphgen.passes.outline.outline_layers` first.
"""

from __future__ import annotations

from graphgen.passes.outline.inline_calls import InlineCalls
from graphgen.passes.outline.outline_layers import OutlineLayers
from graphgen.passes.outline.unroll_loops import UnrollLoops

__all__ = ["InlineCalls", "OutlineLayers", "UnrollLoops"]
