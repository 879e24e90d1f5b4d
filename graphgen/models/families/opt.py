"""OPT: learned positions after two rows nobody uses, layer norms before or after, biases, ReLU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import DType, Value
from graphgen.ir.dtype import f32
from graphgen.models.config_reader import ConfigReader
from graphgen.models.family import Family
from graphgen.nn import ACTIVATIONS, StepInputs, activate, attend, causal_mask, layer_norm, linear

# The table of positions begins with rows for padding.
OFFSET = 2
EPSILON = 1e-5


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
        """Whether there is a norm behind the last layer."""
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

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json`` holds it."""
        kind = {"model_type": "opt", "architectures": ["OPTForCausalLM"]}
        return {**asdict(self), **kind}


def read_opt(config: Mapping[str, object]) -> OptConfig:
    """A ``config.json`` of ``model_type: opt`` (GG0502, GG0503)."""
    reader = ConfigReader(config)
    plain = OptConfig()
    width = reader.integer("hidden_size", plain.hidden_size)
    heads = reader.integer("num_attention_heads", plain.num_attention_heads)
    if width % heads:
        raise GraphgenError(
            "GG0503", f"config: hidden_size = {width} is no multiple of {heads} heads"
        )
    reader.only("layer_norm_elementwise_affine", [True], True)
    # How it was trained.
    reader.neutral("dropout", "activation_dropout", "layerdrop", "init_std")
    read = OptConfig(
        vocab_size=reader.integer("vocab_size", plain.vocab_size),
        hidden_size=width,
        num_hidden_layers=reader.integer("num_hidden_layers", plain.num_hidden_layers),
        ffn_dim=reader.integer("ffn_dim", plain.ffn_dim),
        max_position_embeddings=reader.integer("max_position_embeddings", 2048),
        do_layer_norm_before=reader.boolean("do_layer_norm_before", True),
        _remove_final_layer_norm=reader.boolean("_remove_final_layer_norm", False),
        word_embed_proj_dim=reader.integer("word_embed_proj_dim", width),
        num_attention_heads=heads,
        activation_function=reader.choice("activation_function", ACTIVATIONS, "relu"),
        enable_bias=reader.boolean("enable_bias", True),
        tie_word_embeddings=reader.boolean("tie_word_embeddings", True),
    )
    reader.finish()
    return read


def body(b: Builder, config: OptConfig, tokens: Value, call: StepInputs, dtype: DType) -> Value:
    """Embeddings, layers and last norm: hidden states [B,S,P]; the residual stream is f32."""
    mask = causal_mask(b, call)
    inner, outer = config.hidden_size, config.word_embed_proj_dim
    with b.scope("model.decoder"):
        x = b.embedding(_table(b, "embed_tokens", config.vocab_size, outer, dtype), tokens)
        x = b.convert(x if inner == outer else linear(b, "project_in", x, inner), f32)
        rows = config.max_position_embeddings + OFFSET
        places = b.binary("add", call.positions, OFFSET)
        places = b.embedding(_table(b, "embed_positions", rows, inner, dtype), places)
        x = x + b.convert(places, f32)
        for layer in range(config.num_hidden_layers):
            with b.scope(f"layers.{layer}"):
                x = _layer(b, config, x, call, mask, dtype)
        if config.last_norm:
            x = layer_norm(b, "final_layer_norm", x, EPSILON, dtype)
        x = b.convert(x, dtype)
        return x if inner == outer else linear(b, "project_out", x, outer)


def _layer(
    b: Builder, config: OptConfig, x: Value, call: StepInputs, mask: Value, dtype: DType
) -> Value:
    """The norms stand before attention and MLP, or behind what they are added to."""
    if config.do_layer_norm_before:
        h = layer_norm(b, "self_attn_layer_norm", x, EPSILON, dtype)
        x = x + _attention(b, config, h, call, mask)
        h = layer_norm(b, "final_layer_norm", x, EPSILON, dtype)
        return x + _mlp(b, config, h)
    x = x + _attention(b, config, b.convert(x, dtype), call, mask)
    h = layer_norm(b, "self_attn_layer_norm", x, EPSILON, dtype)
    x = b.convert(h, f32) + _mlp(b, config, h)
    return b.convert(layer_norm(b, "final_layer_norm", x, EPSILON, dtype), f32)


def _attention(b: Builder, config: OptConfig, x: Value, call: StepInputs, mask: Value) -> Value:
    width, heads, bias = config.hidden_size, config.num_attention_heads, config.enable_bias
    shape = (*x.shape[:2], heads, width // heads)
    with b.scope("self_attn"):
        flat = [
            linear(b, f"{name}_proj", x, width, bias=bias, dtype=f32) for name in ("q", "k", "v")
        ]
        q, k, v = [b.reshape(b.convert(part, x.dtype), shape) for part in flat]
        out = attend(b, q, k, v, call, mask, (width // heads) ** -0.5)
        return linear(b, "out_proj", out, width, bias=bias, dtype=f32)


def _mlp(b: Builder, config: OptConfig, x: Value) -> Value:
    bias = config.enable_bias
    hidden = linear(b, "fc1", x, config.ffn_dim, bias=bias, dtype=f32)
    hidden = b.convert(activate(b, config.activation_function, hidden), x.dtype)
    return linear(b, "fc2", hidden, config.hidden_size, bias=bias, dtype=f32)


def head(b: Builder, config: OptConfig, x: Value) -> Value:
    """Logits f32 [B,V] of x [B,P]."""
    tied = config.tie_word_embeddings
    scope, name = ("model.decoder", "embed_tokens") if tied else ("", "lm_head")
    with b.scope(scope):
        weight = _table(b, name, config.vocab_size, config.word_embed_proj_dim, x.dtype)
    with b.scope("lm_head"):
        return b.dot(x, weight, f32)


def _table(b: Builder, name: str, rows: int, width: int, dtype: DType) -> Value:
    with b.scope(name):
        return b.weight("weight", dtype, (rows, width))


OPT = Family(
    "opt",
    ("OPTForCausalLM",),
    read_opt,
    body,
    head,
    prefix="model",
    embedding="model.decoder.embed_tokens.weight",
)
