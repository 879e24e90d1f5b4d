"""Mistral: Llama's decoder in which a token reads a window of the last positions only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from graphgen.models.config_reader import ConfigReader
from graphgen.models.decoder import EMBEDDING, body, head
from graphgen.models.decoder_config import DecoderConfig, read_sizes, smaller, to_hf, wider
from graphgen.models.family import Family
from graphgen.models.twins import WIDE_WINDOW
from graphgen.nn import AttentionConfig


@dataclass(frozen=True, slots=True)
class MistralConfig(DecoderConfig):
    """Sizes and switches under Hugging Face's names; ``sliding_window`` None means no window."""

    sliding_window: int | None = None

    def attention(self, layer: int) -> AttentionConfig:
        """Every layer is the same."""
        return replace(DecoderConfig.attention(self, layer), window=self.sliding_window or 0)

    def mini(self) -> Self:
        """See :func:`~.decoder_config.smaller`; the window is felt after 6 tokens."""
        # Another number than any size, as in the model.
        return replace(smaller(self), sliding_window=self.sliding_window and 6)

    def wide(self) -> Self:
        """See :func:`~.decoder_config.wider`."""
        return replace(wider(self), sliding_window=self.sliding_window and WIDE_WINDOW)

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        return to_hf(self, "mistral", "MistralForCausalLM")


def read_mistral(config: Mapping[str, object]) -> MistralConfig:
    """A ``config.json`` of ``model_type: mistral`` (GG0502, GG0503).

    A missing ``sliding_window`` means 4096, null means no window.
    """
    reader = ConfigReader({"sliding_window": 4096, **config})
    read = MistralConfig(
        **read_sizes(reader, positions=131072, kv_heads=8),
        sliding_window=reader.optional_integer("sliding_window"),
    )
    reader.finish()
    return read


MISTRAL = Family(
    "mistral",
    ("MistralForCausalLM",),
    read_mistral,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
)
