"""Mixtral: Mistral's decoder with a mixture of experts in the place of each MLP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphgen.models.config_reader import ConfigReader
from graphgen.models.decoders.decoder import EMBEDDING, body, head
from graphgen.models.decoders.decoder_config import DecoderConfig, read_sizes, smaller, to_hf, wider
from graphgen.models.decoders.expert_counts import read_experts, small_experts
from graphgen.models.family import Family
from graphgen.models.twins import WIDE_WINDOW
from graphgen.nn import AttentionConfig, MixtureConfig, TopKRouter


@dataclass(frozen=True, slots=True)
class MixtralConfig(DecoderConfig):
    """Sizes and switches under Hugging Face's names; ``intermediate_size`` is that of an expert."""

    sliding_window: int | None = None
    num_local_experts: int = 8
    num_experts_per_tok: int = 2

    def attention(self, layer: int) -> AttentionConfig:
        """Every layer is the same."""
        return AttentionConfig(
            self.num_attention_heads,
            self.num_key_value_heads,
            self.head_dim,
            window=self.sliding_window or 0,
        )

    def mixture(self, layer: int) -> MixtureConfig:
        """Softmax of all experts, and the weights of the chosen ones divided by their sum."""
        router = TopKRouter(self.num_local_experts, self.num_experts_per_tok, normalize=True)
        return MixtureConfig(
            router, self.intermediate_size, "block_sparse_moe", names=("w1", "w3", "w2")
        )

    def mini(self) -> MixtralConfig:
        """See :func:`~.decoder_config.smaller`; the window is felt after 6 tokens."""
        experts, chosen = small_experts(self.num_local_experts, self.num_experts_per_tok)
        return replace(
            smaller(self),
            sliding_window=self.sliding_window and 6,
            num_local_experts=experts,
            num_experts_per_tok=chosen,
        )

    def wide(self) -> MixtralConfig:
        """See :func:`~.decoder_config.wider`."""
        return replace(wider(self), sliding_window=self.sliding_window and WIDE_WINDOW)

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
