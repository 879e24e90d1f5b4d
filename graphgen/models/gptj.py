"""GPT-J: attention and MLP in parallel after one norm, interleaved rotation, a head with bias."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import DType, Value
from graphgen.ir.dtype import f32
from graphgen.models.config_reader import ConfigReader
from graphgen.models.family import Family
from graphgen.models.gpt2 import ALIASES, EMBEDDING, MASK_BUFFERS, SUMMARY_KEYS
from graphgen.models.twins import WIDE_HEAD_DIM, WIDE_POSITIONS, WIDE_VOCABULARY, wide_heads
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
        """Two layers, up to four heads rotated whole or to the half, an odd vocabulary."""
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

    def wide(self) -> GptjConfig:
        """Two layers, six or three heads rotated whole or to the half, large numbers."""
        heads = wide_heads(self.n_head)
        whole = self.rotary_dim * self.n_head == self.n_embd
        return replace(
            self,
            vocab_size=WIDE_VOCABULARY,
            n_positions=WIDE_POSITIONS,
            n_embd=heads * 2 * WIDE_HEAD_DIM,
            n_layer=min(self.n_layer, 2),
            n_head=heads,
            n_inner=heads * 8 + 2,
            rotary_dim=2 * WIDE_HEAD_DIM if whole else WIDE_HEAD_DIM,
        )

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        kind = {"model_type": "gptj", "architectures": ["GPTJForCausalLM"]}
        return {**asdict(self), **kind}


def read_gptj(config: Mapping[str, object]) -> GptjConfig:
    """A ``config.json`` of ``model_type: gptj`` (GG0502, GG0503)."""
    reader = ConfigReader(config, ALIASES)
    plain = GptjConfig()
    width, heads = reader.width_and_heads(plain, "n_embd", "n_head")
    if config.get("rotary_dim", 64) is None:
        raise GraphgenError("GG0502", "config: rotary_dim = None is not supported")
    turned = reader.integer("rotary_dim", plain.rotary_dim)
    if turned % 2 or turned > width // heads:
        raise GraphgenError(
            "GG0503",
            f"config: rotary_dim = {turned}, expected an even number up to {width // heads}",
        )
    read = reader.read_fields(
        plain,
        n_embd=width,
        n_head=heads,
        rotary_dim=turned,
        n_inner=reader.integer("n_inner", 4 * width),
        activation_function=reader.choice("activation_function", ACTIVATIONS, "gelu_new"),
    )
    # Choices between two ways to the same numbers.
    reader.neutral("scale_attn_weights", "rotary", "gradient_checkpointing", *SUMMARY_KEYS)
    reader.finish()
    return read


def body(b: Builder, config: GptjConfig, tokens: Value, step: StepInputs, dtype: DType) -> Value:
    """Embedding, layers and last norm: hidden states [B,S,E]; the residual stream is f32."""
    turns = rotary(b, step, inverse_frequencies(RopeConfig(), config.rotary_dim))
    mask = causal_mask(b, step)
    epsilon = config.layer_norm_epsilon
    with b.scope("transformer"):
        x = b.convert(embed(b, "wte", tokens, config.vocab_size, config.n_embd, dtype), f32)
        for layer in range(config.n_layer):
            step.keep(x)
            with b.scope(f"h.{layer}"):
                h = layer_norm(b, "ln_1", x, epsilon, dtype)
                x = x + (_attention(b, config, h, step, mask, turns) + _mlp(b, config, h))
        return layer_norm(b, "ln_f", x, epsilon, dtype)


def _attention(
    b: Builder, config: GptjConfig, x: Value, step: StepInputs, mask: Value, turns: Rotary
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
        out = attend(b, q, k, v, step, mask, (width // heads) ** -0.5)
        return linear(b, "out_proj", out, width, dtype=f32)


def _mlp(b: Builder, config: GptjConfig, x: Value) -> Value:
    with b.scope("mlp"):
        return mlp(b, x, ("fc_in", "fc_out"), config.n_inner, config.activation_function)


def head(b: Builder, config: GptjConfig, x: Value) -> Value:
    """Logits f32 [..., V] of x [..., E]."""
    tied = EMBEDDING if config.tie_word_embeddings else ""
    return lm_head(b, x, config.vocab_size, tied=tied, bias=True)


GPTJ = Family(
    "gptj",
    ("GPTJForCausalLM",),
    read_gptj,
    body,
    head,
    prefix="transformer",
    embedding=f"{EMBEDDING}.weight",
    buffers=MASK_BUFFERS,
    aliases=ALIASES,
)
