"""Gemma's decoder: norms around attention and MLP, weights of norms less 1, scaled embeddings.

Layers with a window have positions of their own in Gemma 3; scores and logits are brought within
bounds in Gemma 2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from graphgen.build import Builder
from graphgen.ir import DType, Value
from graphgen.ir.dtype import f32
from graphgen.models import decoder
from graphgen.models.decoder_config import DecoderConfig, smaller, wider
from graphgen.models.layer_types import SLIDING, ends, kinds
from graphgen.models.twins import WIDE_WINDOW
from graphgen.nn import (
    AttentionConfig,
    RopeConfig,
    StepInputs,
    causal_mask,
    embed,
    gated_mlp,
    inverse_frequencies,
    rotary,
    self_attention,
)


@dataclass(frozen=True, slots=True)
class GemmaConfig(DecoderConfig):
    """Sizes and switches under Hugging Face's names; ``rope`` applies to layers without a window.

    Attributes:
        sliding_window: window of the layers of type ``sliding_attention``.
        layer_types: one per layer.
        query_pre_attn_scalar: scores are divided by its square root.
        attention_bias: q, k, v and o have a bias.
    """

    sliding_window: int = 4096
    layer_types: tuple[str, ...] = ()
    query_pre_attn_scalar: int = 256
    attention_bias: bool = False

    @property
    def near_rope(self) -> RopeConfig:
        """RoPE of the layers with a window."""
        return self.rope

    @property
    def attention_cap(self) -> float:
        """Bound of the scores; 0 for none."""
        return 0.0

    @property
    def logit_cap(self) -> float:
        """Bound of the logits; 0 for none."""
        return 0.0

    def attention(self, layer: int) -> AttentionConfig:
        """Sizes and switches of one layer's attention."""
        return replace(
            DecoderConfig.attention(self, layer),
            qkv_bias=self.attention_bias,
            out_bias=self.attention_bias,
            scale=self.query_pre_attn_scalar**-0.5,
            window=self.sliding_window if self.layer_types[layer] == SLIDING else 0,
            softcap=self.attention_cap,
        )


Config = TypeVar("Config", bound=GemmaConfig)


def small_gemma(config: Config) -> Config:
    """See :func:`~.decoder_config.smaller`; one layer of each kind, and another.

    Heads of size 24: the norm's 1/24 equals no other constant, as in the full model.
    """
    first, *others = ends(config.layer_types)
    types = (first, *others, first)
    return replace(
        smaller(config),
        num_hidden_layers=len(types),
        layer_types=types,
        sliding_window=8,
        head_dim=24,
    )


def wide_gemma(config: Config) -> Config:
    """See :func:`~.decoder_config.wider`; a layer of each kind.

    Heads of size 10 and a width other than 16: the constants 1/10, one over the width, and
    1/16 for scores differ, as in the full model.
    """
    types, wide = kinds(config.layer_types), wider(config)
    return replace(
        wide,
        hidden_size=6 * wide.num_attention_heads,
        num_hidden_layers=len(types),
        layer_types=types,
        sliding_window=WIDE_WINDOW,
        head_dim=10,
    )


def body(b: Builder, config: GemmaConfig, tokens: Value, step: StepInputs, dtype: DType) -> Value:
    """Embedding, layers and last norm: hidden states [B,S,E]; the residual stream is f32."""
    attentions = [config.attention(layer) for layer in range(config.num_hidden_layers)]
    windows = dict.fromkeys(attention.window for attention in attentions)
    masks = {window: causal_mask(b, step, window) for window in windows}
    ropes = {window: config.near_rope if window else config.rope for window in windows}
    turns = {
        window: rotary(b, step, inverse_frequencies(rope, config.head_dim), rope.attention_factor)
        for window, rope in ropes.items()
    }

    def norm(name: str, x: Value, result: DType = dtype) -> Value:
        return _norm(b, name, x, config.rms_norm_eps, dtype, result)

    each = norm if config.qk_norm else None
    with b.scope("model"):
        x = embed(b, "embed_tokens", tokens, config.vocab_size, config.hidden_size, dtype)
        x = b.convert(x, f32)
        if len(tokens.shape) == 2:
            # Embeddings that a caller gives are multiplied already, as in transformers.
            x = x * config.hidden_size**0.5
        for layer, attention in enumerate(attentions):
            step.keep(x)
            mask, turn = masks[attention.window], turns[attention.window]
            with b.scope(f"layers.{layer}"):
                h = norm("input_layernorm", x)
                h = self_attention(b, h, attention, step, mask, turn, dtype=f32, normalize=each)
                x = x + norm("post_attention_layernorm", h, f32)
                h = norm("pre_feedforward_layernorm", x)
                h = gated_mlp(
                    b, h, config.intermediate_size, activation=config.hidden_act, dtype=f32
                )
                x = x + norm("post_feedforward_layernorm", h, f32)
        return norm("norm", x)


def _norm(b: Builder, name: str, x: Value, epsilon: float, dtype: DType, result: DType) -> Value:
    """RMS norm in f32 with factor ``weight + 1``; the weight is of type ``dtype``."""
    with b.scope(name):
        weight = b.convert(b.weight("weight", dtype, x.shape[-1:]), f32)
        return b.convert(b.rms_norm(x, weight + 1.0, epsilon), result)


def head(b: Builder, config: GemmaConfig, x: Value) -> Value:
    """Logits f32 [..., V] of x [..., E]."""
    logits, cap = decoder.head(b, config, x), config.logit_cap
    return b.unary("tanh", logits / cap) * cap if cap else logits
