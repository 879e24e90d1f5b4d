"""GLM-4: Llama's decoder with half of each head rotated, neighbors together; gate and up are one.

The models of 2025, ``glm4``, have norms of what attention and MLP give too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from graphgen.models.config_reader import ConfigReader
from graphgen.models.decoder import EMBEDDING, body, head
from graphgen.models.decoder_config import (
    PRE_NORMS,
    DecoderConfig,
    LayerNorms,
    read_sizes,
    smaller,
    to_hf,
    wider,
)
from graphgen.models.family import Family, FusedRows
from graphgen.models.rope_config import read_partial, rotated
from graphgen.nn import AttentionConfig

_SANDWICH = LayerNorms(attention_out="post_self_attn_layernorm", mlp_out="post_mlp_layernorm")


@dataclass(frozen=True, slots=True)
class GlmConfig(DecoderConfig):
    """Sizes and switches under Hugging Face's names.

    Attributes:
        kind: the ``model_type``, ``glm`` or ``glm4``.
        attention_bias: q, k and v have a bias.
        partial_rotary_factor: what part of each head is rotated.
    """

    kind: str = "glm4"
    attention_bias: bool = True
    partial_rotary_factor: float = 0.5

    @property
    def norms(self) -> LayerNorms:
        """The norms of every layer."""
        return _SANDWICH if self.kind == "glm4" else PRE_NORMS

    @property
    def rope_pairs(self) -> str:
        """Neighbors are turned together."""
        return "neighbors"

    @property
    def rotary_dim(self) -> int:
        """The rotated elements of a head, which come first."""
        return int(self.head_dim * self.partial_rotary_factor)

    def attention(self, layer: int) -> AttentionConfig:
        """Every layer is the same."""
        return replace(DecoderConfig.attention(self, layer), qkv_bias=self.attention_bias)

    def mini(self) -> Self:
        """See :func:`~.decoder_config.smaller`; with many query heads a key has, a narrow MLP."""
        small = smaller(self)
        return replace(small, intermediate_size=small.hidden_size * 5 // 4)

    def wide(self) -> Self:
        """See :func:`~.decoder_config.wider`."""
        return wider(self)

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        out = to_hf(self, self.kind, f"{self.kind.capitalize()}ForCausalLM")
        del out["kind"], out["mlp_bias"]
        return out


def _read(config: Mapping[str, object], kind: str) -> GlmConfig:
    fraction, left = read_partial(config, 0.5)
    reader = ConfigReader({"rms_norm_eps": 1.5625e-7, **left})
    own = 0 if "head_dim" in config else 128
    read = GlmConfig(
        **read_sizes(reader, positions=131072, kv_heads=2, head_dim=own),
        kind=kind,
        attention_bias=reader.boolean("attention_bias", True),
        partial_rotary_factor=fraction,
    )
    rotated(read.head_dim, fraction)
    reader.finish()
    return read


def read_glm(config: Mapping[str, object]) -> GlmConfig:
    """A ``config.json`` of ``model_type: glm`` (GG0502, GG0503)."""
    return _read(config, "glm")


def read_glm4(config: Mapping[str, object]) -> GlmConfig:
    """A ``config.json`` of ``model_type: glm4`` (GG0502, GG0503)."""
    return _read(config, "glm4")


def _fused(config: GlmConfig) -> Mapping[str, FusedRows]:
    inner = config.intermediate_size
    return {"gate_up_proj": FusedRows((("gate_proj", inner), ("up_proj", inner)))}


GLM = Family(
    "glm",
    ("GlmForCausalLM",),
    read_glm,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
    fused=_fused,
)
GLM4 = Family(
    "glm4",
    ("Glm4ForCausalLM",),
    read_glm4,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
    fused=_fused,
)
