"""GPT-J: attention and MLP side by side behind one norm, neighbors rotated, a head with a bias."""

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
    ACTIVATIONS,
    RopeConfig,
    Rotary,
    StepInputs,
    activate,
    attend,
    causal_mask,
    inverse_frequencies,
    layer_norm,
    linear,
    rotary,
)

# transformers' attribute_map.
ALIASES = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}


@dataclass(frozen=True, slots=True)
class GptjConfig:
    """Sizes and switches under Hugging Face's names."""

    vocab_size: int = 50400
    n_positions: int = 2048
    n_embd: int = 4096
    n_layer: int = 28
    n_head: int = 16
    rotary_dim: int = 64
    n_inner: int = 16384
    activation_function: str = "gelu_new"
    layer_norm_epsilon: float = 1e-5
    tie_word_embeddings: bool = False

    @property
    def max_position_embeddings(self) -> int:
        """Positions it was trained on."""
        return self.n_positions

    def mini(self) -> GptjConfig:
        """Two layers, up to four heads of which as much is rotated, an odd vocabulary."""
        heads = min(self.n_head, 4)
        whole = self.rotary_dim * self.n_head == self.n_embd
        return replace(
            self,
            vocab_size=257,
            n_embd=heads * 8,
            n_layer=min(self.n_layer, 2),
            n_head=heads,
            n_inner=heads * 16,
            rotary_dim=8 if whole else 4,
        )

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json`` holds it."""
        kind = {"model_type": "gptj", "architectures": ["GPTJForCausalLM"]}
        return {**asdict(self), **kind}


def read_gptj(config: Mapping[str, object]) -> GptjConfig:
    """A ``config.json`` of ``model_type: gptj`` (GG0502, GG0503)."""
    reader = ConfigReader(config, ALIASES)
    plain = GptjConfig()
    width, heads = reader.integer("n_embd", plain.n_embd), reader.integer("n_head", plain.n_head)
    if width % heads:
        raise GraphgenError("GG0503", f"config: n_embd = {width} is no multiple of {heads} heads")
    if config.get("rotary_dim", 64) is None:
        raise GraphgenError("GG0502", "config: rotary_dim = None is not supported")
    turned = reader.integer("rotary_dim", plain.rotary_dim)
    if turned % 2 or turned > width // heads:
        raise GraphgenError(
            "GG0503",
            f"config: rotary_dim = {turned} is no even part of heads of {width // heads}",
        )
    read = GptjConfig(
        vocab_size=reader.integer("vocab_size", plain.vocab_size),
        n_positions=reader.integer("n_positions", plain.n_positions),
        n_embd=width,
        n_layer=reader.integer("n_layer", plain.n_layer),
        n_head=heads,
        rotary_dim=turned,
        n_inner=reader.integer("n_inner", 4 * width),
        activation_function=reader.choice("activation_function", ACTIVATIONS, "gelu_new"),
        layer_norm_epsilon=reader.number("layer_norm_epsilon", plain.layer_norm_epsilon),
        tie_word_embeddings=reader.boolean("tie_word_embeddings", False),
    )
    # The head of another task, and choices between two ways to the same numbers.
    reader.neutral("summary_type", "summary_use_proj", "summary_activation", "scale_attn_weights")
    reader.neutral("summary_proj_to_labels", "summary_first_dropout", "rotary")
    reader.neutral("gradient_checkpointing")
    reader.finish()
    return read


def body(b: Builder, config: GptjConfig, tokens: Value, call: StepInputs, dtype: DType) -> Value:
    """Embedding, layers and last norm: hidden states [B,S,E]; the residual stream is f32."""
    turns = rotary(b, call, inverse_frequencies(RopeConfig(), config.rotary_dim))
    mask = causal_mask(b, call)
    epsilon = config.layer_norm_epsilon
    with b.scope("transformer"):
        x = b.convert(b.embedding(_embedding(b, config, dtype), tokens), f32)
        for layer in range(config.n_layer):
            with b.scope(f"h.{layer}"):
                h = layer_norm(b, "ln_1", x, epsilon, dtype)
                x = x + (_attention(b, config, h, call, mask, turns) + _mlp(b, config, h))
        return layer_norm(b, "ln_f", x, epsilon, dtype)


def _attention(
    b: Builder, config: GptjConfig, x: Value, call: StepInputs, mask: Value, turns: Rotary
) -> Value:
    width, heads = config.n_embd, config.n_head
    shape = (*x.shape[:2], heads, width // heads)
    with b.scope("attn"):
        # Rotated in f32 and rounded once.
        q, k = [
            b.reshape(linear(b, f"{name}_proj", x, width, dtype=f32), shape) for name in ("q", "k")
        ]
        v = b.reshape(linear(b, "v_proj", x, width), shape)
        q, k = [
            b.convert(b.rope(part, turns.cos, turns.sin, "neighbors"), x.dtype) for part in (q, k)
        ]
        out = attend(b, q, k, v, call, mask, (width // heads) ** -0.5)
        return linear(b, "out_proj", out, width, dtype=f32)


def _mlp(b: Builder, config: GptjConfig, x: Value) -> Value:
    with b.scope("mlp"):
        hidden = linear(b, "fc_in", x, config.n_inner, bias=True, dtype=f32)
        hidden = b.convert(activate(b, config.activation_function, hidden), x.dtype)
        return linear(b, "fc_out", hidden, config.n_embd, bias=True, dtype=f32)


def head(b: Builder, config: GptjConfig, x: Value) -> Value:
    """Logits f32 [B,V] of x [B,E]."""
    if not config.tie_word_embeddings:
        return linear(b, "lm_head", x, config.vocab_size, bias=True, dtype=f32)
    with b.scope("transformer"):
        weight = _embedding(b, config, x.dtype)
    with b.scope("lm_head"):
        y = b.dot(x, weight, f32)
        bias = b.convert(b.weight("bias", x.dtype, (config.vocab_size,)), f32)
        return y + b.broadcast_in_dim(bias, y.shape, [1])


def _embedding(b: Builder, config: GptjConfig, dtype: DType) -> Value:
    with b.scope("wte"):
        return b.weight("weight", dtype, (config.vocab_size, config.n_embd))


GPTJ = Family(
    "gptj",
    ("GPTJForCausalLM",),
    read_gptj,
    body,
    head,
    prefix="transformer",
    embedding="transformer.wte.weight",
    # The causal mask and the value it put in, which older checkpoints kept.
    buffers=("*.attn.bias", "*.attn.masked_bias"),
)
