"""What llama.cpp's converter writes for families with experts, and for those with fused layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

from tests.oracles.gguf_converter import (
    Array,
    Converter,
    paired,
    plain_tensors,
    write_decoder,
    write_factors,
    write_sizes,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SIGMOID = gguf.ExpertGatingFuncType.SIGMOID


def _mixtral(writer: gguf.GGUFWriter, config: Any) -> None:
    write_decoder(writer, config)
    writer.add_expert_count(config.num_local_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)


def _mixtral_tensors(model: PreTrainedModel) -> Iterator[tuple[str, Array]]:
    for name, values in plain_tensors(model):
        renamed = name.replace("block_sparse_moe.experts", "feed_forward.experts")
        yield (renamed if renamed == name else renamed.removeprefix("model.")), values


def _qwen_moe(writer: gguf.GGUFWriter, config: Any) -> None:
    write_decoder(writer, config)
    writer.add_expert_count(config.num_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if config.model_type == "qwen2_moe":
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)


def _one_row(name: str, values: Array, config: Any) -> Array:
    """The converter leaves out dimensions of 1."""
    return values.squeeze() if name.endswith("shared_expert_gate.weight") else values


def _gpt_oss(writer: gguf.GGUFWriter, config: Any) -> None:
    write_decoder(writer, config)
    rope = config.rope_parameters
    if rope["rope_type"] == "yarn":
        _yarn(writer, rope)
    writer.add_sliding_window(config.sliding_window)
    writer.add_expert_count(config.num_local_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_feed_forward_length(config.intermediate_size)


def _yarn(writer: gguf.GGUFWriter, rope: Mapping[str, Any]) -> None:
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
    writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])


def _gpt_oss_tensors(model: PreTrainedModel) -> Iterator[tuple[str, Array]]:
    for name, values in plain_tensors(model):
        yield (f"{name}.weight" if name.endswith(".sinks") else name), values


def _dbrx(writer: gguf.GGUFWriter, config: Any) -> None:
    attention, experts = config.attn_config, config.ffn_config
    writer.add_block_count(config.n_layers)
    writer.add_context_length(config.max_seq_len)
    writer.add_embedding_length(config.d_model)
    writer.add_feed_forward_length(experts.ffn_hidden_size)
    writer.add_head_count(config.n_heads)
    writer.add_head_count_kv(attention.kv_n_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_clamp_kqv(attention.clip_qkv)
    writer.add_expert_count(experts.moe_num_experts)
    writer.add_expert_used_count(experts.moe_top_k)
    writer.add_layer_norm_eps(1e-5)


def _dbrx_tensors(model: PreTrainedModel) -> Iterator[tuple[str, Array]]:
    experts = model.config.ffn_config.moe_num_experts
    for name, tensor in model.state_dict().items():
        values, last = tensor.numpy(), name.rpartition(".")[2]
        if ".experts.mlp." not in name:
            yield name, values
            continue
        apart = values.reshape(experts, -1, values.shape[1])
        yield f"{name}.weight", apart.swapaxes(1, 2) if last == "w2" else apart


def _llama4(writer: gguf.GGUFWriter, config: Any) -> None:
    _mixtral(writer, config)
    writer.add_feed_forward_length(config.intermediate_size_mlp)
    writer.add_interleave_moe_layer_step(config.interleave_moe_layer_step)
    writer.add_expert_feed_forward_length(config.intermediate_size)


def _granite_moe(writer: gguf.GGUFWriter, config: Any) -> None:
    _mixtral(writer, config)
    write_factors(writer, config)
    if config.model_type == "granitemoeshared":
        writer.add_expert_shared_feed_forward_length(config.shared_intermediate_size)


def _granite_moe_tensors(model: PreTrainedModel) -> Iterator[tuple[str, Array]]:
    """The table knows experts as Mixtral's, and down as the stack of checkpoints."""
    for name, values in plain_tensors(model):
        renamed = name.replace("block_sparse_moe.shared_experts", "mlp.shared_mlp")
        renamed = renamed.replace(".experts.down_proj", ".output_linear")
        yield renamed.replace("block_sparse_moe.experts", "mlp.experts"), values


def _deepseek(writer: gguf.GGUFWriter, config: Any) -> None:
    write_latent(writer, config)
    writer.add_head_count_kv(1)
    writer.add_key_length(config.kv_lora_rank + config.qk_rope_head_dim)
    writer.add_value_length(config.kv_lora_rank)
    writer.add_key_length_mla(config.qk_nope_head_dim + config.qk_rope_head_dim)
    writer.add_value_length_mla(config.v_head_dim)


def write_latent(writer: gguf.GGUFWriter, config: Any) -> None:
    write_sizes(writer, config)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.qk_rope_head_dim)
    rope = config.rope_parameters
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        _yarn(writer, rope)
        writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])
    if config.q_lora_rank:
        writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    writer.add_leading_dense_block_count(config.first_k_dense_replace)
    writer.add_expert_count(config.n_routed_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    if config.n_group:
        writer.add_expert_group_count(config.n_group)
        writer.add_expert_group_used_count(config.topk_group)
    if config.model_type == "deepseek_v3":
        writer.add_expert_gating_func(SIGMOID)
        writer.add_expert_weights_norm(config.norm_topk_prob)


def _deepseek_tensors(model: PreTrainedModel) -> Iterator[tuple[str, Array]]:
    """Of ``kv_b_proj`` keys, turned, and values."""
    config: Any = model.config
    sizes = (config.num_attention_heads, config.qk_nope_head_dim + config.v_head_dim)
    for name, values in plain_tensors(model):
        if name.endswith("kv_b_proj.weight"):
            heads = values.reshape(*sizes, config.kv_lora_rank)
            keys, own = np.split(heads, [config.qk_nope_head_dim], axis=1)
            yield name.replace("kv_b_proj", "k_b_proj"), keys.swapaxes(1, 2)
            yield name.replace("kv_b_proj", "v_b_proj"), own
        else:
            yield name.replace("e_score_correction_bias", "e_score_correction.bias"), values


MIXTURES: Mapping[str, Converter] = {
    "mixtral": Converter(gguf.MODEL_ARCH.LLAMA, _mixtral, paired, _mixtral_tensors),
    "qwen2_moe": Converter(gguf.MODEL_ARCH.QWEN2MOE, _qwen_moe, _one_row),
    "qwen3_moe": Converter(gguf.MODEL_ARCH.QWEN3MOE, _qwen_moe),
    "gpt_oss": Converter(gguf.MODEL_ARCH.GPT_OSS, _gpt_oss, tensors=_gpt_oss_tensors),
    "dbrx": Converter(gguf.MODEL_ARCH.DBRX, _dbrx, tensors=_dbrx_tensors),
    "llama4_text": Converter(gguf.MODEL_ARCH.LLAMA4, _llama4),
    "granitemoe": Converter(
        gguf.MODEL_ARCH.GRANITE_MOE, _granite_moe, paired, _granite_moe_tensors
    ),
    "granitemoeshared": Converter(
        gguf.MODEL_ARCH.GRANITE_MOE, _granite_moe, paired, _granite_moe_tensors
    ),
    "deepseek_v2": Converter(gguf.MODEL_ARCH.DEEPSEEK2, _deepseek, tensors=_deepseek_tensors),
    "deepseek_v3": Converter(gguf.MODEL_ARCH.DEEPSEEK2, _deepseek, tensors=_deepseek_tensors),
}


def _as_held(model: PreTrainedModel) -> Iterator[tuple[str, Array]]:
    """Layers in one, as transformers has them."""
    yield from ((name, tensor.numpy()) for name, tensor in model.state_dict().items())


def _partial(writer: gguf.GGUFWriter, config: Any) -> None:
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    share = config.rope_parameters.get("partial_rotary_factor", 1.0)
    writer.add_rope_dimension_count(int(share * size))


def _phi3(writer: gguf.GGUFWriter, config: Any) -> None:
    write_decoder(writer, config)
    _partial(writer, config)
    rope = config.rope_parameters
    positions = config.max_position_embeddings
    original = rope.get("original_max_position_embeddings", positions)
    writer.add_rope_scaling_orig_ctx_len(original)
    writer.add_sliding_window(config.sliding_window or 0)
    if rope["rope_type"] == "longrope":
        stretched = np.log(positions / original) / np.log(original)
        writer.add_rope_scaling_attn_factors(float(np.sqrt(1 + stretched)))
        for name in ("long", "short"):
            values = np.array(rope[f"{name}_factor"], np.float32)
            writer.add_tensor(f"rope_factors_{name}.weight", values)


def _glm(writer: gguf.GGUFWriter, config: Any) -> None:
    write_decoder(writer, config)
    _partial(writer, config)


def _chatglm(writer: gguf.GGUFWriter, config: Any) -> None:
    write_sizes(writer, config)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    _partial(writer, config)


def _falcon(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_context_length(2048)
    writer.add_tensor_data_layout("jploski")
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(4 * config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_kv_heads if config.new_decoder_architecture else 1)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)


def _sorted_groups(name: str, values: Array, config: Any) -> Array:
    """All of q, of k and of v from the rows of each group of heads."""
    if "query_key_value" not in name:
        return values
    kv = config.num_kv_heads if config.new_decoder_architecture else 1
    group, size = config.num_attention_heads // kv, config.hidden_size // config.num_attention_heads
    groups = values.reshape(kv, group + 2, size, *values.shape[1:])
    parts = groups[:, :-2], groups[:, -2:-1], groups[:, -1:]
    return np.concatenate([part.reshape(-1, *values.shape[1:]) for part in parts])


FUSED: Mapping[str, Converter] = {
    "phi3": Converter(gguf.MODEL_ARCH.PHI3, _phi3, tensors=_as_held),
    "glm": Converter(gguf.MODEL_ARCH.CHATGLM, _chatglm, tensors=_as_held),
    "glm4": Converter(gguf.MODEL_ARCH.GLM4, _glm, tensors=_as_held),
    "falcon": Converter(gguf.MODEL_ARCH.FALCON, _falcon, _sorted_groups, _as_held),
}
