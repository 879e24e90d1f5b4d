"""Layers that repeat become one function and a call each, and back; loops become their turns."""

from __future__ import annotations

from graphgen.passes.outline.inline_calls import InlineCalls
from graphgen.passes.outline.outline_layers import OutlineLayers
from graphgen.passes.outline.unroll_loops import UnrollLoops

__all__ = ["InlineCalls", "OutlineLayers", "UnrollLoops"]
