"""Small models of decoders without experts: OLMo-2, Phi-3, Gemma 2, StableLM, Falcon."""

from __future__ import annotations

from tests.oracles.family_oracle import ALL_AT_ONCE, DECODER, THETA, YARN, Oracle

DENSE: dict[str, Oracle] = {
    "olmo2": Oracle(
        "Olmo2",
        DECODER,
        {
            "plain": {},
            "tied": {"tie_word_embeddings": True, "rope_parameters": YARN},
            ALL_AT_ONCE: {"attention_bias": True, "rms_norm_eps": 1e-2, "rope_parameters": THETA},
        },
    ),
    "phi3": Oracle(
        "Phi3",
        {**DECODER, "pad_token_id": 0},
        {
            "plain": {},
            "a window": {"sliding_window": 4, "tie_word_embeddings": True},
            "a part rotated": {"rope_parameters": {**THETA, "partial_rotary_factor": 0.75}},
            ALL_AT_ONCE: {
                "sliding_window": 4,
                "max_position_embeddings": 4096,
                "rope_parameters": {
                    "rope_type": "longrope",
                    "rope_theta": 500.0,
                    "original_max_position_embeddings": 512,
                    "partial_rotary_factor": 0.75,
                    "short_factor": [1.0, 1.3, 2.1],
                    "long_factor": [2.0, 3.0, 5.0],
                },
            },
        },
    ),
    "gemma2": Oracle(
        "Gemma2",
        {
            **DECODER,
            "head_dim": 12,
            "query_pre_attn_scalar": 20,
            "sliding_window": 4,
            # Felt: scores and logits are larger.
            "attn_logit_softcapping": 3.0,
            "final_logit_softcapping": 2.0,
        },
        {
            "plain": {},
            "no bounds, not tied": {
                "attn_logit_softcapping": None,
                "final_logit_softcapping": None,
                "tie_word_embeddings": False,
            },
            ALL_AT_ONCE: {
                "attention_bias": True,
                "layer_types": ["full_attention", "sliding_attention"],
                "rope_parameters": THETA,
            },
        },
    ),
    "stablelm": Oracle(
        "StableLm",
        {**DECODER, "hidden_size": 64},
        {
            "plain": {},
            "biases": {"use_qkv_bias": True, "layer_norm_eps": 1e-2},
            "in parallel": {"use_parallel_residual": True, "tie_word_embeddings": True},
            ALL_AT_ONCE: {
                "qk_layernorm": True,
                "use_qkv_bias": True,
                "use_parallel_residual": True,
                "rope_parameters": {**THETA, "partial_rotary_factor": 0.5},
            },
        },
    ),
    "falcon": Oracle(
        "Falcon",
        {
            "vocab_size": 61,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "eos_token_id": 1,
            "bos_token_id": 1,
        },
        {
            "plain": {},
            "a head each": {"multi_query": False, "bias": True, "ffn_hidden_size": 40},
            "one after the other": {"parallel_attn": False, "tie_word_embeddings": False},
            # transformers' plain form of attention adds the biases twice.
            "linear biases": {
                "alibi": True,
                "multi_query": False,
                "parallel_attn": False,
                "attn_implementation": "sdpa",
            },
            "groups, one norm": {
                "new_decoder_architecture": True,
                "num_kv_heads": 2,
                "num_ln_in_parallel_attn": 1,
            },
            ALL_AT_ONCE: {
                "new_decoder_architecture": True,
                "num_kv_heads": 2,
                "bias": True,
                "rope_parameters": THETA,
            },
        },
    ),
}
