"""SmolLM3: Llama's decoder, some of whose layers do not rotate q and k."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from graphgen.models.config_reader import ConfigReader
from graphgen.models.decoder import EMBEDDING, body, head
from graphgen.models.decoder_config import DecoderConfig, read_sizes, smaller, to_hf, wider
from graphgen.models.family import Family
from graphgen.models.layer_types import SLIDING, read_layer_types, read_rotated
from graphgen.models.twins import WIDE_WINDOW
from graphgen.nn import AttentionConfig


@dataclass(frozen=True, slots=True)
class SmolLm3Config(DecoderConfig):
    """Sizes and switches under Hugging Face's names.

    Attributes:
        attention_bias: q, k, v and o have a bias.
        sliding_window: window of the layers of type ``sliding_attention``.
        rotated: true for each layer with rotary positions, ``no_rope_layers`` of a ``config.json``.
        layer_types: one per layer.
    """

    attention_bias: bool = False
    sliding_window: int | None = None
    rotated: tuple[bool, ...] = ()
    layer_types: tuple[str, ...] = ()

    def attention(self, layer: int) -> AttentionConfig:
        """Sizes and switches of one layer's attention."""
        return replace(
            DecoderConfig.attention(self, layer),
            qkv_bias=self.attention_bias,
            out_bias=self.attention_bias,
            window=self.sliding_window or 0 if self.layer_types[layer] == SLIDING else 0,
            rotated=self.rotated[layer],
        )

    def mini(self) -> Self:
        """See :func:`~.decoder_config.smaller`; two layers of each kind."""
        return self._kinds(smaller(self), 2, 8)

    def wide(self) -> Self:
        """See :func:`~.decoder_config.wider`; a layer of each kind."""
        return self._kinds(wider(self), 1, WIDE_WINDOW)

    def _kinds(self, twin: Self, each: int, window: int) -> Self:
        kinds = list(dict.fromkeys(zip(self.layer_types, self.rotated, strict=True)))
        layers = kinds * (each if len(kinds) > 1 else 2)
        types, rotated = zip(*layers, strict=True)
        return replace(
            twin,
            num_hidden_layers=len(layers),
            layer_types=types,
            rotated=rotated,
            sliding_window=self.sliding_window and window,
        )

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        out = to_hf(self, "smollm3", "SmolLM3ForCausalLM")
        del out["rotated"]
        return {
            **out,
            "no_rope_layers": list(map(int, self.rotated)),
            "layer_types": list(self.layer_types),
            "use_sliding_window": self.sliding_window is not None,
        }


def read_smollm3(config: Mapping[str, object]) -> SmolLm3Config:
    """A ``config.json`` of ``model_type: smollm3`` (GG0502, GG0503)."""
    reader = ConfigReader({"rope_theta": 2e6, "tie_word_embeddings": True, **config})
    sizes = read_sizes(reader, positions=32768, kv_heads=4)
    rotated = read_rotated(reader, sizes["num_hidden_layers"])
    slides = reader.boolean("use_sliding_window", False)
    window = reader.optional_integer("sliding_window")
    read = SmolLm3Config(
        **sizes,
        mlp_bias=reader.boolean("mlp_bias", False),
        attention_bias=reader.boolean("attention_bias", False),
        sliding_window=window if slides else None,
        rotated=rotated,
        layer_types=read_layer_types(
            reader, [slides and window is not None and not one for one in rotated]
        ),
    )
    reader.finish()
    return read


SMOLLM3 = Family(
    "smollm3",
    ("SmolLM3ForCausalLM",),
    read_smollm3,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
)
