"""BLOOM: ALiBi positions, a norm after the embedding, q, k, v fused head by head.

``query_key_value`` holds, for each head, its rows of q, then of k, then of v.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from graphgen.build import Builder
from graphgen.ir import DType, Value
from graphgen.ir.dtype import f32
from graphgen.models.config_reader import ConfigReader
from graphgen.models.family import Family
from graphgen.models.twins import WIDE_HEAD_DIM, WIDE_VOCABULARY, wide_heads
from graphgen.nn import (
    Alibi,
    StepInputs,
    attend,
    causal_mask,
    embed,
    layer_norm,
    linear,
    linear_biases,
    lm_head,
    mlp,
)

# transformers' attribute_map, and the name the first checkpoints used.
ALIASES = {
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "n_embed": "hidden_size",
}

# Module of the embedding table.
EMBEDDING = "transformer.word_embeddings"


@dataclass(frozen=True, slots=True)
class BloomConfig:
    """Sizes and switches under Hugging Face's names."""

    vocab_size: int = 250880
    hidden_size: int = 64
    n_layer: int = 2
    n_head: int = 8
    layer_norm_epsilon: float = 1e-5
    apply_residual_connection_post_layernorm: bool = False
    tie_word_embeddings: bool = True

    @property
    def max_position_embeddings(self) -> None:
        """Linear biases have no last position."""
        return None

    def mini(self) -> BloomConfig:
        """Two layers, up to four heads, an odd vocabulary."""
        heads = min(self.n_head, 4)
        layers = min(self.n_layer, 2)
        return replace(self, vocab_size=257, hidden_size=heads * 8, n_layer=layers, n_head=heads)

    def wide(self) -> BloomConfig:
        """Two layers, six or three heads, more ids than 16 bits hold."""
        heads = wide_heads(self.n_head)
        return replace(
            self,
            vocab_size=WIDE_VOCABULARY,
            hidden_size=heads * WIDE_HEAD_DIM,
            n_layer=min(self.n_layer, 2),
            n_head=heads,
        )

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        kind = {"model_type": "bloom", "architectures": ["BloomForCausalLM"]}
        return {**asdict(self), **kind}


def read_bloom(config: Mapping[str, object]) -> BloomConfig:
    """A ``config.json`` of ``model_type: bloom`` (GG0502, GG0503)."""
    reader = ConfigReader(config, ALIASES)
    plain = BloomConfig()
    width, heads = reader.width_and_heads(plain, "hidden_size", "n_head")
    read = reader.read_fields(plain, hidden_size=width, n_head=heads)
    # Training settings, and choices between two ways to the same numbers.
    reader.neutral("slow_but_exact", "offset_alibi", "seq_length", "attention_softmax_in_fp32")
    reader.neutral("masked_softmax_fusion", "bias_dropout_fusion", "skip_bias_add")
    reader.neutral("skip_bias_add_qkv")
    reader.finish()
    return read


def body(b: Builder, config: BloomConfig, tokens: Value, step: StepInputs, dtype: DType) -> Value:
    """Embedding, layers and last norm: hidden states [B,S,E]; the residual stream is f32."""
    mask = causal_mask(b, step)
    alibi = linear_biases(b, step, config.n_head)
    epsilon = config.layer_norm_epsilon
    with b.scope("transformer"):
        x = embed(b, "word_embeddings", tokens, config.vocab_size, config.hidden_size, dtype)
        x = b.convert(layer_norm(b, "word_embeddings_layernorm", x, epsilon), f32)
        for layer in range(config.n_layer):
            step.keep(x)
            with b.scope(f"h.{layer}"):
                x = _block(b, config, x, step, mask, alibi, dtype)
        return layer_norm(b, "ln_f", x, epsilon, dtype)


def _block(
    b: Builder,
    config: BloomConfig,
    x: Value,
    step: StepInputs,
    mask: Value,
    alibi: Alibi,
    dtype: DType,
) -> Value:
    epsilon, late = config.layer_norm_epsilon, config.apply_residual_connection_post_layernorm
    h = layer_norm(b, "input_layernorm", x, epsilon, dtype)
    x = (b.convert(h, f32) if late else x) + _attention(b, config, h, step, mask, alibi)
    h = layer_norm(b, "post_attention_layernorm", x, epsilon, dtype)
    return (b.convert(h, f32) if late else x) + _mlp(b, config, h)


def _attention(
    b: Builder, config: BloomConfig, x: Value, step: StepInputs, mask: Value, alibi: Alibi
) -> Value:
    width, heads = config.hidden_size, config.n_head
    size = width // heads
    rows = x.shape[:2]
    with b.scope("self_attention"):
        fused = linear(b, "query_key_value", x, 3 * width, bias=True, dtype=f32)
        fused = b.reshape(b.convert(fused, x.dtype), (*rows, heads, 3, size))
        parts = [b.slice_dim(fused, 3, i, i + 1) for i in range(3)]
        q, k, v = [b.reshape(part, (*rows, heads, size)) for part in parts]
        out = attend(b, q, k, v, step, mask, size**-0.5, alibi.slopes, alibi.distance)
        return linear(b, "dense", out, width, bias=True, dtype=f32)


def _mlp(b: Builder, config: BloomConfig, x: Value) -> Value:
    with b.scope("mlp"):
        return mlp(b, x, ("dense_h_to_4h", "dense_4h_to_h"), 4 * config.hidden_size, "gelu_new")


def head(b: Builder, config: BloomConfig, x: Value) -> Value:
    """Logits f32 [..., V] of x [..., E]."""
    tied = EMBEDDING if config.tie_word_embeddings else ""
    return lm_head(b, x, config.vocab_size, tied=tied)


BLOOM = Family(
    "bloom",
    ("BloomForCausalLM",),
    read_bloom,
    body,
    head,
    prefix="transformer",
    embedding=f"{EMBEDDING}.weight",
    aliases=ALIASES,
)
