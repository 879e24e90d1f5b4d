"""Layers that repeat become one function and a call each, and back."""

from __future__ import annotations

from passes.outline.inline_calls import InlineCalls
from passes.outline.outline_layers import OutlineLayers

__all__ = ["InlineCalls", "OutlineLayers"]
