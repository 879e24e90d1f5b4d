"""Llama: Llama 2 and 3.x, SmolLM2 and every checkpoint with the same mathematics.

Pre-norm decoder, rotary positions, grouped-query attention, SiLU-gated MLP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import DType, Literal, Value
from graphgen.ir.dtype import f32
from graphgen.models.config import ConfigReader
from graphgen.models.family import Family
from graphgen.nn import (
    AttentionConfig,
    Call,
    RopeConfig,
    causal_mask,
    gated_mlp,
    inverse_frequencies,
    rms_norm,
    rotary,
    self_attention,
)


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Sizes and switches under Hugging Face's names.

    ``head_dim`` may differ from ``hidden_size / num_attention_heads``.
    """

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 2048
    rope: RopeConfig = field(default_factory=RopeConfig)
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False

    def mini(self) -> LlamaConfig:
        """Two layers, two KV heads, the same query heads per KV head, an odd vocabulary."""
        group = self.num_attention_heads // self.num_key_value_heads
        kv_heads = min(self.num_key_value_heads, 2)
        own_head_dim = self.head_dim * self.num_attention_heads != self.hidden_size
        heads = kv_heads * group
        return replace(
            self,
            hidden_size=heads * 8,
            intermediate_size=heads * 16,
            num_hidden_layers=min(self.num_hidden_layers, 2),
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=16 if own_head_dim else 8,
            vocab_size=257,
        )

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json`` holds it."""
        out = asdict(self)
        del out["rope"]
        out |= {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu"}
        out["rope_theta"] = self.rope.theta
        if self.rope.kind != "default":
            out["rope_scaling"] = {"rope_type": self.rope.kind, "factor": self.rope.factor}
        if self.rope.kind == "llama3":
            out["rope_scaling"] |= {
                "low_freq_factor": self.rope.low_freq_factor,
                "high_freq_factor": self.rope.high_freq_factor,
                "original_max_position_embeddings": self.rope.original_positions,
            }
        return out

    def rope_frequencies(self) -> Literal:
        """f32 [head_dim / 2]."""
        return inverse_frequencies(self.rope, self.head_dim)


def read_llama(config: Mapping[str, object]) -> LlamaConfig:
    """A ``config.json`` of ``model_type: llama`` (GG0502, GG0503)."""
    reader = ConfigReader(config)
    heads = reader.integer("num_attention_heads")
    hidden = reader.integer("hidden_size")
    kv_heads = reader.integer("num_key_value_heads", heads)
    head_dim = reader.integer("head_dim", hidden // heads)
    if heads % kv_heads:
        raise GraphgenError(
            "GG0503", f"config: num_attention_heads = {heads} is no multiple of {kv_heads} KV heads"
        )
    if reader.config.get("head_dim") is None and hidden % heads:
        raise GraphgenError(
            "GG0503", f"config: hidden_size = {hidden} does not divide into {heads} heads"
        )
    if head_dim % 2:
        raise GraphgenError("GG0503", f"config: head_dim = {head_dim} is odd")
    reader.only("hidden_act", ["silu", "swish"], "silu")
    reader.only("partial_rotary_factor", [1.0], 1.0)
    read = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=reader.integer("intermediate_size"),
        num_hidden_layers=reader.integer("num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=reader.integer("vocab_size"),
        rms_norm_eps=reader.number("rms_norm_eps", 1e-6),
        max_position_embeddings=reader.integer("max_position_embeddings", 2048),
        rope=_read_rope(reader),
        tie_word_embeddings=reader.boolean("tie_word_embeddings", False),
        attention_bias=reader.boolean("attention_bias", False),
        mlp_bias=reader.boolean("mlp_bias", False),
    )
    reader.finish()
    return read


def _read_rope(reader: ConfigReader) -> RopeConfig:
    """``rope_theta`` and ``rope_scaling``, or transformers 5's ``rope_parameters``."""
    given, older = reader.mapping("rope_parameters") or {}, reader.mapping("rope_scaling") or {}
    if given and older and given != older:
        raise GraphgenError("GG0503", "config: rope_parameters and rope_scaling disagree")
    given = given or older
    scaling = ConfigReader({"rope_type": given.get("type"), **given})
    scaling.used |= {"type", "partial_rotary_factor"}
    theta = scaling.number("rope_theta", reader.number("rope_theta", 10000.0))
    kind = scaling.only("rope_type", ["default", "linear", "llama3"], "default")
    scaling.only("partial_rotary_factor", [1.0], 1.0)
    if kind == "default":
        scaling.finish()
        return RopeConfig(theta)
    factor = scaling.number("factor")
    if kind == "linear":
        scaling.finish()
        return RopeConfig(theta, "linear", factor)
    low, high = scaling.number("low_freq_factor"), scaling.number("high_freq_factor")
    if high <= low:
        raise GraphgenError(
            "GG0503", f"config: rope_scaling.high_freq_factor = {high} is not above low {low}"
        )
    original = scaling.integer("original_max_position_embeddings")
    scaling.finish()
    return RopeConfig(theta, "llama3", factor, low, high, original)


def body(b: Builder, config: LlamaConfig, tokens: Value, call: Call, dtype: DType) -> Value:
    """Embedding, layers and last norm: hidden states [B,S,E].

    The residual stream is f32 whatever ``dtype`` is: it sums up two addends a layer, some of them
    hundreds of times larger than the rest, and 8 bits of mantissa lose the small ones.
    """
    attention = AttentionConfig(
        config.num_attention_heads,
        config.num_key_value_heads,
        config.head_dim,
        qkv_bias=config.attention_bias,
        out_bias=config.attention_bias,
    )
    turns = rotary(b, call, config.rope_frequencies())
    mask = causal_mask(b, call)
    with b.scope("model"):
        x = b.convert(b.embedding(_embedding(b, config, dtype), tokens), f32)
        for layer in range(config.num_hidden_layers):
            with b.scope(f"layers.{layer}"):
                h = rms_norm(b, "input_layernorm", x, config.rms_norm_eps, dtype)
                x = x + self_attention(b, h, attention, call, mask, turns, dtype=f32)
                h = rms_norm(b, "post_attention_layernorm", x, config.rms_norm_eps, dtype)
                x = x + gated_mlp(b, h, config.intermediate_size, bias=config.mlp_bias, dtype=f32)
        return rms_norm(b, "norm", x, config.rms_norm_eps, dtype)


def head(b: Builder, config: LlamaConfig, x: Value) -> Value:
    """Logits f32 [B,V] of x [B,E]."""
    if config.tie_word_embeddings:
        with b.scope("model"):
            weight = _embedding(b, config, x.dtype)
    else:
        with b.scope("lm_head"):
            weight = b.weight("weight", x.dtype, (config.vocab_size, config.hidden_size))
    with b.scope("lm_head"):
        return b.dot(x, weight, f32)


def _embedding(b: Builder, config: LlamaConfig, dtype: DType) -> Value:
    with b.scope("embed_tokens"):
        return b.weight("weight", dtype, (config.vocab_size, config.hidden_size))


LLAMA = Family(
    "llama",
    ("LlamaForCausalLM",),
    read_llama,
    body,
    head,
    prefix="model",
    buffers=("*.rotary_emb.inv_freq",),
)
