"""Sampling inside the programs: read :mod:`graphgen.passes.sampling.on_device` first."""

from __future__ import annotations

from graphgen.passes.sampling.on_device import OnDeviceSampling

__all__ = ["OnDeviceSampling"]
