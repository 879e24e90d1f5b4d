"""Tokens instead of logits: sampling as a part of the programs."""

from __future__ import annotations

from graphgen.passes.sampling.on_device import OnDeviceSampling

__all__ = ["OnDeviceSampling"]
