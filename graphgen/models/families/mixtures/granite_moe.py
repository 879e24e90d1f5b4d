"""GraniteMoe: Granite's decoder with a mixture of experts in the place of each MLP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphgen.models.config_reader import ConfigReader
from graphgen.models.decoders.decoder import EMBEDDING, body, head
from graphgen.models.decoders.decoder_config import read_sizes, to_hf
from graphgen.models.decoders.expert_counts import read_experts, small_experts
from graphgen.models.families.llama_like.granite import GraniteConfig, read_factors
from graphgen.models.family import Family
from graphgen.nn import MixtureConfig, TopKRouter


@dataclass(frozen=True, slots=True)
class GraniteMoeConfig(GraniteConfig):
    """Sizes and switches under Hugging Face's names; ``intermediate_size`` is that of an expert."""

    num_local_experts: int = 8
    num_experts_per_tok: int = 2

    def mixture(self, layer: int) -> MixtureConfig:
        """Softmax of the chosen experts' logits."""
        router = TopKRouter(self.num_local_experts, self.num_experts_per_tok, over="chosen")
        return MixtureConfig(
            router, self.intermediate_size, "block_sparse_moe", gate="router.layer"
        )

    def mini(self) -> GraniteMoeConfig:
        """See :func:`~.decoder_config.smaller`; with few of many experts.

        They are half as wide as hidden states, as in the models: equal sizes are one constant.
        """
        experts, chosen = small_experts(self.num_local_experts, self.num_experts_per_tok)
        small = GraniteConfig.mini(self)
        assert isinstance(small, GraniteMoeConfig)
        return replace(
            small,
            intermediate_size=small.hidden_size // 2,
            num_local_experts=experts,
            num_experts_per_tok=chosen,
        )

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        out = to_hf(self, "granitemoe", "GraniteMoeForCausalLM")
        del out["mlp_bias"]
        return out


def read_granite_moe(config: Mapping[str, object]) -> GraniteMoeConfig:
    """A ``config.json`` of ``model_type: granitemoe`` (GG0502, GG0503)."""
    reader = ConfigReader(config)
    experts, chosen = read_experts(reader, "num_local_experts", (8, 2))
    read = GraniteMoeConfig(
        **read_sizes(reader, positions=2048),
        **read_factors(reader),
        num_local_experts=experts,
        num_experts_per_tok=chosen,
    )
    reader.finish()
    return read


GRANITE_MOE = Family(
    "granitemoe",
    ("GraniteMoeForCausalLM",),
    read_granite_moe,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
)
