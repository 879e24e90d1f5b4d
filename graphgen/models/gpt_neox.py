"""GPT-NeoX, Pythia: q, k, v fused head by head, partial rotation, parallel residuals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import cast

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import DType, Value
from graphgen.ir.dtype import f32
from graphgen.models.config_reader import ConfigReader
from graphgen.models.family import Family
from graphgen.models.rope_config import read_rope, rope_to_hf
from graphgen.models.twins import WIDE_POSITIONS, WIDE_VOCABULARY, wide_head_dim, wide_heads
from graphgen.nn import (
    ACTIVATIONS,
    RopeConfig,
    Rotary,
    StepInputs,
    attend,
    causal_mask,
    embed,
    inverse_frequencies,
    layer_norm,
    linear,
    lm_head,
    mlp,
    rotary,
)

# Module of the embedding table.
EMBEDDING = "gpt_neox.embed_in"


@dataclass(frozen=True, slots=True)
class GptNeoxConfig:
    """Sizes and switches under Hugging Face's names; ``rotary_pct`` of each head is rotated."""

    vocab_size: int = 50432
    hidden_size: int = 6144
    num_hidden_layers: int = 44
    num_attention_heads: int = 64
    intermediate_size: int = 24576
    hidden_act: str = "gelu"
    max_position_embeddings: int = 2048
    layer_norm_eps: float = 1e-5
    use_parallel_residual: bool = True
    attention_bias: bool = True
    tie_word_embeddings: bool = False
    rotary_pct: float = 0.25
    rope: RopeConfig = field(default_factory=RopeConfig)

    @property
    def head_dim(self) -> int:
        """Size of a head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def rotary_dim(self) -> int:
        """Size of the rotated part of a head."""
        return int(self.head_dim * self.rotary_pct)

    def mini(self) -> GptNeoxConfig:
        """Two layers, up to four heads with the same rotated fraction, an odd vocabulary."""
        heads = min(self.num_attention_heads, 4)
        return replace(
            self,
            vocab_size=257,
            hidden_size=heads * 16,
            num_hidden_layers=min(self.num_hidden_layers, 2),
            num_attention_heads=heads,
            intermediate_size=heads * 24,
        )

    def wide(self) -> GptNeoxConfig:
        """Two layers, six or three heads with the same rotated fraction, large numbers."""
        heads = wide_heads(self.num_attention_heads)
        return replace(
            self,
            vocab_size=WIDE_VOCABULARY,
            hidden_size=heads * wide_head_dim(self.rotary_pct),
            num_hidden_layers=min(self.num_hidden_layers, 2),
            num_attention_heads=heads,
            intermediate_size=heads * 8 + 2,
            max_position_embeddings=WIDE_POSITIONS,
        )

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        out: dict[str, object] = {item.name: getattr(self, item.name) for item in fields(self)}
        del out["rope"], out["rotary_pct"]
        written = rope_to_hf(self.rope)
        scaling = cast("dict[str, object]", written.pop("rope_scaling", {"rope_type": "default"}))
        rope = {**scaling, **written, "partial_rotary_factor": self.rotary_pct}
        kind = {"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"]}
        return {**out, **kind, "rope_parameters": rope}


def read_gpt_neox(config: Mapping[str, object]) -> GptNeoxConfig:
    """A ``config.json`` of ``model_type: gpt_neox`` (GG0502, GG0503)."""
    # transformers 5 keeps the rotated fraction with the other rotary parameters.
    rope = config.get("rope_parameters")
    if isinstance(rope, Mapping):
        facts = dict(cast("Mapping[str, object]", rope))
        part = facts.pop("partial_rotary_factor", None)
        config = {"rotary_pct": part, **config, "rope_parameters": facts}
    reader = ConfigReader(config, {"rotary_emb_base": "rope_theta"})
    plain = GptNeoxConfig()
    width, heads = reader.width_and_heads(plain, "hidden_size", "num_attention_heads")
    read = reader.read_fields(
        plain,
        hidden_size=width,
        num_attention_heads=heads,
        hidden_act=reader.choice("hidden_act", ACTIVATIONS, "gelu"),
        rope=read_rope(reader),
    )
    if read.rotary_dim % 2 or not 0 < read.rotary_dim <= read.head_dim:
        raise GraphgenError(
            "GG0503",
            f"config: rotary_pct = {read.rotary_pct} rotates {read.rotary_dim} dimensions, "
            f"expected an even number up to {read.head_dim}",
        )
    reader.neutral("classifier_dropout")
    reader.finish()
    return read


def body(b: Builder, config: GptNeoxConfig, tokens: Value, step: StepInputs, dtype: DType) -> Value:
    """Embedding, layers and last norm: hidden states [B,S,E]; the residual stream is f32."""
    turns = rotary(
        b, step, inverse_frequencies(config.rope, config.rotary_dim), config.rope.attention_factor
    )
    mask = causal_mask(b, step)
    epsilon = config.layer_norm_eps
    with b.scope("gpt_neox"):
        x = embed(b, "embed_in", tokens, config.vocab_size, config.hidden_size, dtype)
        x = b.convert(x, f32)
        for layer in range(config.num_hidden_layers):
            step.keep(x)
            with b.scope(f"layers.{layer}"):
                h = layer_norm(b, "input_layernorm", x, epsilon, dtype)
                out = _attention(b, config, h, step, mask, turns)
                read = x if config.use_parallel_residual else x + out
                h = layer_norm(b, "post_attention_layernorm", read, epsilon, dtype)
                if config.use_parallel_residual:
                    # Summed first: ranks have addends of both, and of their sum.
                    x = x + (out + _mlp(b, config, h))
                else:
                    x = read + _mlp(b, config, h)
        return layer_norm(b, "final_layer_norm", x, epsilon, dtype)


def _attention(
    b: Builder, config: GptNeoxConfig, x: Value, step: StepInputs, mask: Value, turns: Rotary
) -> Value:
    width, heads, size = config.hidden_size, config.num_attention_heads, config.head_dim
    with b.scope("attention"):
        bias = config.attention_bias
        fused = linear(b, "query_key_value", x, 3 * width, bias=bias, dtype=f32)
        fused = b.reshape(fused, (*x.shape[:2], heads, 3 * size))
        q, k, v = [b.slice_dim(fused, 3, i * size, (i + 1) * size) for i in range(3)]
        # Rotated in f32 and rounded once.
        q, k = [b.convert(b.rope(part, turns.cos, turns.sin), x.dtype) for part in (q, k)]
        out = attend(b, q, k, b.convert(v, x.dtype), step, mask, size**-0.5)
        return linear(b, "dense", out, width, bias=bias, dtype=f32)


def _mlp(b: Builder, config: GptNeoxConfig, x: Value) -> Value:
    with b.scope("mlp"):
        names = ("dense_h_to_4h", "dense_4h_to_h")
        return mlp(b, x, names, config.intermediate_size, config.hidden_act)


def head(b: Builder, config: GptNeoxConfig, x: Value) -> Value:
    """Logits f32 [..., V] of x [..., E]."""
    tied = EMBEDDING if config.tie_word_embeddings else ""
    return lm_head(b, x, config.vocab_size, tied=tied)


GPT_NEOX = Family(
    "gpt_neox",
    ("GPTNeoXForCausalLM",),
    read_gpt_neox,
    body,
    head,
    prefix="gpt_neox",
    embedding=f"{EMBEDDING}.weight",
    renamed=(("embed_out.", "lm_head."),),
    # The causal mask, its fill value, and the frequencies, which older checkpoints kept.
    buffers=("*.attention.bias", "*.attention.masked_bias", "*.rotary_emb.inv_freq"),
)
