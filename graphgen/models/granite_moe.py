"""GraniteMoe: Granite's decoder with experts in the place of each MLP, and maybe a shared one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphgen.models.config_reader import ConfigReader
from graphgen.models.decoder import EMBEDDING, body, head
from graphgen.models.decoder_config import read_sizes, to_hf
from graphgen.models.expert_counts import read_experts, small_experts
from graphgen.models.family import Family
from graphgen.models.granite import GraniteConfig, read_factors
from graphgen.nn import MixtureConfig, SharedExpert, TopKRouter

# Model types and classes without and with an expert of every token.
_PLAIN, _PLAIN_CLASS = "granitemoe", "GraniteMoeForCausalLM"
_SHARED, _SHARED_CLASS = "granitemoeshared", "GraniteMoeSharedForCausalLM"


@dataclass(frozen=True, slots=True)
class GraniteMoeConfig(GraniteConfig):
    """Sizes and switches under Hugging Face's names; ``intermediate_size`` is that of an expert.

    Attributes:
        shared_intermediate_size: I of the expert of every token; 0 for none.
    """

    num_local_experts: int = 8
    num_experts_per_tok: int = 2
    shared_intermediate_size: int = 0

    def mixture(self, layer: int) -> MixtureConfig:
        """Softmax of the chosen experts' logits."""
        inner = self.shared_intermediate_size
        router = TopKRouter(self.num_local_experts, self.num_experts_per_tok, over="chosen")
        return MixtureConfig(
            *(router, self.intermediate_size, "block_sparse_moe"),
            shared=SharedExpert(inner) if inner else None,
            gate="router.layer",
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
            shared_intermediate_size=self.shared_intermediate_size and small.hidden_size // 2 + 8,
        )

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        shared = bool(self.shared_intermediate_size)
        out = to_hf(self, *((_SHARED, _SHARED_CLASS) if shared else (_PLAIN, _PLAIN_CLASS)))
        del out["mlp_bias"]
        if not shared:
            del out["shared_intermediate_size"]
        return out


def read_granite_moe(config: Mapping[str, object]) -> GraniteMoeConfig:
    """A ``config.json`` of type ``granitemoe`` or ``granitemoeshared`` (GG0502, GG0503)."""
    reader = ConfigReader(config)
    shared = config.get("model_type") == _SHARED
    experts, chosen = read_experts(reader, "num_local_experts", (8, 2))
    read = GraniteMoeConfig(
        **read_sizes(reader, positions=2048),
        **read_factors(reader),
        num_local_experts=experts,
        num_experts_per_tok=chosen,
        shared_intermediate_size=reader.count("shared_intermediate_size", 0) if shared else 0,
    )
    reader.finish()
    return read


GRANITE_MOE = Family(
    _PLAIN,
    (_PLAIN_CLASS, _SHARED_CLASS),
    read_granite_moe,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
    other_types=(_SHARED,),
)
