"""Random small models of every family, as transformers makes and runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.oracles.dense_families import DENSE
from tests.oracles.family_oracle import (
    ALL_AT_ONCE,
    DECODER,
    LLAMA3,
    SECOND_SLIDES,
    SLIDES,
    THETA,
    YARN,
    Oracle,
)
from tests.oracles.llama_like import LLAMA_LIKE
from tests.oracles.stored_names import checkpoint_tensors

if TYPE_CHECKING:
    from transformers import PreTrainedModel


_DEEPSEEK_YARN = {**YARN, "mscale": 0.7, "mscale_all_dim": 0.5}
ORACLES: dict[str, Oracle] = {
    "llama": Oracle(
        "Llama",
        DECODER,
        {
            "plain": {},
            "llama 3 positions": {"rope_parameters": LLAMA3},
            "linear positions": {
                "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}
            },
            "yarn positions": {"rope_parameters": YARN},
            "tied": {"tie_word_embeddings": True},
            "biases": {"attention_bias": True, "mlp_bias": True},
            "its own head size": {"head_dim": 12, "rms_norm_eps": 1e-3},
            "a head each": {"num_key_value_heads": 4},
            "one head for all": {"num_key_value_heads": 1},
            "another activation": {"hidden_act": "gelu_pytorch_tanh"},
            ALL_AT_ONCE: {
                "attention_bias": True,
                "mlp_bias": True,
                "head_dim": 12,
                "rope_parameters": THETA,
            },
        },
    ),
    "mistral": Oracle(
        "Mistral",
        DECODER,
        {
            "plain": {"sliding_window": None},
            "a window": {"sliding_window": 4},
            "its own head size": {"head_dim": 12, "sliding_window": 3},
            "tied": {"tie_word_embeddings": True, "sliding_window": 200},
            ALL_AT_ONCE: {"head_dim": 12, "sliding_window": 4, "rope_parameters": THETA},
        },
    ),
    "qwen2": Oracle(
        "Qwen2",
        DECODER,
        {
            "plain": {},
            "a window": SECOND_SLIDES,
            "tied": {"tie_word_embeddings": True, "rope_parameters": LLAMA3},
            ALL_AT_ONCE: {**SECOND_SLIDES, "rope_parameters": THETA},
        },
    ),
    "qwen3": Oracle(
        "Qwen3",
        {**DECODER, "head_dim": 12},
        {
            "plain": {},
            "a window": SECOND_SLIDES,
            "biases": {"attention_bias": True, "tie_word_embeddings": True},
            "square": {"head_dim": 8, "rms_norm_eps": 1e-2},
            ALL_AT_ONCE: {**SECOND_SLIDES, "attention_bias": True, "rope_parameters": THETA},
        },
    ),
    "gemma3_text": Oracle(
        "Gemma3",
        {
            **DECODER,
            "head_dim": 12,
            "query_pre_attn_scalar": 20,
            "sliding_window": 4,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        {
            "plain": {},
            "biases, not tied": {"attention_bias": True, "tie_word_embeddings": False},
            "all slide": {"layer_types": ["sliding_attention"] * 2, "head_dim": 8},
            ALL_AT_ONCE: {
                "attention_bias": True,
                "rope_parameters": {
                    "full_attention": THETA,
                    "sliding_attention": {**THETA, "rope_theta": 70.0},
                },
            },
        },
        text="Text",
    ),
    "gpt2": Oracle(
        "GPT2",
        {"vocab_size": 61, "n_positions": 300, "n_embd": 32, "n_layer": 2, "n_head": 4},
        {
            "plain": {},
            "its own MLP": {"n_inner": 40, "activation_function": "relu"},
            "not tied": {"tie_word_embeddings": False, "layer_norm_epsilon": 1e-2},
            "scaled by layer": {"scale_attn_by_inverse_layer_idx": True},
            "not scaled": {"scale_attn_weights": False},
            "odd heads": {"n_embd": 24, "n_head": 3},
            ALL_AT_ONCE: {"n_inner": 40, "n_embd": 24, "n_head": 3, "tie_word_embeddings": False},
        },
        head="LMHeadModel",
    ),
    "opt": Oracle(
        "OPT",
        {
            "vocab_size": 61,
            "hidden_size": 32,
            "ffn_dim": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "max_position_embeddings": 300,
            "init_std": 0.3,
        },
        {
            "plain": {},
            "norms behind, projected": {"do_layer_norm_before": False, "word_embed_proj_dim": 20},
            "no last norm": {"_remove_final_layer_norm": True, "activation_function": "gelu_new"},
            "no biases, not tied": {"enable_bias": False, "tie_word_embeddings": False},
            ALL_AT_ONCE: {"do_layer_norm_before": False, "word_embed_proj_dim": 20},
        },
    ),
    "bloom": Oracle(
        "Bloom",
        {"vocab_size": 61, "hidden_size": 32, "n_layer": 2, "n_head": 4},
        {
            "plain": {},
            "no power of two": {"hidden_size": 24, "n_head": 6},
            "residual after the norm": {"apply_residual_connection_post_layernorm": True},
            ALL_AT_ONCE: {"hidden_size": 24, "n_head": 6, "tie_word_embeddings": False},
            "not tied": {"tie_word_embeddings": False, "layer_norm_epsilon": 1e-2},
        },
    ),
    "gptj": Oracle(
        "GPTJ",
        {
            "vocab_size": 61,
            "n_positions": 300,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "rotary_dim": 4,
        },
        {
            "plain": {},
            "rotated whole": {"rotary_dim": 8, "n_inner": 40, "activation_function": "relu"},
            ALL_AT_ONCE: {"rotary_dim": 6, "n_inner": 40},
        },
    ),
    "gpt_neox": Oracle(
        "GPTNeoX",
        {
            "vocab_size": 61,
            "hidden_size": 64,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
        },
        {
            "plain": {},
            "rotated whole": {
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": 500.0,
                    "partial_rotary_factor": 1.0,
                }
            },
            "one after the other": {"use_parallel_residual": False, "hidden_act": "relu"},
            "no biases, tied": {"attention_bias": False, "tie_word_embeddings": True},
            ALL_AT_ONCE: {"rope_parameters": {**THETA, "partial_rotary_factor": 0.5}},
        },
    ),
    "mixtral": Oracle(
        "Mixtral",
        {**DECODER, "num_local_experts": 5, "num_experts_per_tok": 2},
        {
            "plain": {},
            "one expert": {"num_experts_per_tok": 1, "sliding_window": 4},
            "all experts": {"num_experts_per_tok": 5, "hidden_act": "gelu_pytorch_tanh"},
            ALL_AT_ONCE: {"head_dim": 12, "sliding_window": 4, "rope_parameters": THETA},
        },
    ),
    "qwen2_moe": Oracle(
        "Qwen2Moe",
        {
            **DECODER,
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 20,
            "shared_expert_intermediate_size": 28,
        },
        {
            "plain": {},
            "weights that sum to 1": {"norm_topk_prob": True, "tie_word_embeddings": True},
            "one dense layer": {"mlp_only_layers": [0]},
            ALL_AT_ONCE: {**SLIDES, "decoder_sparse_step": 2, "rope_parameters": THETA},
        },
    ),
    "qwen3_moe": Oracle(
        "Qwen3Moe",
        {
            **DECODER,
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 20,
            "head_dim": 12,
        },
        {
            "plain": {},
            "weights that sum to 1": {"norm_topk_prob": True, "tie_word_embeddings": True},
            ALL_AT_ONCE: {
                "use_sliding_window": True,
                "sliding_window": 4,
                "attention_bias": True,
                "decoder_sparse_step": 2,
                "rope_parameters": THETA,
            },
        },
    ),
    "gpt_oss": Oracle(
        "GptOss",
        {
            **DECODER,
            "num_local_experts": 5,
            "num_experts_per_tok": 2,
            "head_dim": 12,
            "sliding_window": 4,
            "layer_types": ["sliding_attention", "full_attention"],
            # Felt: the products of these weights are larger.
            "swiglu_limit": 0.7,
            "rope_parameters": {**YARN, "truncate": False},
        },
        {
            "plain": {},
            "no biases, tied": {"attention_bias": False, "tie_word_embeddings": True},
            ALL_AT_ONCE: {
                "layer_types": ["full_attention", "sliding_attention"],
                "swiglu_alpha": 1.3,
                "num_experts_per_tok": 3,
                "rope_parameters": THETA,
            },
        },
    ),
}
_LATENT = {
    **DECODER,
    "num_key_value_heads": 4,
    "q_lora_rank": 20,
    "kv_lora_rank": 12,
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 6,
    "v_head_dim": 7,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 20,
    "first_k_dense_replace": 1,
}
ORACLES |= {
    "deepseek_v2": Oracle(
        "DeepseekV2",
        {**_LATENT, "routed_scaling_factor": 1.7},
        {
            "plain": {"n_shared_experts": 1},
            "some groups": {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2},
            "queries of hidden states": {"q_lora_rank": None, "rope_parameters": _DEEPSEEK_YARN},
            ALL_AT_ONCE: {
                "topk_method": "group_limited_greedy",
                "n_group": 2,
                "topk_group": 1,
                "attention_bias": True,
                "mlp_bias": True,
                "rope_parameters": _DEEPSEEK_YARN,
            },
        },
    ),
    "granitemoe": Oracle(
        "GraniteMoe",
        {
            **DECODER,
            "num_local_experts": 5,
            "num_experts_per_tok": 2,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.4,
            "attention_multiplier": 0.2,
            "logits_scaling": 5.0,
        },
        {
            "plain": {},
            "one expert, tied": {"num_experts_per_tok": 1, "tie_word_embeddings": True},
            ALL_AT_ONCE: {"attention_bias": True, "rope_parameters": THETA},
        },
    ),
    "deepseek_v3": Oracle(
        "DeepseekV3",
        {**_LATENT, "n_group": 4, "topk_group": 2},
        {
            "plain": {},
            "halves": {"rope_interleave": False, "norm_topk_prob": False, "q_lora_rank": None},
            "no groups": {"n_group": 1, "topk_group": 1, "tie_word_embeddings": True},
            ALL_AT_ONCE: {"attention_bias": True, "rope_parameters": _DEEPSEEK_YARN},
        },
    ),
    "llama4_text": Oracle(
        "Llama4",
        {
            **DECODER,
            "intermediate_size": 20,
            "intermediate_size_mlp": 28,
            "num_local_experts": 5,
            "head_dim": 8,
            "pad_token_id": None,
            "no_rope_layer_interval": 2,
            "attention_chunk_size": 4,
            "floor_scale": 3,
            "attn_scale": 0.7,
        },
        {
            "plain": {},
            "dense layers": {"interleave_moe_layer_step": 2, "use_qk_norm": False},
            "two experts": {"num_experts_per_tok": 2, "attn_temperature_tuning": False},
            "chunks without rotation": {
                "layer_types": ["full_attention", "chunked_attention"],
                "tie_word_embeddings": True,
            },
            ALL_AT_ONCE: {
                "interleave_moe_layer_step": 2,
                "attention_bias": True,
                "head_dim": 12,
                "rope_parameters": THETA,
            },
        },
        text="Text",
    ),
    **DENSE,
    **LLAMA_LIKE,
    "dbrx": Oracle(
        "Dbrx",
        {
            "d_model": 32,
            "n_heads": 4,
            "n_layers": 2,
            "vocab_size": 61,
            "max_seq_len": 300,
            # Felt by some of the queries, keys and values.
            "attn_config": {"kv_n_heads": 2, "clip_qkv": 2.0, "rope_theta": 10000.0},
            "ffn_config": {"ffn_hidden_size": 20, "moe_num_experts": 5, "moe_top_k": 2},
        },
        {
            "plain": {},
            ALL_AT_ONCE: {
                "attn_config": {"kv_n_heads": 4, "clip_qkv": 0.5, "rope_theta": 500.0},
                "ffn_config": {
                    "ffn_hidden_size": 20,
                    "moe_num_experts": 5,
                    "moe_top_k": 3,
                    "moe_normalize_expert_weights": None,
                    "ffn_act_fn": {"name": "gelu_pytorch_tanh"},
                },
                "rope_parameters": THETA,
            },
        },
    ),
}
CASES = [(family, variant) for family, oracle in ORACLES.items() for variant in oracle.variants]


def save(model: PreTrainedModel, folder: Path) -> None:
    """The model as a checkpoint folder, as ``save_pretrained`` writes it."""
    model.save_pretrained(folder)


def save_as(model: PreTrainedModel, folder: Path, form: str) -> None:
    """The model in one of :data:`FORMS`.

    The PyTorch forms are what transformers wrote before it wrote safetensors: the tensors by name,
    tied ones under both names and in one storage.
    """
    kind, parts = form.split()
    size = "20KB" if parts == "sharded" else "1GB"
    if kind == "safetensors":
        model.save_pretrained(folder, max_shard_size=size)
        return
    import torch
    from huggingface_hub import split_torch_state_dict_into_shards

    folder.mkdir(exist_ok=True)
    model.config.save_pretrained(folder)
    tensors = checkpoint_tensors(model)
    split = split_torch_state_dict_into_shards(
        tensors, filename_pattern="pytorch_model{suffix}.bin", max_shard_size=size
    )
    for file, names in split.filename_to_tensors.items():
        torch.save({name: tensors[name] for name in names}, folder / file)
    if split.is_sharded:
        index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))


FORMS = ("safetensors single", "safetensors sharded", "torch single", "torch sharded")


def save_tokenizer(folder: Path) -> None:
    """A byte-level BPE as GPT-2 and BLOOM have, of 300 tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=299, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(["the cat sat on the mat, the cat saw that"] * 3, trainer)
    backend.save(str(folder / "tokenizer.json"))
