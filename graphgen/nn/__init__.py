"""Layers that model families share, written for one device."""

from __future__ import annotations

from graphgen.nn.activations import ACTIVATIONS, activate
from graphgen.nn.attention import (
    Alibi,
    AttentionConfig,
    LongFrequencies,
    Normalize,
    Rotary,
    StepInputs,
    alibi_slopes,
    attend,
    causal_mask,
    linear_biases,
    rotary,
    rounded_biases,
    self_attention,
)
from graphgen.nn.experts import (
    ExpertForm,
    ExpertGroups,
    MixtureConfig,
    Routed,
    SharedExpert,
    TopKRouter,
    mixture,
    normalized,
    route,
    routed,
)
from graphgen.nn.latent_attention import LatentConfig, latent_attention
from graphgen.nn.linear import conv1d, embed, embedding_table, gated_mlp, linear, lm_head, mlp
from graphgen.nn.norm import layer_norm, rms_norm
from graphgen.nn.rope import RopeConfig, inverse_frequencies, long_frequencies

__all__ = [
    "ACTIVATIONS",
    "Alibi",
    "AttentionConfig",
    "ExpertForm",
    "ExpertGroups",
    "LatentConfig",
    "LongFrequencies",
    "MixtureConfig",
    "Normalize",
    "RopeConfig",
    "Rotary",
    "Routed",
    "SharedExpert",
    "StepInputs",
    "TopKRouter",
    "activate",
    "alibi_slopes",
    "attend",
    "causal_mask",
    "conv1d",
    "embed",
    "embedding_table",
    "gated_mlp",
    "inverse_frequencies",
    "latent_attention",
    "layer_norm",
    "linear",
    "linear_biases",
    "lm_head",
    "long_frequencies",
    "mixture",
    "mlp",
    "normalized",
    "rms_norm",
    "rotary",
    "rounded_biases",
    "route",
    "routed",
    "self_attention",
]
