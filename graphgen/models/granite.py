"""Granite: Llama's decoder with constant factors of embeddings, scores, addends and logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypedDict

from graphgen.models.config_reader import ConfigReader
from graphgen.models.decoder import EMBEDDING, body, head
from graphgen.models.decoder_config import Multipliers, read_sizes, to_hf
from graphgen.models.family import Family
from graphgen.models.llama import LlamaConfig
from graphgen.nn import AttentionConfig


@dataclass(frozen=True, slots=True)
class GraniteConfig(LlamaConfig):
    """Sizes and switches under Hugging Face's names.

    Attributes:
        embedding_multiplier: factor of embeddings, those that a caller gives too.
        residual_multiplier: factor of what attention and MLP add.
        attention_multiplier: factor of the scores.
        logits_scaling: divisor of the logits.
    """

    embedding_multiplier: float = 1.0
    residual_multiplier: float = 1.0
    attention_multiplier: float = 1.0
    logits_scaling: float = 1.0

    @property
    def multipliers(self) -> Multipliers:
        """Factors of embeddings and addends, and the divisor of logits."""
        return Multipliers(self.embedding_multiplier, self.residual_multiplier, self.logits_scaling)

    def attention(self, layer: int) -> AttentionConfig:
        """Llama's, with the factor of the scores."""
        return replace(LlamaConfig.attention(self, layer), scale=self.attention_multiplier)

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        return to_hf(self, "granite", "GraniteForCausalLM")


class GraniteFactors(TypedDict):
    """Fields of :class:`GraniteConfig`, as keyword arguments of it and of its subclasses."""

    attention_bias: bool
    embedding_multiplier: float
    residual_multiplier: float
    attention_multiplier: float
    logits_scaling: float


def read_factors(reader: ConfigReader) -> GraniteFactors:
    """The factors, and whether attention has biases."""
    return GraniteFactors(
        attention_bias=reader.boolean("attention_bias", False),
        embedding_multiplier=reader.number("embedding_multiplier", 1.0),
        residual_multiplier=reader.number("residual_multiplier", 1.0),
        attention_multiplier=reader.number("attention_multiplier", 1.0),
        logits_scaling=reader.number("logits_scaling", 1.0),
    )


def read_granite(config: Mapping[str, object]) -> GraniteConfig:
    """A ``config.json`` of ``model_type: granite`` (GG0502, GG0503)."""
    reader = ConfigReader(config)
    read = GraniteConfig(
        **read_sizes(reader, positions=2048),
        **read_factors(reader),
        mlp_bias=reader.boolean("mlp_bias", False),
    )
    reader.finish()
    return read


GRANITE = Family(
    "granite",
    ("GraniteForCausalLM",),
    read_granite,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
)
