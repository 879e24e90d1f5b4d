"""Small models of Llama's decoder with one thing more: SmolLM3, Granite, GLM-4."""

from __future__ import annotations

from tests.oracles.family_oracle import ALL_AT_ONCE, DECODER, SLIDES, THETA, Oracle


def _glm(name: str) -> Oracle:
    return Oracle(
        name,
        {**DECODER, "head_dim": 12, "pad_token_id": None, "eos_token_id": 1},
        {
            "plain": {},
            "no biases, tied": {"attention_bias": False, "tie_word_embeddings": True},
            ALL_AT_ONCE: {
                "head_dim": 16,
                "rms_norm_eps": 1e-3,
                "rope_parameters": {**THETA, "partial_rotary_factor": 0.25},
            },
        },
    )


_BIASES = {"attention_bias": True, "mlp_bias": True}
LLAMA_LIKE: dict[str, Oracle] = {
    "smollm3": Oracle(
        "SmolLM3",
        {
            **DECODER,
            "pad_token_id": None,
            "no_rope_layer_interval": 2,
            "tie_word_embeddings": False,
        },
        {
            "plain": {},
            "a window": SLIDES,
            "no rotation, tied": {"no_rope_layers": [0, 0], "tie_word_embeddings": True},
            ALL_AT_ONCE: {**SLIDES, **_BIASES, "rope_parameters": THETA},
        },
    ),
    "granite": Oracle(
        "Granite",
        {
            **DECODER,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.4,
            "attention_multiplier": 0.2,
            "logits_scaling": 5.0,
        },
        {
            "plain": {},
            "the scores alone": {
                "embedding_multiplier": 1.0,
                "residual_multiplier": 1.0,
                "logits_scaling": 1.0,
                "tie_word_embeddings": True,
            },
            ALL_AT_ONCE: {**_BIASES, "rope_parameters": THETA},
        },
    ),
    "glm": _glm("Glm"),
    "glm4": _glm("Glm4"),
}
