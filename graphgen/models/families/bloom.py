"""BLOOM: linear biases for positions, a norm after the embedding, q, k, v fused head by head.

``query_key_value`` holds, for each head, its rows of q, then of k, then of v.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import DType, Value
from graphgen.ir.dtype import f32
from graphgen.models.config_reader import ConfigReader
from graphgen.models.family import Family
from graphgen.nn import (
    Alibi,
    StepInputs,
    activate,
    attend,
    causal_mask,
    layer_norm,
    linear,
    linear_biases,
)

# transformers' attribute_map, and the name the first checkpoints used.
ALIASES = {
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "n_embed": "hidden_size",
}


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

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json`` holds it."""
        kind = {"model_type": "bloom", "architectures": ["BloomForCausalLM"]}
        return {**asdict(self), **kind}


def read_bloom(config: Mapping[str, object]) -> BloomConfig:
    """A ``config.json`` of ``model_type: bloom`` (GG0502, GG0503)."""
    reader = ConfigReader(config, ALIASES)
    plain = BloomConfig()
    width = reader.integer("hidden_size", plain.hidden_size)
    heads = reader.integer("n_head", plain.n_head)
    if width % heads:
        raise GraphgenError(
            "GG0503", f"config: hidden_size = {width} is no multiple of {heads} heads"
        )
    read = BloomConfig(
        vocab_size=reader.integer("vocab_size", plain.vocab_size),
        hidden_size=width,
        n_layer=reader.integer("n_layer", plain.n_layer),
        n_head=heads,
        layer_norm_epsilon=reader.number("layer_norm_epsilon", plain.layer_norm_epsilon),
        apply_residual_connection_post_layernorm=reader.boolean(
            "apply_residual_connection_post_layernorm", False
        ),
        tie_word_embeddings=reader.boolean("tie_word_embeddings", True),
    )
    # How the model was trained, and choices between two ways to the same numbers.
    reader.neutral("slow_but_exact", "offset_alibi", "seq_length", "attention_softmax_in_fp32")
    reader.neutral("masked_softmax_fusion", "bias_dropout_fusion", "skip_bias_add")
    reader.neutral("skip_bias_add_qkv")
    reader.finish()
    return read


def body(b: Builder, config: BloomConfig, tokens: Value, call: StepInputs, dtype: DType) -> Value:
    """Embedding, layers and last norm: hidden states [B,S,E]; the residual stream is f32."""
    mask = causal_mask(b, call)
    alibi = linear_biases(b, call, config.n_head)
    epsilon = config.layer_norm_epsilon
    with b.scope("transformer"):
        x = b.embedding(_embedding(b, config, dtype), tokens)
        x = b.convert(layer_norm(b, "word_embeddings_layernorm", x, epsilon), f32)
        for layer in range(config.n_layer):
            with b.scope(f"h.{layer}"):
                x = _block(b, config, x, call, mask, alibi, dtype)
        return layer_norm(b, "ln_f", x, epsilon, dtype)


def _block(
    b: Builder,
    config: BloomConfig,
    x: Value,
    call: StepInputs,
    mask: Value,
    alibi: Alibi,
    dtype: DType,
) -> Value:
    epsilon, late = config.layer_norm_epsilon, config.apply_residual_connection_post_layernorm
    h = layer_norm(b, "input_layernorm", x, epsilon, dtype)
    x = (b.convert(h, f32) if late else x) + _attention(b, config, h, call, mask, alibi)
    h = layer_norm(b, "post_attention_layernorm", x, epsilon, dtype)
    return (b.convert(h, f32) if late else x) + _mlp(b, config, h)


def _attention(
    b: Builder, config: BloomConfig, x: Value, call: StepInputs, mask: Value, alibi: Alibi
) -> Value:
    width, heads = config.hidden_size, config.n_head
    size = width // heads
    rows = x.shape[:2]
    with b.scope("self_attention"):
        fused = linear(b, "query_key_value", x, 3 * width, bias=True, dtype=f32)
        fused = b.reshape(b.convert(fused, x.dtype), (*rows, heads, 3, size))
        parts = [b.slice_dim(fused, 3, i, i + 1) for i in range(3)]
        q, k, v = [b.reshape(part, (*rows, heads, size)) for part in parts]
        out = attend(b, q, k, v, call, mask, size**-0.5, alibi)
        return linear(b, "dense", out, width, bias=True, dtype=f32)


def _mlp(b: Builder, config: BloomConfig, x: Value) -> Value:
    width = config.hidden_size
    with b.scope("mlp"):
        hidden = linear(b, "dense_h_to_4h", x, 4 * width, bias=True, dtype=f32)
        hidden = b.convert(activate(b, "gelu_new", hidden), x.dtype)
        return linear(b, "dense_4h_to_h", hidden, width, bias=True, dtype=f32)


def head(b: Builder, config: BloomConfig, x: Value) -> Value:
    """Logits f32 [B,V] of x [B,E]."""
    if config.tie_word_embeddings:
        with b.scope("transformer"):
            weight = _embedding(b, config, x.dtype)
    else:
        with b.scope("lm_head"):
            weight = b.weight("weight", x.dtype, (config.vocab_size, config.hidden_size))
    with b.scope("lm_head"):
        return b.dot(x, weight, f32)


def _embedding(b: Builder, config: BloomConfig, dtype: DType) -> Value:
    with b.scope("word_embeddings"):
        return b.weight("weight", dtype, (config.vocab_size, config.hidden_size))


BLOOM = Family(
    "bloom",
    ("BloomForCausalLM",),
    read_bloom,
    body,
    head,
    prefix="transformer",
    embedding="transformer.word_embeddings.weight",
)
