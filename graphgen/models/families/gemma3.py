"""Gemma 3 (text): norms around attention and MLP, most layers with a window and own RoPE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from graphgen.build import Builder
from graphgen.ir import DType, Value
from graphgen.ir.dtype import f32
from graphgen.models.config_reader import ConfigReader
from graphgen.models.decoders.decoder import EMBEDDING, head
from graphgen.models.decoders.decoder_config import DecoderConfig, read_sizes, smaller, to_hf, wider
from graphgen.models.family import Family
from graphgen.models.layer_types import FULL, SLIDING, ends, kinds, read_layer_types
from graphgen.models.rope_config import read_rope, rope_to_hf
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
class Gemma3Config(DecoderConfig):
    """Sizes and switches under Hugging Face's names; ``rope`` applies to layers without a window.

    Attributes:
        sliding_window: window of the layers of type ``sliding_attention``.
        layer_types: one per layer.
        query_pre_attn_scalar: scores are divided by its square root.
        local_rope: RoPE of the layers with a window.
        attention_bias: q, k, v and o have a bias.
    """

    sliding_window: int = 4096
    layer_types: tuple[str, ...] = ()
    query_pre_attn_scalar: int = 256
    local_rope: RopeConfig = field(default_factory=RopeConfig)
    attention_bias: bool = False

    @property
    def qk_norm(self) -> bool:
        """Gemma 3 normalizes each head of q and k."""
        return True

    def attention(self, layer: int) -> AttentionConfig:
        """Sizes and switches of one layer's attention."""
        return AttentionConfig(
            self.num_attention_heads,
            self.num_key_value_heads,
            self.head_dim,
            qkv_bias=self.attention_bias,
            out_bias=self.attention_bias,
            scale=self.query_pre_attn_scalar**-0.5,
            window=self.sliding_window if self.layer_types[layer] == SLIDING else 0,
        )

    def mini(self) -> Gemma3Config:
        """See :func:`~.decoder_config.smaller`; one layer of each kind, and another.

        Heads of size 24: the norm's 1/24 equals no other constant, as in the full model.
        """
        first, *others = ends(self.layer_types)
        types = (first, *others, first)
        return replace(
            smaller(self),
            num_hidden_layers=len(types),
            layer_types=types,
            sliding_window=8,
            head_dim=24,
        )

    def wide(self) -> Gemma3Config:
        """See :func:`~.decoder_config.wider`; a layer of each kind.

        Heads of size 10 and a width other than 16: the constants 1/10, one over the width, and
        1/16 for scores differ, as in the full model.
        """
        types, wide = kinds(self.layer_types), wider(self)
        return replace(
            wide,
            hidden_size=6 * wide.num_attention_heads,
            num_hidden_layers=len(types),
            layer_types=types,
            sliding_window=WIDE_WINDOW,
            head_dim=10,
        )

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        out = to_hf(self, "gemma3_text", "Gemma3ForCausalLM")
        for key in ("local_rope", "rope_theta", "rope_scaling", "mlp_bias"):
            out.pop(key, None)
        ropes: dict[str, object] = {}
        for kind, rope in ((FULL, self.rope), (SLIDING, self.local_rope)):
            written = rope_to_hf(rope)
            scaling = written.pop("rope_scaling", {"rope_type": "default"})
            ropes[kind] = {**cast("dict[str, object]", scaling), **written}
        return {
            **out,
            "hidden_activation": out.pop("hidden_act"),
            "layer_types": list(self.layer_types),
            "rope_parameters": ropes,
        }


_DEFAULTS: Mapping[str, object] = {
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "sliding_window": 4096,
}


def read_gemma3(config: Mapping[str, object]) -> Gemma3Config:
    """A ``config.json`` of ``model_type: gemma3_text`` (GG0502, GG0503)."""
    ropes = config.get("rope_parameters")
    given: Mapping[str, object] = {}
    if isinstance(ropes, Mapping):
        given = cast("Mapping[str, object]", ropes)
    wide = {"rope_theta": 1000000.0, **_DEFAULTS, **config, "rope_parameters": given.get(FULL)}
    reader = ConfigReader(wide, {"hidden_activation": "hidden_act"})
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        reader.only(key, [0], 0)
    reader.only("use_bidirectional_attention", [False], False)
    near = {
        "rope_parameters": given.get(SLIDING),
        "rope_theta": reader.number("rope_local_base_freq", 10000.0),
    }
    sizes = read_sizes(reader, positions=131072, kv_heads=4, head_dim=256)
    pattern = reader.integer("sliding_window_pattern", 6)
    slides = [bool((layer + 1) % pattern) for layer in range(sizes["num_hidden_layers"])]
    read = Gemma3Config(
        **sizes,
        sliding_window=reader.integer("sliding_window"),
        layer_types=read_layer_types(reader, slides),
        query_pre_attn_scalar=reader.integer("query_pre_attn_scalar", 256),
        local_rope=read_rope(ConfigReader(near)),
        attention_bias=reader.boolean("attention_bias", False),
    )
    reader.finish()
    return read


def body(b: Builder, config: Gemma3Config, tokens: Value, step: StepInputs, dtype: DType) -> Value:
    """Embedding, layers and last norm: hidden states [B,S,E]; the residual stream is f32."""
    attentions = [config.attention(layer) for layer in range(config.num_hidden_layers)]
    windows = dict.fromkeys(attention.window for attention in attentions)
    masks = {window: causal_mask(b, step, window) for window in windows}
    ropes = {window: config.local_rope if window else config.rope for window in windows}
    turns = {
        window: rotary(b, step, inverse_frequencies(rope, config.head_dim), rope.attention_factor)
        for window, rope in ropes.items()
    }

    def norm(name: str, x: Value, result: DType = dtype) -> Value:
        return _norm(b, name, x, config.rms_norm_eps, dtype, result)

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
                h = self_attention(b, h, attention, step, mask, turn, dtype=f32, normalize=norm)
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


GEMMA3 = Family(
    "gemma3_text",
    ("Gemma3ForCausalLM",),
    read_gemma3,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
)
