"""Layers: the mathematics models share, written over the builder, free of any parallelism."""

from __future__ import annotations

from graphgen.nn.activations import ACTIVATIONS, activate
from graphgen.nn.attention import (
    Alibi,
    AttentionConfig,
    Call,
    Rotary,
    alibi_slopes,
    attend,
    causal_mask,
    linear_biases,
    rotary,
    self_attention,
)
from graphgen.nn.layers import conv1d, gated_mlp, layer_norm, linear, rms_norm
from graphgen.nn.rope import RopeConfig, inverse_frequencies

__all__ = [
    "ACTIVATIONS",
    "Alibi",
    "AttentionConfig",
    "Call",
    "RopeConfig",
    "Rotary",
    "activate",
    "alibi_slopes",
    "attend",
    "causal_mask",
    "conv1d",
    "gated_mlp",
    "inverse_frequencies",
    "layer_norm",
    "linear",
    "linear_biases",
    "rms_norm",
    "rotary",
    "self_attention",
]
