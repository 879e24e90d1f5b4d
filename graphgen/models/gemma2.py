"""Gemma 2: every other layer has a window, and scores and logits are brought within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphgen.models.config_reader import ConfigReader
from graphgen.models.decoder import EMBEDDING
from graphgen.models.decoder_config import read_sizes, to_hf
from graphgen.models.family import Family
from graphgen.models.gemma_decoder import GemmaConfig, body, head, small_gemma, wide_gemma
from graphgen.models.layer_types import read_layer_types


@dataclass(frozen=True, slots=True)
class Gemma2Config(GemmaConfig):
    """Sizes and switches under Hugging Face's names; see :class:`GemmaConfig`.

    Attributes:
        attn_logit_softcapping: bound of the scores; ``None`` for none.
        final_logit_softcapping: bound of the logits; ``None`` for none.
    """

    attn_logit_softcapping: float | None = 50.0
    final_logit_softcapping: float | None = 30.0

    @property
    def attention_cap(self) -> float:
        """Bound of the scores; 0 for none."""
        return self.attn_logit_softcapping or 0.0

    @property
    def logit_cap(self) -> float:
        """Bound of the logits; 0 for none."""
        return self.final_logit_softcapping or 0.0

    def mini(self) -> Gemma2Config:
        """See :func:`~.gemma_decoder.small_gemma`."""
        return small_gemma(self)

    def wide(self) -> Gemma2Config:
        """See :func:`~.gemma_decoder.wide_gemma`."""
        return wide_gemma(self)

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        out = to_hf(self, "gemma2", "Gemma2ForCausalLM")
        del out["mlp_bias"]
        activation = out.pop("hidden_act")
        return {**out, "hidden_activation": activation, "layer_types": list(self.layer_types)}


_DEFAULTS: Mapping[str, object] = {
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
}


def read_gemma2(config: Mapping[str, object]) -> Gemma2Config:
    """A ``config.json`` of ``model_type: gemma2`` (GG0502, GG0503)."""
    # The first checkpoints say gelu beside it, which transformers ignores.
    given = {key: value for key, value in config.items() if key != "hidden_act"}
    reader = ConfigReader({**_DEFAULTS, **given}, {"hidden_activation": "hidden_act"})
    reader.only("use_bidirectional_attention", [False], False)
    # Whether a cache is of the form for it.
    reader.neutral("cache_implementation")
    sizes = read_sizes(reader, positions=8192, kv_heads=4, head_dim=256)
    slides = [not layer % 2 for layer in range(sizes["num_hidden_layers"])]
    read = Gemma2Config(
        **sizes,
        sliding_window=reader.integer("sliding_window", 4096),
        layer_types=read_layer_types(reader, slides),
        query_pre_attn_scalar=reader.integer("query_pre_attn_scalar", 256),
        attention_bias=reader.boolean("attention_bias", False),
        attn_logit_softcapping=_cap(reader, "attn_logit_softcapping", 50.0),
        final_logit_softcapping=_cap(reader, "final_logit_softcapping", 30.0),
    )
    reader.finish()
    return read


def _cap(reader: ConfigReader, key: str, default: float) -> float | None:
    """A bound; ``None`` where the configuration says null (GG0503)."""
    reader.used.add(key)
    return None if reader.config.get(key, default) is None else reader.number(key, default)


GEMMA2 = Family(
    "gemma2",
    ("Gemma2ForCausalLM",),
    read_gemma2,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
)
