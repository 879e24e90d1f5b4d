"""Mixtral: Mistral's decoder with a mixture of experts in the place of each MLP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphgen.models.config_reader import ConfigReader
from graphgen.models.decoder import EMBEDDING, body, head
from graphgen.models.decoder_config import read_sizes, to_hf
from graphgen.models.expert_counts import read_experts, small_experts
from graphgen.models.family import Family
from graphgen.models.mistral import MistralConfig
from graphgen.nn import MixtureConfig, TopKRouter


@dataclass(frozen=True, slots=True)
class MixtralConfig(MistralConfig):
    """Sizes and switches under Hugging Face's names; ``intermediate_size`` is that of an expert."""

    num_local_experts: int = 8
    num_experts_per_tok: int = 2

    def mixture(self, layer: int) -> MixtureConfig:
        """Softmax of all experts, and the weights of the chosen ones divided by their sum."""
        router = TopKRouter(self.num_local_experts, self.num_experts_per_tok, normalize=True)
        return MixtureConfig(
            router, self.intermediate_size, "block_sparse_moe", names=("w1", "w3", "w2")
        )

    def mini(self) -> MixtralConfig:
        """See :meth:`MistralConfig.mini`; with few of many experts."""
        experts, chosen = small_experts(self.num_local_experts, self.num_experts_per_tok)
        small = MistralConfig.mini(self)
        assert isinstance(small, MixtralConfig)
        return replace(small, num_local_experts=experts, num_experts_per_tok=chosen)

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        return to_hf(self, "mixtral", "MixtralForCausalLM")


def read_mixtral(config: Mapping[str, object]) -> MixtralConfig:
    """A ``config.json`` of ``model_type: mixtral`` (GG0502, GG0503)."""
    reader = ConfigReader({"rms_norm_eps": 1e-5, "rope_theta": 1e6, **config}, ALIASES)
    experts, chosen = read_experts(reader, "num_local_experts", (8, 2))
    read = MixtralConfig(
        **read_sizes(reader, positions=131072, kv_heads=8),
        sliding_window=reader.optional_integer("sliding_window"),
        num_local_experts=experts,
        num_experts_per_tok=chosen,
    )
    reader.finish()
    return read


# Other names of configuration keys.
ALIASES = {"num_experts": "num_local_experts"}
MIXTRAL = Family(
    "mixtral",
    ("MixtralForCausalLM",),
    read_mixtral,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
    aliases=ALIASES,
)
