"""The decoder of Llama-like families: RMS norms, RoPE, grouped queries, a gated MLP or experts.

Llama, Mistral, Qwen2, Qwen3 and OLMo-2 differ in switches: biases, places of norms, norms of q and
k, sliding windows.
"""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.ir import DType, Value
from graphgen.ir.dtype import f32
from graphgen.models.decoder_config import DecoderConfig
from graphgen.nn import (
    AttentionConfig,
    MixtureConfig,
    Normalize,
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
    frequencies, factor = config.rope_frequencies(), config.rope.attention_factor
    turns = rotary(b, step, frequencies, factor, config.rope_pairs, config.long_frequencies())
    attentions = [config.attention(layer) for layer in range(config.num_hidden_layers)]
    windows = dict.fromkeys(attention.window for attention in attentions)
    masks = {window: causal_mask(b, step, window) for window in windows}
    with b.scope("model"):
        x = embed(b, "embed_tokens", tokens, config.vocab_size, config.hidden_size, dtype)
        x = _times(b.convert(x, f32), config.multipliers.embedding)
        for layer, attention in enumerate(attentions):
            step.keep(x)
            mask = masks[attention.window]
            with b.scope(f"layers.{layer}"):
                h = _normalized(b, config, config.norms.attention_in, x, dtype)
                experts = config.mixture(layer)
                x = decoder_layer(b, config, x, h, attention, step, mask, turns, experts)
        return rms_norm(b, "norm", x, config.rms_norm_eps, dtype)


def _normalized(b: Builder, config: DecoderConfig, name: str, x: Value, dtype: DType) -> Value:
    """The norm ``name`` of x in ``dtype``; x itself where there is no such norm."""
    return rms_norm(b, name, x, config.rms_norm_eps, dtype) if name else b.convert(x, dtype)


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
    dtype, norms = h.dtype, config.norms
    out = self_attention(
        b,
        h,
        attention,
        step,
        mask,
        turns,
        width=config.hidden_size,
        dtype=f32,
        normalize=_query_key_norm(b, config, dtype),
    )
    x = x + _addend(b, config, norms.attention_out, out, dtype)
    h = _normalized(b, config, norms.mlp_in, x, dtype)
    if experts is not None:
        out = mixture(b, h, experts, config.hidden_act, f32)
    else:
        activation, bias = config.hidden_act, config.mlp_bias
        size = config.intermediate_size
        out = gated_mlp(b, h, size, activation=activation, bias=bias, dtype=f32)
    return x + _addend(b, config, norms.mlp_out, out, dtype)


def _addend(b: Builder, config: DecoderConfig, name: str, out: Value, dtype: DType) -> Value:
    """The addend of the residual stream: out f32, after the norm ``name`` if there is one."""
    added = b.convert(_normalized(b, config, name, out, dtype), f32) if name else out
    return _times(added, config.multipliers.residual)


def _times(x: Value, factor: float) -> Value:
    return x if factor == 1 else x * factor


def _query_key_norm(b: Builder, config: DecoderConfig, dtype: DType) -> Normalize | None:
    """The norm of q and k [B,S,H,D]: of each head or of all together."""

    def of_heads(name: str, x: Value) -> Value:
        return rms_norm(b, name, x, config.rms_norm_eps, dtype)

    def of_all(name: str, x: Value) -> Value:
        batch, active, heads, size = x.shape
        return b.reshape(of_heads(name, b.reshape(x, (batch, active, heads * size))), x.shape)

    if config.qk_norm_whole:
        return of_all
    return of_heads if config.qk_norm else None


def head(b: Builder, config: DecoderConfig, x: Value) -> Value:
    """Logits f32 [..., V] of x [..., E]."""
    tied = EMBEDDING if config.tie_word_embeddings else ""
    logits, divisor = lm_head(b, x, config.vocab_size, tied=tied), config.multipliers.logits
    return logits if divisor == 1 else logits / divisor
