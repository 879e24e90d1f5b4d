"""GPT-2: learned positions, layer norms, one fused product for q, k and v, a tied head.

Its layers are ``Conv1D``: weights are [in, out], and q, k and v lie side by side in ``c_attn``.
"""

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
    activate,
    attend,
    causal_mask,
    conv1d,
    embed,
    embedding_table,
    layer_norm,
    lm_head,
)

# transformers' attribute_map.
ALIASES = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}

# Keys of the head of another task.
SUMMARY_KEYS = (
    "summary_type",
    "summary_use_proj",
    "summary_activation",
    "summary_proj_to_labels",
    "summary_first_dropout",
)
# The causal mask and its fill value, which older checkpoints kept.
MASK_BUFFERS = ("*.attn.bias", "*.attn.masked_bias")
# Module of the embedding table.
EMBEDDING = "transformer.wte"


@dataclass(frozen=True, slots=True)
class Gpt2Config:
    """Sizes and switches under Hugging Face's names."""

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int = 3072
    activation_function: str = "gelu_new"
    layer_norm_epsilon: float = 1e-5
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    tie_word_embeddings: bool = True

    @property
    def max_position_embeddings(self) -> int:
        """Rows of the table of positions."""
        return self.n_positions

    def mini(self) -> Gpt2Config:
        """Two layers, up to four heads, an odd vocabulary."""
        heads = min(self.n_head, 4)
        return replace(
            self,
            vocab_size=257,
            n_embd=heads * 8,
            n_layer=min(self.n_layer, 2),
            n_head=heads,
            n_inner=heads * 16,
        )

    def wide(self) -> Gpt2Config:
        """Two layers, six or three heads, more ids and positions than 16 bits hold."""
        heads = wide_heads(self.n_head)
        return replace(
            self,
            vocab_size=WIDE_VOCABULARY,
            n_positions=WIDE_POSITIONS,
            n_embd=heads * WIDE_HEAD_DIM,
            n_layer=min(self.n_layer, 2),
            n_head=heads,
            n_inner=heads * 8 + 2,
        )

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        kind = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}
        return {**asdict(self), **kind}

    def scale(self, layer: int) -> float:
        """The factor of a layer's scores."""
        scale = (self.n_embd // self.n_head) ** -0.5 if self.scale_attn_weights else 1.0
        return scale / (layer + 1) if self.scale_attn_by_inverse_layer_idx else scale


def read_gpt2(config: Mapping[str, object]) -> Gpt2Config:
    """A ``config.json`` of ``model_type: gpt2`` (GG0502, GG0503)."""
    reader = ConfigReader(config, ALIASES)
    plain = Gpt2Config()
    width, heads = reader.width_and_heads(plain, "n_embd", "n_head")
    read = reader.read_fields(
        plain,
        n_embd=width,
        n_head=heads,
        n_inner=reader.integer("n_inner", 4 * width),
        activation_function=reader.choice("activation_function", ACTIVATIONS, "gelu_new"),
    )
    reader.only("add_cross_attention", [False], False)
    # Scores are f32 in any case; the old name of n_positions.
    reader.neutral("reorder_and_upcast_attn", "n_ctx", *SUMMARY_KEYS)
    reader.finish()
    return read


def body(b: Builder, config: Gpt2Config, tokens: Value, step: StepInputs, dtype: DType) -> Value:
    """Embeddings, layers and last norm: hidden states [B,S,E]; the residual stream is f32.

    A padding token, at position -1, reads the first row of the position table; it has no effect.
    """
    mask = causal_mask(b, step)
    epsilon = config.layer_norm_epsilon
    with b.scope("transformer"):
        x = b.convert(embed(b, "wte", tokens, config.vocab_size, config.n_embd, dtype), f32)
        table = embedding_table(b, "wpe", config.n_positions, config.n_embd, dtype)
        x = x + b.convert(b.embedding(table, step.positions), f32)
        for layer in range(config.n_layer):
            step.keep(x)
            with b.scope(f"h.{layer}"):
                h = layer_norm(b, "ln_1", x, epsilon, dtype)
                x = x + _attention(b, config, layer, h, step, mask)
                h = layer_norm(b, "ln_2", x, epsilon, dtype)
                x = x + _mlp(b, config, h)
        return layer_norm(b, "ln_f", x, epsilon, dtype)


def _attention(
    b: Builder, config: Gpt2Config, layer: int, x: Value, step: StepInputs, mask: Value
) -> Value:
    width, heads = config.n_embd, config.n_head
    shape = (*x.shape[:2], heads, width // heads)
    with b.scope("attn"):
        fused = conv1d(b, "c_attn", x, 3 * width, dtype=f32)
        parts = [b.slice_dim(fused, 2, i * width, (i + 1) * width) for i in range(3)]
        q, k, v = [b.reshape(b.convert(part, x.dtype), shape) for part in parts]
        out = attend(b, q, k, v, step, mask, config.scale(layer))
        return conv1d(b, "c_proj", out, width, dtype=f32)


def _mlp(b: Builder, config: Gpt2Config, x: Value) -> Value:
    with b.scope("mlp"):
        hidden = activate(
            b, config.activation_function, conv1d(b, "c_fc", x, config.n_inner, dtype=f32)
        )
        return conv1d(b, "c_proj", b.convert(hidden, x.dtype), config.n_embd, dtype=f32)


def head(b: Builder, config: Gpt2Config, x: Value) -> Value:
    """Logits f32 [..., V] of x [..., E]."""
    tied = EMBEDDING if config.tie_word_embeddings else ""
    return lm_head(b, x, config.vocab_size, tied=tied)


GPT2 = Family(
    "gpt2",
    ("GPT2LMHeadModel",),
    read_gpt2,
    body,
    head,
    prefix="transformer",
    embedding=f"{EMBEDDING}.weight",
    buffers=MASK_BUFFERS,
    aliases=ALIASES,
)
