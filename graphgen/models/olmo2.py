"""OLMo-2: Llama's decoder with norms after attention and MLP, and norms of whole q and k."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphgen.models.config_reader import ConfigReader
from graphgen.models.decoder import EMBEDDING, body, head
from graphgen.models.decoder_config import LayerNorms, read_sizes, to_hf
from graphgen.models.family import Family
from graphgen.models.llama import LlamaConfig

_AFTER = LayerNorms("", "post_attention_layernorm", "", "post_feedforward_layernorm")


@dataclass(frozen=True, slots=True)
class Olmo2Config(LlamaConfig):
    """Sizes and switches under Hugging Face's names; ``attention_bias`` is for q, k, v and o."""

    @property
    def qk_norm_whole(self) -> bool:
        """q has one norm over all of its heads, and k."""
        return True

    @property
    def norms(self) -> LayerNorms:
        """None of what attention and MLP read."""
        return _AFTER

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        out = to_hf(self, "olmo2", "Olmo2ForCausalLM")
        del out["mlp_bias"]
        return out


def read_olmo2(config: Mapping[str, object]) -> Olmo2Config:
    """A ``config.json`` of ``model_type: olmo2`` (GG0502, GG0503)."""
    reader = ConfigReader({"rms_norm_eps": 1e-5, **config})
    read = Olmo2Config(
        **read_sizes(reader, positions=2048),
        attention_bias=reader.boolean("attention_bias", False),
    )
    reader.finish()
    return read


OLMO2 = Family(
    "olmo2",
    ("Olmo2ForCausalLM",),
    read_olmo2,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
)
