"""OPT: learned positions offset by two, layer norms before or after, biases, ReLU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from graphgen.build import Builder
from graphgen.ir import DType, Value
from graphgen.ir.dtype import f32
from graphgen.models.config_reader import ConfigReader
from graphgen.models.family import Family
from graphgen.models.twins import WIDE_HEAD_DIM, WIDE_POSITIONS, WIDE_VOCABULARY, wide_heads
from graphgen.nn import (
    ACTIVATIONS,
    StepInputs,
    attend,
    causal_mask,
    embed,
    embedding_table,
    layer_norm,
    linear,
    lm_head,
    mlp,
)

# The table of positions begins with rows for padding.
OFFSET = 2
EPSILON = 1e-5

# Module of the embedding table.
EMBEDDING = "model.decoder.embed_tokens"


@dataclass(frozen=True, slots=True)
class OptConfig:
    """Sizes and switches under Hugging Face's names."""

    vocab_size: int = 50272
    hidden_size: int = 768
    num_hidden_layers: int = 12
    ffn_dim: int = 3072
    max_position_embeddings: int = 2048
    do_layer_norm_before: bool = True
    _remove_final_layer_norm: bool = False
    word_embed_proj_dim: int = 768
    num_attention_heads: int = 12
    activation_function: str = "relu"
    enable_bias: bool = True
    tie_word_embeddings: bool = True

    @property
    def last_norm(self) -> bool:
        """True if a norm follows the last layer."""
        return self.do_layer_norm_before and not self._remove_final_layer_norm

    def mini(self) -> OptConfig:
        """Two layers, up to four heads, an odd vocabulary."""
        heads = min(self.num_attention_heads, 4)
        projected = self.word_embed_proj_dim != self.hidden_size
        return replace(
            self,
            vocab_size=257,
            hidden_size=heads * 8,
            num_hidden_layers=min(self.num_hidden_layers, 2),
            ffn_dim=heads * 16,
            num_attention_heads=heads,
            word_embed_proj_dim=heads * 4 if projected else heads * 8,
        )

    def wide(self) -> OptConfig:
        """Two layers, six or three heads, more ids and positions than 16 bits hold."""
        heads = wide_heads(self.num_attention_heads)
        width = heads * WIDE_HEAD_DIM
        projected = self.word_embed_proj_dim != self.hidden_size
        return replace(
            self,
            vocab_size=WIDE_VOCABULARY,
            hidden_size=width,
            num_hidden_layers=min(self.num_hidden_layers, 2),
            ffn_dim=heads * 8 + 2,
            num_attention_heads=heads,
            word_embed_proj_dim=width // 2 if projected else width,
            max_position_embeddings=WIDE_POSITIONS,
        )

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        kind = {"model_type": "opt", "architectures": ["OPTForCausalLM"]}
        return {**asdict(self), **kind}


def read_opt(config: Mapping[str, object]) -> OptConfig:
    """A ``config.json`` of ``model_type: opt`` (GG0502, GG0503)."""
    reader = ConfigReader(config)
    plain = OptConfig()
    width, heads = reader.width_and_heads(plain, "hidden_size", "num_attention_heads")
    reader.only("layer_norm_elementwise_affine", [True], True)
    # Training settings.
    reader.neutral("dropout", "activation_dropout", "layerdrop", "init_std")
    read = reader.read_fields(
        plain,
        hidden_size=width,
        num_attention_heads=heads,
        word_embed_proj_dim=reader.integer("word_embed_proj_dim", width),
        activation_function=reader.choice("activation_function", ACTIVATIONS, "relu"),
    )
    reader.finish()
    return read


def body(b: Builder, config: OptConfig, tokens: Value, step: StepInputs, dtype: DType) -> Value:
    """Embeddings, layers and last norm: hidden states [B,S,P]; the residual stream is f32."""
    mask = causal_mask(b, step)
    inner, outer = config.hidden_size, config.word_embed_proj_dim
    with b.scope("model.decoder"):
        x = embed(b, "embed_tokens", tokens, config.vocab_size, outer, dtype)
        x = b.convert(x if inner == outer else linear(b, "project_in", x, inner), f32)
        rows = config.max_position_embeddings + OFFSET
        places = b.binary("add", step.positions, OFFSET)
        places = b.embedding(embedding_table(b, "embed_positions", rows, inner, dtype), places)
        x = x + b.convert(places, f32)
        for layer in range(config.num_hidden_layers):
            step.keep(x)
            with b.scope(f"layers.{layer}"):
                x = _layer(b, config, x, step, mask, dtype)
        if config.last_norm:
            x = layer_norm(b, "final_layer_norm", x, EPSILON, dtype)
        x = b.convert(x, dtype)
        return x if inner == outer else linear(b, "project_out", x, outer)


def _layer(
    b: Builder, config: OptConfig, x: Value, step: StepInputs, mask: Value, dtype: DType
) -> Value:
    """One layer, with norms before attention and MLP, or after the residual sums."""
    if config.do_layer_norm_before:
        h = layer_norm(b, "self_attn_layer_norm", x, EPSILON, dtype)
        x = x + _attention(b, config, h, step, mask)
        h = layer_norm(b, "final_layer_norm", x, EPSILON, dtype)
        return x + _mlp(b, config, h)
    x = x + _attention(b, config, b.convert(x, dtype), step, mask)
    h = layer_norm(b, "self_attn_layer_norm", x, EPSILON, dtype)
    x = b.convert(h, f32) + _mlp(b, config, h)
    return b.convert(layer_norm(b, "final_layer_norm", x, EPSILON, dtype), f32)


def _attention(b: Builder, config: OptConfig, x: Value, step: StepInputs, mask: Value) -> Value:
    width, heads, bias = config.hidden_size, config.num_attention_heads, config.enable_bias
    shape = (*x.shape[:2], heads, width // heads)
    with b.scope("self_attn"):
        flat = [
            linear(b, f"{name}_proj", x, width, bias=bias, dtype=f32) for name in ("q", "k", "v")
        ]
        q, k, v = [b.reshape(b.convert(part, x.dtype), shape) for part in flat]
        out = attend(b, q, k, v, step, mask, (width // heads) ** -0.5)
        return linear(b, "out_proj", out, width, bias=bias, dtype=f32)


def _mlp(b: Builder, config: OptConfig, x: Value) -> Value:
    activation, bias = config.activation_function, config.enable_bias
    return mlp(b, x, ("fc1", "fc2"), config.ffn_dim, activation, bias=bias)


def head(b: Builder, config: OptConfig, x: Value) -> Value:
    """Logits f32 [..., V] of x [..., E]."""
    tied = EMBEDDING if config.tie_word_embeddings else ""
    return lm_head(b, x, config.vocab_size, tied=tied)


OPT = Family(
    "opt",
    ("OPTForCausalLM",),
    read_opt,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
    embedding_size="word_embed_proj_dim",
)
