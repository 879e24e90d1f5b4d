"""GGUF architectures of Granite, and of GraniteMoe: Llama's and Mixtral's with four factors."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, cast

from graphgen.runtime.checkpoint.gguf.gguf_architecture import (
    DECODER_LAYER,
    DECODER_NAMES,
    DECODER_SETTINGS,
    ROTARY,
    Config,
    GgufArchitecture,
    biases,
    decoder_config,
    has_bias,
    size_of,
)
from graphgen.runtime.checkpoint.gguf.gguf_header import GgufHeader
from graphgen.runtime.checkpoint.gguf.mixture_architectures import (
    EXPERT_COUNT,
    EXPERTS_USED,
    PROJECTIONS,
    expert_layer,
)

_SCORES, _EMBEDDINGS = "attention.scale", "embedding_scale"
_ADDENDS, _LOGITS = "residual_scale", "logit_scale"
_SHARED_INNER: Final = "expert_shared_feed_forward_length"
_FACTORS: Final = frozenset({_SCORES, _EMBEDDINGS, _ADDENDS, _LOGITS})


def _granite_config(header: GgufHeader) -> Config:
    return {**_decoder(header), **biases(header)}


def _decoder(header: GgufHeader) -> Config:
    """Llama's settings and four factors; without one of the scores it is the root of the head size.

    Models without rotary positions state that by a key that means something else elsewhere.
    """
    config, finetuned = decoder_config(header), header.own("rope.scaling.finetuned")
    if header.optional_bool(finetuned) is False:
        raise header.unsupported(finetuned, "models without rotary positions are not supported")
    head_dim = cast("int", config["head_dim"])
    return {
        **config,
        "attention_multiplier": header.positive_float(header.own(_SCORES), head_dim**-0.5),
        "embedding_multiplier": header.positive_float(header.own(_EMBEDDINGS), 1.0),
        "residual_multiplier": header.positive_float(header.own(_ADDENDS), 1.0),
        "logits_scaling": header.positive_float(header.own(_LOGITS), 1.0),
    }


def _granite_moe_config(header: GgufHeader) -> Config:
    return {
        **_decoder(header),
        "attention_bias": has_bias(header, "attn_q"),
        "num_local_experts": size_of(header, EXPERT_COUNT),
        "num_experts_per_tok": size_of(header, EXPERTS_USED),
    }


def _granite_shared_config(header: GgufHeader) -> Config:
    return {
        **_granite_moe_config(header),
        "shared_intermediate_size": size_of(header, _SHARED_INNER),
    }


def _is_shared(header: GgufHeader) -> bool:
    return header.own(_SHARED_INNER) in header.metadata


_GRANITE: Final = GgufArchitecture(
    name="granite",
    model_type="granite",
    hf_class="GraniteForCausalLM",
    layers="model.layers",
    whole=DECODER_NAMES,
    layer=DECODER_LAYER,
    settings=DECODER_SETTINGS | _FACTORS,
    config=_granite_config,
    restore=ROTARY,
)
_GRANITE_MOE: Final = GgufArchitecture(
    name="granitemoe",
    model_type="granitemoe",
    hf_class="GraniteMoeForCausalLM",
    layers="model.layers",
    whole=DECODER_NAMES,
    layer={**DECODER_LAYER, **expert_layer("block_sparse_moe", "router.layer", PROJECTIONS)},
    settings=DECODER_SETTINGS | _FACTORS | {EXPERT_COUNT, EXPERTS_USED},
    config=_granite_moe_config,
    restore=ROTARY,
)
_GRANITE_SHARED: Final = replace(
    _GRANITE_MOE,
    model_type="granitemoeshared",
    hf_class="GraniteMoeSharedForCausalLM",
    layer={
        **_GRANITE_MOE.layer,
        **{
            f"ffn_{part}_shexp": f"block_sparse_moe.shared_experts.{part}_proj"
            for part in ("gate", "up", "down")
        },
    },
    settings=_GRANITE_MOE.settings | {_SHARED_INNER},
    config=_granite_shared_config,
    fits=_is_shared,
)
GRANITE: Final = (_GRANITE, _GRANITE_SHARED, _GRANITE_MOE)
