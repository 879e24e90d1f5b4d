"""GGUF architectures with experts: Mixtral, Qwen2-MoE, Qwen3-MoE, GPT-OSS, DBRX and Llama 4.

A layer's experts are one stack ``blk.0.ffn_gate_exps.weight`` [E,I,H], as those of graphgen's
families are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from graphgen.runtime.checkpoint.gguf.gguf_architecture import (
    DECODER_LAYER,
    DECODER_NAMES,
    DECODER_SETTINGS,
    EPSILON,
    HEAD_NORMS,
    ONE_ROW,
    ROTARY,
    SIZES,
    WINDOW,
    Config,
    FusedParts,
    GgufArchitecture,
    decoder_config,
    every_fourth_plain,
    has_bias,
    kv_heads,
    qkv_parts,
    rope_base,
    size_of,
    vocab_size,
)
from graphgen.runtime.checkpoint.gguf.gguf_header import GgufHeader

EXPERT_COUNT: Final = "expert_count"
EXPERTS_USED: Final = "expert_used_count"
_INNER, _SHARED_INNER = "expert_feed_forward_length", "expert_shared_feed_forward_length"
_CLAMP: Final = "attention.clamp_kqv"
_STEP: Final = "interleave_moe_layer_step"
MIXTURE_SETTINGS: Final = frozenset({EXPERT_COUNT, EXPERTS_USED, _INNER})
"""Settings that mixtures share."""


def expert_layer(module: str, gate: str, names: tuple[str, str, str]) -> Mapping[str, str]:
    """Names of a router's and experts' tensors in a layer.

    Args:
        module: of the mixture.
        gate: of the router, in it.
        names: of gate, up and down.
    """
    parts = zip(("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"), names, strict=True)
    stacks = {part: f"{module}.experts.{name}" for part, name in parts}
    return {"ffn_gate_inp": f"{module}.{gate}", **stacks}


PROJECTIONS: Final = ("gate_proj", "up_proj", "down_proj")
"""Names of gate, up and down in most families."""


def inner_size(header: GgufHeader) -> int:
    """The inner size of an expert."""
    key = header.own(_INNER)
    if key in header.metadata:
        return header.positive_int(key)
    # llama.cpp's default.
    return size_of(header, "feed_forward_length") // size_of(header, EXPERTS_USED)


def _mixtral_config(header: GgufHeader) -> Config:
    return {
        **decoder_config(header),
        "num_local_experts": size_of(header, EXPERT_COUNT),
        "num_experts_per_tok": size_of(header, EXPERTS_USED),
        "sliding_window": None,
    }


def _has_experts(header: GgufHeader) -> bool:
    return header.metadata.get(header.own(EXPERT_COUNT)) not in (None, 0)


def _qwen_config(header: GgufHeader, *, normalized: bool) -> Config:
    """Every layer has experts, and reads all positions; llama.cpp reads no switch of these.

    Args:
        header: of the file.
        normalized: the weights of a token's experts are divided by their sum.
    """
    return {
        **decoder_config(header),
        "num_experts": size_of(header, EXPERT_COUNT),
        "num_experts_per_tok": size_of(header, EXPERTS_USED),
        "moe_intermediate_size": inner_size(header),
        "norm_topk_prob": normalized,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "use_sliding_window": False,
    }


def _qwen2_moe_config(header: GgufHeader) -> Config:
    shared = header.own(_SHARED_INNER)
    return {
        **_qwen_config(header, normalized=False),
        "shared_expert_intermediate_size": (
            header.positive_int(shared)
            if shared in header.metadata
            else size_of(header, "feed_forward_length")
        ),
    }


def _qwen3_moe_config(header: GgufHeader) -> Config:
    config = _qwen_config(header, normalized=True)
    return {**config, "attention_bias": has_bias(header, "attn_q")}


def _gpt_oss_config(header: GgufHeader) -> Config:
    """Every other layer slides, the first one too; the gating's numbers are llama.cpp's own.

    The published models do not round the limits of YaRN's blend to whole frequencies.
    """
    config = decoder_config(header)
    layers = size_of(header, "block_count")
    scaling = cast("Config | None", config["rope_scaling"]) or {"rope_type": "default"}
    if scaling["rope_type"] == "yarn":
        scaling["truncate"] = False
    kinds = ["full_attention" if layer % 2 else "sliding_attention" for layer in range(layers)]
    return {
        **config,
        "rope_scaling": scaling,
        "intermediate_size": inner_size(header),
        "num_local_experts": size_of(header, EXPERT_COUNT),
        "num_experts_per_tok": size_of(header, EXPERTS_USED),
        "sliding_window": size_of(header, WINDOW),
        "layer_types": kinds,
        "attention_bias": has_bias(header, "attn_q"),
        "swiglu_alpha": 1.702,
        "swiglu_limit": 7.0,
    }


def _dbrx_config(header: GgufHeader) -> Config:
    if header.positive_float(header.own(EPSILON)) != 1e-5:
        raise header.unsupported(header.own(EPSILON), "it must be 1e-05")
    heads = size_of(header, "attention.head_count")
    clamp = header.own(_CLAMP)
    return {
        "d_model": size_of(header, "embedding_length"),
        "n_heads": heads,
        "n_layers": size_of(header, "block_count"),
        "max_seq_len": size_of(header, "context_length"),
        "vocab_size": vocab_size(header),
        "attn_config": {
            "kv_n_heads": kv_heads(header, heads),
            "clip_qkv": header.positive_float(clamp) if clamp in header.metadata else None,
            "rope_theta": rope_base(header),
        },
        "ffn_config": {
            "ffn_act_fn": {"name": "silu"},
            "ffn_hidden_size": size_of(header, "feed_forward_length"),
            "moe_num_experts": size_of(header, EXPERT_COUNT),
            "moe_top_k": size_of(header, EXPERTS_USED),
            "moe_normalize_expert_weights": 1.0,
        },
    }


def _dbrx_fused(config: Config) -> Mapping[str, FusedParts]:
    attention = cast("Mapping[str, int]", config["attn_config"])
    width, heads = cast("int", config["d_model"]), cast("int", config["n_heads"])
    rows = width // heads * attention["kv_n_heads"]
    return {"attn_qkv": qkv_parts("norm_attn_norm.attn", width, rows)}


def _llama4_config(header: GgufHeader) -> Config:
    """llama.cpp's own numbers of chunks and of temperatures, and every fourth layer not rotated.

    Models of 128 experts do not normalize queries and keys.
    """
    config = decoder_config(header)
    if header.own(WINDOW) in header.metadata:
        raise header.unsupported(header.own(WINDOW), "layers have chunks of 8192 tokens")
    experts = size_of(header, EXPERT_COUNT)
    return {
        **config,
        "intermediate_size": inner_size(header),
        "intermediate_size_mlp": config["intermediate_size"],
        "interleave_moe_layer_step": size_of(header, _STEP),
        "num_local_experts": experts,
        "num_experts_per_tok": size_of(header, EXPERTS_USED),
        "no_rope_layers": every_fourth_plain(header),
        "attention_chunk_size": 8192,
        "use_qk_norm": experts != 128,
        "attn_temperature_tuning": True,
        "floor_scale": 8192,
        "attn_scale": 0.1,
        "attention_bias": has_bias(header, "attn_q"),
    }


_MIXTRAL: Final = GgufArchitecture(
    name="llama",
    model_type="mixtral",
    hf_class="MixtralForCausalLM",
    layers="model.layers",
    whole=DECODER_NAMES,
    layer={**DECODER_LAYER, **expert_layer("block_sparse_moe", "gate", ("w1", "w3", "w2"))},
    settings=DECODER_SETTINGS | {EXPERT_COUNT, EXPERTS_USED},
    config=_mixtral_config,
    restore=ROTARY,
    fits=_has_experts,
)
_QWEN2_MOE: Final = GgufArchitecture(
    name="qwen2moe",
    model_type="qwen2_moe",
    hf_class="Qwen2MoeForCausalLM",
    layers="model.layers",
    whole=DECODER_NAMES,
    layer={
        **DECODER_LAYER,
        **expert_layer("mlp", "gate", PROJECTIONS),
        "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
        "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
        "ffn_up_shexp": "mlp.shared_expert.up_proj",
        "ffn_down_shexp": "mlp.shared_expert.down_proj",
    },
    settings=DECODER_SETTINGS | MIXTURE_SETTINGS | {_SHARED_INNER},
    config=_qwen2_moe_config,
    restore={"ffn_gate_inp_shexp": ONE_ROW},
)
_QWEN3_MOE: Final = GgufArchitecture(
    name="qwen3moe",
    model_type="qwen3_moe",
    hf_class="Qwen3MoeForCausalLM",
    layers="model.layers",
    whole=DECODER_NAMES,
    layer={**DECODER_LAYER, **HEAD_NORMS, **expert_layer("mlp", "gate", PROJECTIONS)},
    settings=DECODER_SETTINGS | MIXTURE_SETTINGS,
    config=_qwen3_moe_config,
)
_GPT_OSS: Final = GgufArchitecture(
    name="gpt-oss",
    model_type="gpt_oss",
    hf_class="GptOssForCausalLM",
    layers="model.layers",
    whole=DECODER_NAMES,
    layer={
        **DECODER_LAYER,
        **expert_layer("mlp", "router", PROJECTIONS),
        "post_attention_norm": "post_attention_layernorm",
        "attn_sinks.weight": "self_attn.sinks",
    },
    settings=DECODER_SETTINGS | MIXTURE_SETTINGS | {WINDOW},
    config=_gpt_oss_config,
)
_DBRX: Final = GgufArchitecture(
    name="dbrx",
    model_type="dbrx",
    hf_class="DbrxForCausalLM",
    layers="transformer.blocks",
    whole={
        "token_embd": "transformer.wte",
        "output_norm": "transformer.norm_f",
        "output": "lm_head",
    },
    layer={
        **expert_layer("ffn", "router.layer", ("w1", "v1", "w2")),
        "attn_norm": "norm_attn_norm.norm_1",
        "attn_output": "norm_attn_norm.attn.out_proj",
        "attn_output_norm": "norm_attn_norm.norm_2",
    },
    settings=SIZES | {EPSILON, EXPERT_COUNT, EXPERTS_USED, _CLAMP, "rope.freq_base"},
    config=_dbrx_config,
    fused=_dbrx_fused,
    in_config=frozenset(),
)
_LLAMA4: Final = GgufArchitecture(
    name="llama4",
    model_type="llama4_text",
    hf_class="Llama4ForCausalLM",
    layers="model.layers",
    whole=DECODER_NAMES,
    layer={
        **{part: name.replace("mlp.", "feed_forward.") for part, name in DECODER_LAYER.items()},
        **expert_layer("feed_forward", "router", PROJECTIONS),
        "ffn_gate_shexp": "feed_forward.shared_expert.gate_proj",
        "ffn_up_shexp": "feed_forward.shared_expert.up_proj",
        "ffn_down_shexp": "feed_forward.shared_expert.down_proj",
    },
    settings=DECODER_SETTINGS | MIXTURE_SETTINGS | {WINDOW, _STEP},
    config=_llama4_config,
)
MIXTURES: Final = (_MIXTRAL, _QWEN2_MOE, _QWEN3_MOE, _GPT_OSS, _DBRX, _LLAMA4)
