"""Layers: the mathematics models share, written over the builder, free of any parallelism."""

from __future__ import annotations

from graphgen.nn.attention import AttentionConfig, Call, self_attention
from graphgen.nn.layers import gated_mlp, linear, rms_norm
from graphgen.nn.rope import RopeConfig, inverse_frequencies

__all__ = [
    "AttentionConfig",
    "Call",
    "RopeConfig",
    "gated_mlp",
    "inverse_frequencies",
    "linear",
    "rms_norm",
    "self_attention",
]
