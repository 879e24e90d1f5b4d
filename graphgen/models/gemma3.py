"""Gemma 3 (text): most layers have a window and their own RoPE, and each head of q and k a norm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from graphgen.models.config_reader import ConfigReader
from graphgen.models.decoder import EMBEDDING
from graphgen.models.decoder_config import read_sizes, to_hf
from graphgen.models.family import Family
from graphgen.models.gemma_decoder import GemmaConfig, body, head, small_gemma, wide_gemma
from graphgen.models.layer_types import FULL, SLIDING, read_layer_types
from graphgen.models.rope_config import read_rope, rope_to_hf
from graphgen.nn import RopeConfig


@dataclass(frozen=True, slots=True)
class Gemma3Config(GemmaConfig):
    """Sizes and switches under Hugging Face's names; see :class:`GemmaConfig`.

    ``local_rope`` is RoPE of the layers with a window.
    """

    local_rope: RopeConfig = field(default_factory=RopeConfig)

    @property
    def qk_norm(self) -> bool:
        """Gemma 3 normalizes each head of q and k."""
        return True

    @property
    def near_rope(self) -> RopeConfig:
        """RoPE of the layers with a window."""
        return self.local_rope

    def mini(self) -> Gemma3Config:
        """See :func:`~.gemma_decoder.small_gemma`."""
        return small_gemma(self)

    def wide(self) -> Gemma3Config:
        """See :func:`~.gemma_decoder.wide_gemma`."""
        return wide_gemma(self)

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        out = to_hf(self, "gemma3_text", "Gemma3ForCausalLM")
        for key in ("local_rope", "rope_theta", "rope_scaling", "mlp_bias"):
            out.pop(key, None)
        ropes: dict[str, object] = {}
        for kind, rope in ((FULL, self.rope), (SLIDING, self.local_rope)):
            written = rope_to_hf(rope)
            scaling = written.pop("rope_scaling", {"rope_type": "default"})
            ropes[kind] = {**cast("dict[str, object]", scaling), **written}
        return {
            **out,
            "hidden_activation": out.pop("hidden_act"),
            "layer_types": list(self.layer_types),
            "rope_parameters": ropes,
        }


_DEFAULTS: Mapping[str, object] = {
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "sliding_window": 4096,
}


def read_gemma3(config: Mapping[str, object]) -> Gemma3Config:
    """A ``config.json`` of ``model_type: gemma3_text`` (GG0502, GG0503)."""
    ropes = config.get("rope_parameters")
    given: Mapping[str, object] = {}
    if isinstance(ropes, Mapping):
        given = cast("Mapping[str, object]", ropes)
    wide = {"rope_theta": 1000000.0, **_DEFAULTS, **config, "rope_parameters": given.get(FULL)}
    reader = ConfigReader(wide, {"hidden_activation": "hidden_act"})
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        reader.only(key, [0], 0)
    reader.only("use_bidirectional_attention", [False], False)
    near = {
        "rope_parameters": given.get(SLIDING),
        "rope_theta": reader.number("rope_local_base_freq", 10000.0),
    }
    sizes = read_sizes(reader, positions=131072, kv_heads=4, head_dim=256)
    pattern = reader.integer("sliding_window_pattern", 6)
    slides = [bool((layer + 1) % pattern) for layer in range(sizes["num_hidden_layers"])]
    read = Gemma3Config(
        **sizes,
        sliding_window=reader.integer("sliding_window"),
        layer_types=read_layer_types(reader, slides),
        query_pre_attn_scalar=reader.integer("query_pre_attn_scalar", 256),
        local_rope=read_rope(ConfigReader(near)),
        attention_bias=reader.boolean("attention_bias", False),
    )
    reader.finish()
    return read


GEMMA3 = Family(
    "gemma3_text",
    ("Gemma3ForCausalLM",),
    read_gemma3,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
)
