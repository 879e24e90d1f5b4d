"""Llama: Llama 2 and 3.x, SmolLM2 and every checkpoint with the same mathematics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from graphgen.models.config_reader import ConfigReader
from graphgen.models.decoder import EMBEDDING, body, head
from graphgen.models.decoder_config import DecoderConfig, read_sizes, smaller, to_hf, wider
from graphgen.models.family import Family
from graphgen.nn import AttentionConfig


@dataclass(frozen=True, slots=True)
class LlamaConfig(DecoderConfig):
    """Sizes and switches under Hugging Face's names; ``attention_bias`` is for q, k, v and o."""

    attention_bias: bool = False

    def attention(self, layer: int) -> AttentionConfig:
        """Every layer is the same."""
        biased = self.attention_bias
        return replace(DecoderConfig.attention(self, layer), qkv_bias=biased, out_bias=biased)

    def mini(self) -> Self:
        """See :func:`~.decoder_config.smaller`."""
        return smaller(self)

    def wide(self) -> Self:
        """See :func:`~.decoder_config.wider`."""
        return wider(self)

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        return to_hf(self, "llama", "LlamaForCausalLM")


def read_llama(config: Mapping[str, object]) -> LlamaConfig:
    """A ``config.json`` of ``model_type: llama`` (GG0502, GG0503)."""
    reader = ConfigReader(config)
    read = LlamaConfig(
        **read_sizes(reader, positions=2048),
        attention_bias=reader.boolean("attention_bias", False),
        mlp_bias=reader.boolean("mlp_bias", False),
    )
    reader.finish()
    return read


LLAMA = Family(
    "llama",
    ("LlamaForCausalLM",),
    read_llama,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
    buffers=("*.rotary_emb.inv_freq",),
)
