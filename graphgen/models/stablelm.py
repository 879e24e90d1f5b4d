"""StableLM: layer norms, heads rotated in part, attention and MLP in parallel (StableLM 2 12B).

Each head of q and k may have a layer norm with a weight of its own; checkpoints have a tensor for
each head, ``q_layernorm.norms.0.weight`` and so on, which are read as one [H,D].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from graphgen.build import Builder
from graphgen.ir import DType, Value
from graphgen.ir.dtype import f32
from graphgen.models.config_reader import ConfigReader
from graphgen.models.decoder import EMBEDDING, head
from graphgen.models.decoder_config import DecoderConfig, read_sizes, smaller, to_hf, wider
from graphgen.models.family import Family
from graphgen.models.rope_config import read_partial, rotated
from graphgen.models.twins import wide_head_dim
from graphgen.nn import (
    AttentionConfig,
    StepInputs,
    causal_mask,
    embed,
    gated_mlp,
    layer_norm,
    rotary,
    self_attention,
)


@dataclass(frozen=True, slots=True)
class StableLmConfig(DecoderConfig):
    """Sizes and switches under Hugging Face's names; ``rms_norm_eps`` is ``layer_norm_eps`` there.

    Attributes:
        partial_rotary_factor: the rotated part of each head.
        use_qkv_bias: q, k and v have a bias.
        qk_layernorm: each head of q and k has a norm of its own.
        use_parallel_residual: the MLP reads what attention reads.
    """

    partial_rotary_factor: float = 0.25
    use_qkv_bias: bool = False
    qk_layernorm: bool = False
    use_parallel_residual: bool = False

    @property
    def rotary_dim(self) -> int:
        """The rotated elements of a head, which come first."""
        return int(self.head_dim * self.partial_rotary_factor)

    def attention(self, layer: int) -> AttentionConfig:
        """Every layer is the same."""
        return replace(DecoderConfig.attention(self, layer), qkv_bias=self.use_qkv_bias)

    def mini(self) -> Self:
        """See :func:`~.decoder_config.smaller`; heads of 16, of which a quarter is even."""
        small = smaller(self)
        # Rows of the MLP on a rank are not those of its heads.
        heads = small.num_attention_heads
        return replace(small, hidden_size=heads * 16, head_dim=16, intermediate_size=heads * 24)

    def wide(self) -> Self:
        """See :func:`~.decoder_config.wider`."""
        wide, size = wider(self), wide_head_dim(self.partial_rotary_factor)
        return replace(wide, hidden_size=wide.num_attention_heads * size, head_dim=size)

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        out = to_hf(self, "stablelm", "StableLmForCausalLM")
        for key in ("head_dim", "mlp_bias"):
            del out[key]
        return {**out, "layer_norm_eps": out.pop("rms_norm_eps")}


def read_stablelm(config: Mapping[str, object]) -> StableLmConfig:
    """A ``config.json`` of ``model_type: stablelm`` (GG0502, GG0503)."""
    fraction, left = read_partial(config, 0.25)
    reader = ConfigReader({"layer_norm_eps": 1e-5, **left}, {"layer_norm_eps": "rms_norm_eps"})
    read = StableLmConfig(
        **read_sizes(reader, positions=4096),
        partial_rotary_factor=fraction,
        use_qkv_bias=reader.boolean("use_qkv_bias", False),
        qk_layernorm=reader.boolean("qk_layernorm", False),
        use_parallel_residual=reader.boolean("use_parallel_residual", False),
    )
    rotated(read.head_dim, fraction)
    reader.finish()
    return read


def body(
    b: Builder, config: StableLmConfig, tokens: Value, step: StepInputs, dtype: DType
) -> Value:
    """Embedding, layers and last norm: hidden states [B,S,E]; the residual stream is f32."""
    turns = rotary(b, step, config.rope_frequencies(), config.rope.attention_factor)
    mask, epsilon = causal_mask(b, step), config.rms_norm_eps
    width, act = config.intermediate_size, config.hidden_act

    def of_heads(name: str, x: Value) -> Value:
        return _norm_of_heads(b, name[0] + "_layernorm", x, epsilon, dtype)

    each = of_heads if config.qk_layernorm else None
    with b.scope("model"):
        x = embed(b, "embed_tokens", tokens, config.vocab_size, config.hidden_size, dtype)
        x = b.convert(x, f32)
        for layer in range(config.num_hidden_layers):
            step.keep(x)
            attention = config.attention(layer)
            with b.scope(f"layers.{layer}"):
                h = layer_norm(b, "input_layernorm", x, epsilon, dtype)
                out = self_attention(b, h, attention, step, mask, turns, dtype=f32, normalize=each)
                if not config.use_parallel_residual:
                    x = x + out
                    h = layer_norm(b, "post_attention_layernorm", x, epsilon, dtype)
                changes = gated_mlp(b, h, width, activation=act, dtype=f32)
                # Summed first: ranks have addends of both, and of their sum.
                x = x + (out + changes if config.use_parallel_residual else changes)
        return layer_norm(b, "norm", x, epsilon, dtype)


def _norm_of_heads(b: Builder, name: str, x: Value, epsilon: float, dtype: DType) -> Value:
    """Layer norm of each head of x [B,S,H,D] in f32, times the weight [H,D] of the heads."""
    size = x.shape[3]
    ones, zeros = [b.broadcast_in_dim(b.literal(one, f32), (size,), []) for one in (1.0, 0.0)]
    normal = b.layer_norm(x, ones, zeros, epsilon)
    with b.scope(f"{name}.norms"):
        weight = b.convert(b.weight("weight", dtype, x.shape[2:]), f32)
    return normal * b.broadcast_in_dim(weight, x.shape, [2, 3])


STABLELM = Family(
    "stablelm",
    ("StableLmForCausalLM",),
    read_stablelm,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
)
