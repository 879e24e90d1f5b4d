"""GGUF architectures with experts: Mixtral, Qwen2-MoE, Qwen3-MoE, GPT-OSS, DBRX, Llama 4, DeepSeek.

A layer's experts are one stack ``blk.0.ffn_gate_exps.weight`` [E,I,H], as those of graphgen's
families are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, cast

from graphgen.runtime.checkpoint.gguf_architecture import (
    DECODER_LAYER,
    DECODER_SETTINGS,
    EPSILON,
    HEAD_NORMS,
    ONE_ROW,
    RMS_EPSILON,
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
    read_settings,
    rope_base,
    size_of,
    vocab_size,
)
from graphgen.runtime.checkpoint.gguf_header import GgufHeader
from graphgen.runtime.checkpoint.gguf_rope import read_latent_scaling

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


def shared_expert(module: str) -> Mapping[str, str]:
    """Names of the tensors of experts that every token takes, in their module."""
    return {f"ffn_{part}_shexp": f"{module}.{part}_proj" for part in ("gate", "up", "down")}


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


_GATING, _NORMALIZED, _SCALE = "expert_gating_func", "expert_weights_norm", "expert_weights_scale"
_GROUPS, _GROUPS_USED = "expert_group_count", "expert_group_used_count"
_SHARED, _DENSE = "expert_shared_count", "leading_dense_block_count"
_KEY, _VALUE = "attention.key_length", "attention.value_length"
_Q_RANK, _KV_RANK = "attention.q_lora_rank", "attention.kv_lora_rank"
# gguf.constants.ExpertGatingFuncType
_SOFTMAX, _SIGMOID = 1, 2


def _count(header: GgufHeader, key: str) -> int:
    """A number from the file, at least 0; 0 if the file does not state it."""
    value = header.optional_int(header.own(key)) or 0
    if value < 0:
        raise header.bad_value(header.own(key), f"is {value}; it must be at least 0")
    return value


def _head_sizes(header: GgufHeader) -> Config:
    """Sizes of a head's keys and values; the plain keys are of latents in newer files."""
    latent = header.own(f"{_KEY}_mla") in header.metadata
    key, value = (f"{_KEY}_mla", f"{_VALUE}_mla") if latent else (_KEY, _VALUE)
    rotated = size_of(header, "rope.dimension_count")
    whole = size_of(header, key)
    if whole <= rotated:
        what = f"is {whole}; {rotated} elements of a key are rotated, and there are others"
        raise header.bad_value(header.own(key), what)
    return {
        "qk_rope_head_dim": rotated,
        "qk_nope_head_dim": whole - rotated,
        "v_head_dim": size_of(header, value),
    }


def _config(header: GgufHeader) -> Config:
    """Settings of both models; llama.cpp takes no groups of experts where the file names none."""
    heads, theta = size_of(header, "attention.head_count"), rope_base(header)
    sizes = {
        "hidden_size": "embedding_length",
        "intermediate_size": "feed_forward_length",
        "num_hidden_layers": "block_count",
        "rms_norm_eps": RMS_EPSILON,
        "max_position_embeddings": "context_length",
        "kv_lora_rank": _KV_RANK,
        "n_routed_experts": "expert_count",
        "num_experts_per_tok": "expert_used_count",
    }
    parts = _head_sizes(header)
    rotated = size_of(header, "rope.dimension_count")
    return {
        "hidden_act": "silu",
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        **read_settings(header, sizes),
        **parts,
        "rope_theta": theta,
        "rope_scaling": read_latent_scaling(header, rotated, theta),
        "q_lora_rank": _count(header, _Q_RANK) or None,
        "moe_intermediate_size": inner_size(header),
        "n_shared_experts": _count(header, _SHARED) or None,
        "first_k_dense_replace": _count(header, _DENSE),
        "moe_layer_freq": 1,
        "routed_scaling_factor": header.positive_float(header.own(_SCALE), 1.0),
        "norm_topk_prob": header.optional_bool(header.own(_NORMALIZED)) is True,
        "n_group": max(_count(header, _GROUPS), 1),
        "topk_group": max(_count(header, _GROUPS_USED), 1),
        "vocab_size": vocab_size(header),
    }


def _second_config(header: GgufHeader) -> Config:
    config, gating = _config(header), header.own(_GATING)
    if header.metadata.get(gating) not in (None, 0, _SOFTMAX):
        raise header.unsupported(gating, f"supported: {_SOFTMAX} (softmax), {_SIGMOID} (sigmoid)")
    grouped = config["n_group"] != 1
    return {**config, "topk_method": "group_limited_greedy" if grouped else "greedy"}


def _third_config(header: GgufHeader) -> Config:
    return {**_config(header), "topk_method": "noaux_tc", "rope_interleave": True}


def _is_third(header: GgufHeader) -> bool:
    return header.metadata.get(header.own(_GATING)) == _SIGMOID


_DEEPSEEK_V2: Final = GgufArchitecture(
    name="deepseek2",
    model_type="deepseek_v2",
    hf_class="DeepseekV2ForCausalLM",
    layer={
        **DECODER_LAYER,
        **expert_layer("mlp", "gate", PROJECTIONS),
        "attn_q_a": "self_attn.q_a_proj",
        "attn_q_a_norm": "self_attn.q_a_layernorm",
        "attn_q_b": "self_attn.q_b_proj",
        "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
        "attn_kv_a_norm": "self_attn.kv_a_layernorm",
        "attn_kv_b": "self_attn.kv_b_proj",
        **shared_expert("mlp.shared_experts"),
        "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
    },
    settings=DECODER_SETTINGS
    | MIXTURE_SETTINGS
    | {_GATING, _NORMALIZED, _SCALE, _GROUPS, _GROUPS_USED, _SHARED, _DENSE}
    | {_Q_RANK, _KV_RANK, f"{_KEY}_mla", f"{_VALUE}_mla"},
    config=_second_config,
)
MIXTURES: Final = (
    GgufArchitecture(
        name="llama",
        model_type="mixtral",
        hf_class="MixtralForCausalLM",
        layer={**DECODER_LAYER, **expert_layer("block_sparse_moe", "gate", ("w1", "w3", "w2"))},
        settings=DECODER_SETTINGS | {EXPERT_COUNT, EXPERTS_USED},
        config=_mixtral_config,
        restore=ROTARY,
        fits=_has_experts,
    ),
    GgufArchitecture(
        name="qwen2moe",
        model_type="qwen2_moe",
        hf_class="Qwen2MoeForCausalLM",
        layer={
            **DECODER_LAYER,
            **expert_layer("mlp", "gate", PROJECTIONS),
            "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
            **shared_expert("mlp.shared_expert"),
        },
        settings=DECODER_SETTINGS | MIXTURE_SETTINGS | {_SHARED_INNER},
        config=_qwen2_moe_config,
        restore={"ffn_gate_inp_shexp": ONE_ROW},
    ),
    GgufArchitecture(
        name="qwen3moe",
        model_type="qwen3_moe",
        hf_class="Qwen3MoeForCausalLM",
        layer={**DECODER_LAYER, **HEAD_NORMS, **expert_layer("mlp", "gate", PROJECTIONS)},
        settings=DECODER_SETTINGS | MIXTURE_SETTINGS,
        config=_qwen3_moe_config,
    ),
    GgufArchitecture(
        name="gpt-oss",
        model_type="gpt_oss",
        hf_class="GptOssForCausalLM",
        layer={
            **DECODER_LAYER,
            **expert_layer("mlp", "router", PROJECTIONS),
            "post_attention_norm": "post_attention_layernorm",
            "attn_sinks.weight": "self_attn.sinks",
        },
        settings=DECODER_SETTINGS | MIXTURE_SETTINGS | {WINDOW},
        config=_gpt_oss_config,
    ),
    GgufArchitecture(
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
    ),
    GgufArchitecture(
        name="llama4",
        model_type="llama4_text",
        hf_class="Llama4ForCausalLM",
        layer={
            **{part: name.replace("mlp.", "feed_forward.") for part, name in DECODER_LAYER.items()},
            **expert_layer("feed_forward", "router", PROJECTIONS),
            **shared_expert("feed_forward.shared_expert"),
        },
        settings=DECODER_SETTINGS | MIXTURE_SETTINGS | {WINDOW, _STEP},
        config=_llama4_config,
    ),
    replace(
        _DEEPSEEK_V2,
        model_type="deepseek_v3",
        hf_class="DeepseekV3ForCausalLM",
        config=_third_config,
        fits=_is_third,
    ),
    _DEEPSEEK_V2,
)
