"""The decoder of Llama-like families: pre-norm, RoPE, grouped queries, a gated MLP or experts.

Llama, Mistral, Qwen2 and Qwen3 differ in switches: biases, norms of q and k, sliding windows.
"""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.ir import DType, Value
from graphgen.ir.dtype import f32
from graphgen.models.decoders.decoder_config import DecoderConfig
from graphgen.nn import (
    AttentionConfig,
    MixtureConfig,
    Rotary,
    StepInputs,
    causal_mask,
    embed,
    gated_mlp,
    lm_head,
    mixture,
    rms_norm,
    rotary,
    self_attention,
)

# Module of the embedding table.
EMBEDDING = "model.embed_tokens"


def body(b: Builder, config: DecoderConfig, tokens: Value, step: StepInputs, dtype: DType) -> Value:
    """Embedding, layers and last norm: hidden states [B,S,E].

    The residual stream is f32 for every ``dtype``: it sums two addends per layer, some of them
    hundreds of times larger than the rest, and 8 bits of mantissa lose the small ones.
    """
    turns = rotary(b, step, config.rope_frequencies(), config.rope.attention_factor)
    attentions = [config.attention(layer) for layer in range(config.num_hidden_layers)]
    windows = dict.fromkeys(attention.window for attention in attentions)
    masks = {window: causal_mask(b, step, window) for window in windows}
    epsilon = config.rms_norm_eps
    with b.scope("model"):
        x = embed(b, "embed_tokens", tokens, config.vocab_size, config.hidden_size, dtype)
        x = b.convert(x, f32)
        for layer, attention in enumerate(attentions):
            step.keep(x)
            mask = masks[attention.window]
            with b.scope(f"layers.{layer}"):
                h = rms_norm(b, "input_layernorm", x, epsilon, dtype)
                experts = config.mixture(layer)
                x = decoder_layer(b, config, x, h, attention, step, mask, turns, experts)
        return rms_norm(b, "norm", x, epsilon, dtype)


def decoder_layer(
    b: Builder,
    config: DecoderConfig,
    x: Value,
    h: Value,
    attention: AttentionConfig,
    step: StepInputs,
    mask: Value,
    turns: Rotary,
    experts: MixtureConfig | None = None,
) -> Value:
    """The residual stream x f32 [B,S,E] plus attention of its norm h [B,S,K], then plus the MLP.

    With ``experts`` these take the place of the MLP.
    """
    dtype, epsilon = h.dtype, config.rms_norm_eps

    def normalize(name: str, x: Value) -> Value:
        return rms_norm(b, name, x, epsilon, dtype)

    x = x + self_attention(
        b,
        h,
        attention,
        step,
        mask,
        turns,
        width=config.hidden_size,
        dtype=f32,
        normalize=normalize if config.qk_norm else None,
    )
    h = normalize("post_attention_layernorm", x)
    if experts is not None:
        return x + mixture(b, h, experts, config.hidden_act, f32)
    return x + gated_mlp(
        b,
        h,
        config.intermediate_size,
        activation=config.hidden_act,
        bias=config.mlp_bias,
        dtype=f32,
    )


def head(b: Builder, config: DecoderConfig, x: Value) -> Value:
    """Logits f32 [..., V] of x [..., E]."""
    tied = EMBEDDING if config.tie_word_embeddings else ""
    return lm_head(b, x, config.vocab_size, tied=tied)
