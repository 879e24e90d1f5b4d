"""Qwen2-MoE and Qwen3-MoE: Qwen's decoders with mixtures of experts, Qwen2's with a shared one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphgen.models.config_reader import ConfigReader
from graphgen.models.decoder import EMBEDDING, body, head
from graphgen.models.decoder_config import read_sizes
from graphgen.models.expert_counts import read_experts, small_experts
from graphgen.models.family import Family
from graphgen.models.layer_types import ends, read_layer_types, read_numbers
from graphgen.models.qwen import QwenConfig
from graphgen.nn import MixtureConfig, SharedExpert, TopKRouter


@dataclass(frozen=True, slots=True)
class QwenMoeConfig(QwenConfig):
    """Sizes and switches under Hugging Face's names.

    Attributes:
        sparse: true for each layer with experts; the others have one MLP of ``intermediate_size``.
        shared_expert_intermediate_size: I of the expert of every token; 0 for none (Qwen3).
    """

    sparse: tuple[bool, ...] = ()
    moe_intermediate_size: int = 1408
    num_experts: int = 60
    num_experts_per_tok: int = 4
    norm_topk_prob: bool = False
    shared_expert_intermediate_size: int = 0

    def mixture(self, layer: int) -> MixtureConfig | None:
        """Softmax of all experts; the weights of the chosen ones may be divided by their sum."""
        if not self.sparse[layer]:
            return None
        inner = self.shared_expert_intermediate_size
        return MixtureConfig(
            TopKRouter(self.num_experts, self.num_experts_per_tok, normalize=self.norm_topk_prob),
            self.moe_intermediate_size,
            shared=SharedExpert(inner, "shared_expert", "shared_expert_gate") if inner else None,
        )

    def mini(self) -> QwenMoeConfig:
        """See :meth:`QwenConfig.mini`; with both kinds of layers, if there are both."""
        experts, chosen = small_experts(self.num_experts, self.num_experts_per_tok)
        small = QwenConfig.mini(self)
        assert isinstance(small, QwenMoeConfig)
        inner = small.hidden_size // 8 + 8
        return replace(
            small,
            sparse=_ends(self.sparse),
            moe_intermediate_size=inner,
            num_experts=experts,
            num_experts_per_tok=chosen,
            shared_expert_intermediate_size=self.shared_expert_intermediate_size and inner + 8,
        )

    def wide(self) -> QwenMoeConfig:
        """See :meth:`QwenConfig.wide`; the first layers, with an odd number of inner features."""
        made = QwenConfig.wide(self)
        assert isinstance(made, QwenMoeConfig)
        experts, chosen = small_experts(self.num_experts, self.num_experts_per_tok)
        return replace(
            made,
            sparse=self.sparse[-made.num_hidden_layers :],
            moe_intermediate_size=9,
            num_experts=experts,
            num_experts_per_tok=chosen,
            shared_expert_intermediate_size=self.shared_expert_intermediate_size and 15,
        )

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        out = QwenConfig.to_hf(self)
        del out["sparse"]
        if self.kind == "qwen3_moe":
            del out["shared_expert_intermediate_size"], out["layer_types"]
        dense = [layer for layer, sparse in enumerate(self.sparse) if not sparse]
        return {**out, "decoder_sparse_step": 1, "mlp_only_layers": dense}


def _ends(sparse: tuple[bool, ...]) -> tuple[bool, ...]:
    """True for each of a mini's two layers that has experts: the first kind, then the other."""
    return tuple(name == "experts" for name in ends([("mlp", "experts")[one] for one in sparse]))


def _sparse(reader: ConfigReader, layers: int) -> tuple[bool, ...]:
    """True for each layer that has experts (GG0503)."""
    step = reader.integer("decoder_sparse_step", 1)
    dense = read_numbers(reader, "mlp_only_layers") or []
    return tuple(layer not in dense and (layer + 1) % step == 0 for layer in range(layers))


def _read(config: Mapping[str, object], kind: str) -> QwenMoeConfig:
    reader = ConfigReader({"sliding_window": 4096, **config}, ALIASES)
    sizes = read_sizes(reader, positions=32768, kv_heads=16 if kind == "qwen2_moe" else 4)
    layers, second = sizes["num_hidden_layers"], kind == "qwen2_moe"
    # Without it transformers writes a window of 0, or none.
    slides = reader.boolean("use_sliding_window", False)
    reader.neutral("sliding_window")
    window = reader.optional_integer("sliding_window") if slides else None
    first = reader.integer("max_window_layers", 28)
    experts, chosen = read_experts(reader, "num_experts", (60, 4) if second else (128, 8))
    if second:
        reader.only("qkv_bias", [True], True)
    read = QwenMoeConfig(
        **sizes,
        kind=kind,
        attention_bias=not second and reader.boolean("attention_bias", False),
        sliding_window=window,
        layer_types=_layer_types(reader, window is not None, first if second else None, layers),
        sparse=_sparse(reader, layers),
        moe_intermediate_size=reader.integer("moe_intermediate_size", 1408 if second else 768),
        num_experts=experts,
        num_experts_per_tok=chosen,
        norm_topk_prob=reader.boolean("norm_topk_prob", False),
        shared_expert_intermediate_size=reader.integer("shared_expert_intermediate_size", 5632)
        if second
        else 0,
    )
    reader.finish()
    return read


def _layer_types(
    reader: ConfigReader, slides: bool, before: int | None, layers: int
) -> tuple[str, ...]:
    """Every layer slides in Qwen3-MoE, every other one ``before`` a layer in Qwen2-MoE."""
    if before is None:
        return read_layer_types(reader, [slides] * layers)
    return read_layer_types(
        reader, [slides and layer % 2 == 0 and layer < before for layer in range(layers)]
    )


def read_qwen2_moe(config: Mapping[str, object]) -> QwenMoeConfig:
    """A ``config.json`` of ``model_type: qwen2_moe`` (GG0502, GG0503)."""
    return _read(config, "qwen2_moe")


def read_qwen3_moe(config: Mapping[str, object]) -> QwenMoeConfig:
    """A ``config.json`` of ``model_type: qwen3_moe`` (GG0502, GG0503)."""
    return _read(config, "qwen3_moe")


# Other names of configuration keys.
ALIASES = {"num_local_experts": "num_experts"}
QWEN2_MOE = Family(
    "qwen2_moe",
    ("Qwen2MoeForCausalLM",),
    read_qwen2_moe,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
    aliases=ALIASES,
)
QWEN3_MOE = Family(
    "qwen3_moe",
    ("Qwen3MoeForCausalLM",),
    read_qwen3_moe,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
    aliases=ALIASES,
)
