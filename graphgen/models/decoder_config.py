"""Configurations of Llama-like decoders: fields, reading, writing, and small twins."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TypedDict, TypeVar

from graphgen.errors import GraphgenError
from graphgen.ir import Literal
from graphgen.models.config_reader import ConfigReader
from graphgen.models.rope_config import read_rope, rope_to_hf
from graphgen.models.twins import WIDE_HEAD_DIM, WIDE_POSITIONS, WIDE_VOCABULARY, wide_heads
from graphgen.nn import (
    ACTIVATIONS,
    AttentionConfig,
    LongFrequencies,
    MixtureConfig,
    RopeConfig,
    inverse_frequencies,
    long_frequencies,
)


@dataclass(frozen=True, slots=True)
class LayerNorms:
    """Names of the norms of a layer; empty where there is none.

    Attributes:
        attention_in, attention_out: of what attention reads, and of its result.
        mlp_in, mlp_out: of what the MLP reads, and of its result.
    """

    attention_in: str = "input_layernorm"
    attention_out: str = ""
    mlp_in: str = "post_attention_layernorm"
    mlp_out: str = ""


PRE_NORMS = LayerNorms()


@dataclass(frozen=True, slots=True)
class Multipliers:
    """Factors of embeddings and of what attention and MLP add; the divisor of logits."""

    embedding: float = 1.0
    residual: float = 1.0
    logits: float = 1.0


PLAIN = Multipliers()


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes and switches under Hugging Face's names.

    ``head_dim`` may differ from ``hidden_size / num_attention_heads``.
    """

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 2048
    rope: RopeConfig = field(default_factory=RopeConfig)
    tie_word_embeddings: bool = False
    hidden_act: str = "silu"
    mlp_bias: bool = False

    @property
    def qk_norm(self) -> bool:
        """True if each head of q and k is normalized before it is rotated."""
        return False

    @property
    def qk_norm_whole(self) -> bool:
        """True if all heads of q together, and all of k, are normalized before rotation."""
        return False

    @property
    def norms(self) -> LayerNorms:
        """The norms of every layer."""
        return PRE_NORMS

    @property
    def multipliers(self) -> Multipliers:
        """Factors of embeddings and addends, and the divisor of logits."""
        return PLAIN

    @property
    def rope_pairs(self) -> str:
        """The pairs that are turned together: ``halves`` of the rotated part, or ``neighbors``."""
        return "halves"

    def attention(self, layer: int) -> AttentionConfig:
        """Sizes and switches of one layer's attention."""
        return AttentionConfig(self.num_attention_heads, self.num_key_value_heads, self.head_dim)

    def mixture(self, layer: int) -> MixtureConfig | None:
        """The experts of one layer; ``None`` for a layer with one gated MLP."""
        return None

    @property
    def rotary_dim(self) -> int:
        """The rotated elements of a head, which come first."""
        return self.head_dim

    def rope_frequencies(self) -> Literal:
        """f32 [rotary_dim / 2]."""
        return inverse_frequencies(self.rope, self.rotary_dim)

    def long_frequencies(self) -> LongFrequencies | None:
        """Frequencies of caches whose rows are longer than the context that LongRoPE stretches."""
        found = long_frequencies(self.rope, self.rotary_dim)
        return None if found is None else LongFrequencies(found, self.rope.original_positions)


Config = TypeVar("Config", bound=DecoderConfig)


class DecoderFields(TypedDict):
    """The fields of :class:`DecoderConfig`, as keyword arguments of its subclasses."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float
    max_position_embeddings: int
    rope: RopeConfig
    tie_word_embeddings: bool
    hidden_act: str


def read_sizes(
    reader: ConfigReader,
    *,
    positions: int,
    kv_heads: int = 0,
    head_dim: int = 0,
    rope: RopeConfig | None = None,
) -> DecoderFields:
    """Read the fields shared by these families from a ``config.json`` (GG0502, GG0503).

    Args:
        reader: of the configuration.
        positions: default of ``max_position_embeddings``.
        kv_heads: default of ``num_key_value_heads``; 0 for the number of heads.
        head_dim: default of ``head_dim``; 0 for ``hidden_size / num_attention_heads``.
        rope: settings of positions that are read already; ``None`` to read them.
    """
    heads, hidden = reader.integer("num_attention_heads"), reader.integer("hidden_size")
    kv_heads = reader.integer("num_key_value_heads", kv_heads or heads)
    own = head_dim or reader.config.get("head_dim") is not None
    if heads % kv_heads:
        raise GraphgenError(
            "GG0503",
            f"config: num_attention_heads = {heads} is not a multiple of {kv_heads} KV heads",
        )
    head_dim = reader.integer("head_dim", head_dim or hidden // heads)
    if not own and hidden % heads:
        raise GraphgenError(
            "GG0503", f"config: hidden_size = {hidden} does not divide into {heads} heads"
        )
    if head_dim % 2:
        raise GraphgenError("GG0503", f"config: head_dim = {head_dim} is odd")
    reader.only("partial_rotary_factor", [1.0], 1.0)
    activation = reader.choice("hidden_act", ACTIVATIONS, "silu")
    return DecoderFields(
        hidden_size=hidden,
        intermediate_size=reader.integer("intermediate_size"),
        num_hidden_layers=reader.integer("num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=reader.integer("vocab_size"),
        rms_norm_eps=reader.number("rms_norm_eps", 1e-6),
        max_position_embeddings=reader.integer("max_position_embeddings", positions),
        rope=rope or read_rope(reader),
        tie_word_embeddings=reader.boolean("tie_word_embeddings", False),
        hidden_act="silu" if activation == "swish" else activation,
    )


def to_hf(config: DecoderConfig, kind: str, architecture: str) -> dict[str, object]:
    """A configuration as a ``config.json`` of this ``model_type`` and architecture."""
    out: dict[str, object] = {item.name: getattr(config, item.name) for item in fields(config)}
    del out["rope"]
    return {**out, "model_type": kind, "architectures": [architecture], **rope_to_hf(config.rope)}


def smaller(config: Config) -> Config:
    """Two layers, two KV heads, the same query heads per KV head, an odd vocabulary."""
    group = config.num_attention_heads // config.num_key_value_heads
    kv_heads = min(config.num_key_value_heads, 2)
    own_head_dim = config.head_dim * config.num_attention_heads != config.hidden_size
    heads = kv_heads * group
    return replace(
        config,
        hidden_size=heads * 8,
        intermediate_size=heads * 16,
        num_hidden_layers=min(config.num_hidden_layers, 2),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=16 if own_head_dim else 8,
        vocab_size=257,
    )


def wider(config: Config) -> Config:
    """Two layers, six or three KV heads, up to two query heads per KV head, large numbers.

    The middle width is even and no multiple of 4: no tile of a product fits it.
    """
    group = config.num_attention_heads // config.num_key_value_heads
    kv_heads = wide_heads(config.num_key_value_heads)
    # A single KV head is not divided among ranks, its query heads are.
    group = min(group, 2) if kv_heads > 1 else group
    own_head_dim = config.head_dim * config.num_attention_heads != config.hidden_size
    heads = kv_heads * group
    return replace(
        config,
        hidden_size=heads * WIDE_HEAD_DIM,
        intermediate_size=heads * 8 + 2,
        num_hidden_layers=min(config.num_hidden_layers, 2),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=6 if own_head_dim else WIDE_HEAD_DIM,
        vocab_size=WIDE_VOCABULARY,
        max_position_embeddings=WIDE_POSITIONS,
    )
