"""Qwen2 and Qwen3: Llama's decoder with biases on q, k and v, or with normalized q and k.

Both may have layers with sliding-window attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphgen.models.config_reader import ConfigReader
from graphgen.models.decoder import EMBEDDING, body, head
from graphgen.models.decoder_config import DecoderConfig, read_sizes, smaller, to_hf, wider
from graphgen.models.family import Family
from graphgen.models.layer_types import SLIDING, ends, kinds, read_layer_types
from graphgen.models.twins import WIDE_WINDOW
from graphgen.nn import AttentionConfig


@dataclass(frozen=True, slots=True)
class QwenConfig(DecoderConfig):
    """Sizes and switches under Hugging Face's names.

    Attributes:
        kind: the ``model_type``, which begins with ``qwen2`` or ``qwen3``.
        attention_bias: q, k, v and o have a bias (Qwen3); Qwen2 has biases on q, k and v.
        sliding_window: window of the layers of type ``sliding_attention``.
        layer_types: one per layer.
    """

    kind: str = "qwen2"
    attention_bias: bool = False
    sliding_window: int | None = None
    layer_types: tuple[str, ...] = ()

    @property
    def qk_norm(self) -> bool:
        """Qwen3 normalizes each head of q and k."""
        return self.kind.startswith("qwen3")

    def attention(self, layer: int) -> AttentionConfig:
        """Sizes and switches of one layer's attention."""
        sliding = self.layer_types[layer] == SLIDING
        return replace(
            DecoderConfig.attention(self, layer),
            qkv_bias=self.attention_bias or self.kind.startswith("qwen2"),
            out_bias=self.attention_bias,
            window=self.sliding_window or 0 if sliding else 0,
        )

    def mini(self) -> QwenConfig:
        """See :func:`~.decoder_config.smaller`; a layer of each kind."""
        types, window = ends(self.layer_types), self.sliding_window and 8
        return replace(smaller(self), layer_types=types, sliding_window=window)

    def wide(self) -> QwenConfig:
        """See :func:`~.decoder_config.wider`; a layer of each kind."""
        types, window = kinds(self.layer_types), self.sliding_window and WIDE_WINDOW
        layers = len(types)
        return replace(
            wider(self), num_hidden_layers=layers, layer_types=types, sliding_window=window
        )

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        name = "".join(map(str.capitalize, self.kind.split("_")))
        out = to_hf(self, self.kind, f"{name}ForCausalLM")
        del out["kind"]
        if self.kind.startswith("qwen2"):
            del out["attention_bias"]
        return {
            **out,
            "layer_types": list(self.layer_types),
            "use_sliding_window": self.sliding_window is not None,
        }


def _read(config: Mapping[str, object], kind: str) -> QwenConfig:
    reader = ConfigReader({"sliding_window": 4096, **config})
    sizes = read_sizes(reader, positions=32768, head_dim=128 if kind == "qwen3" else 0)
    window = reader.optional_integer("sliding_window")
    first = reader.integer("max_window_layers", 28)
    if not reader.boolean("use_sliding_window", False):
        window = None
    layers = sizes["num_hidden_layers"]
    slides = [window is not None and layer >= first for layer in range(layers)]
    read = QwenConfig(
        **sizes,
        kind=kind,
        attention_bias=kind == "qwen3" and reader.boolean("attention_bias", False),
        sliding_window=window,
        layer_types=read_layer_types(reader, slides),
    )
    reader.finish()
    return read


def read_qwen2(config: Mapping[str, object]) -> QwenConfig:
    """A ``config.json`` of ``model_type: qwen2`` (GG0502, GG0503)."""
    return _read(config, "qwen2")


def read_qwen3(config: Mapping[str, object]) -> QwenConfig:
    """A ``config.json`` of ``model_type: qwen3`` (GG0502, GG0503)."""
    return _read(config, "qwen3")


QWEN2 = Family(
    "qwen2",
    ("Qwen2ForCausalLM",),
    read_qwen2,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
)
QWEN3 = Family(
    "qwen3",
    ("Qwen3ForCausalLM",),
    read_qwen3,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
)
