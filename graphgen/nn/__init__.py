"""Layers: the mathematics models share, written over the builder, free of any parallelism."""

from __future__ import annotations

from graphgen.nn.attention import (
    AttentionConfig,
    Call,
    Rotary,
    attend,
    causal_mask,
    rotary,
    self_attention,
)
from graphgen.nn.layers import gated_mlp, linear, rms_norm
from graphgen.nn.rope import RopeConfig, inverse_frequencies

__all__ = [
    "AttentionConfig",
    "Call",
    "RopeConfig",
    "Rotary",
    "attend",
    "causal_mask",
    "gated_mlp",
    "inverse_frequencies",
    "linear",
    "rms_norm",
    "rotary",
    "self_attention",
]
