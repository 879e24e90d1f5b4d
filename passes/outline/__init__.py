"""Layers that repeat become one function and a call each, and back; loops become their turns."""

from __future__ import annotations

from passes.outline.inline_calls import InlineCalls
from passes.outline.outline_layers import OutlineLayers
from passes.outline.unroll_loops import UnrollLoops

__all__ = ["InlineCalls", "OutlineLayers", "UnrollLoops"]
