"""GPT-OSS: sinks of attention, every other layer with a window, experts of clamped SWIGLU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from graphgen.models.config_reader import ConfigReader
from graphgen.models.decoder import EMBEDDING, body, head
from graphgen.models.decoder_config import DecoderConfig, read_sizes, smaller, to_hf, wider
from graphgen.models.expert_counts import read_experts, small_experts
from graphgen.models.family import Family
from graphgen.models.layer_types import SLIDING, ends, kinds, read_layer_types
from graphgen.models.twins import WIDE_WINDOW
from graphgen.nn import AttentionConfig, ExpertForm, MixtureConfig, TopKRouter


@dataclass(frozen=True, slots=True)
class GptOssConfig(DecoderConfig):
    """Sizes and switches under Hugging Face's names; ``intermediate_size`` is that of an expert.

    Attributes:
        attention_bias: q, k, v and o have a bias.
        sliding_window: window of the layers of type ``sliding_attention``.
        layer_types: one per layer.
        num_local_experts, num_experts_per_tok: experts, and those of a token.
        swiglu_alpha, swiglu_limit: of the gating; see the op ``experts``.
    """

    attention_bias: bool = True
    sliding_window: int | None = 128
    layer_types: tuple[str, ...] = ()
    num_local_experts: int = 128
    num_experts_per_tok: int = 4
    swiglu_alpha: float = 1.702
    swiglu_limit: float = 7.0

    def attention(self, layer: int) -> AttentionConfig:
        """Sizes and switches of one layer's attention."""
        return replace(
            DecoderConfig.attention(self, layer),
            qkv_bias=self.attention_bias,
            out_bias=self.attention_bias,
            window=self.sliding_window or 0 if self.layer_types[layer] == SLIDING else 0,
            sinks=True,
        )

    def mixture(self, layer: int) -> MixtureConfig:
        """Softmax of the chosen experts' logits; biases everywhere."""
        experts, chosen = self.num_local_experts, self.num_experts_per_tok
        form = ExpertForm(
            bias=True,
            glu="swiglu",
            activation="sigmoid",
            activation_scale=self.swiglu_alpha,
            up_offset=1.0,
            gate_bounds=(-inf, self.swiglu_limit),
            up_bounds=(-self.swiglu_limit, self.swiglu_limit),
        )
        return MixtureConfig(
            TopKRouter(experts, chosen, over="chosen", bias=True),
            self.intermediate_size,
            form=form,
            gate="router",
        )

    def mini(self) -> GptOssConfig:
        """See :func:`~.decoder_config.smaller`; a layer of each kind, and another.

        Experts are few of many, and small; sizes are multiples of 32, as MXFP4 needs.
        """
        first, *others = ends(self.layer_types)
        types = (first, *others, first)
        experts, chosen = small_experts(self.num_local_experts, self.num_experts_per_tok)
        return replace(
            smaller(self),
            intermediate_size=64,
            num_hidden_layers=len(types),
            layer_types=types,
            sliding_window=self.sliding_window and 6,
            num_local_experts=experts,
            num_experts_per_tok=chosen,
        )

    def wide(self) -> GptOssConfig:
        """See :func:`~.decoder_config.wider`; a layer of each kind."""
        experts, chosen = small_experts(self.num_local_experts, self.num_experts_per_tok)
        types = kinds(self.layer_types)
        return replace(
            wider(self),
            num_hidden_layers=len(types),
            layer_types=types,
            sliding_window=self.sliding_window and WIDE_WINDOW,
            num_local_experts=experts,
            num_experts_per_tok=chosen,
        )

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        out = to_hf(self, "gpt_oss", "GptOssForCausalLM")
        # Without any the default is YaRN.
        out.setdefault("rope_scaling", {"rope_type": "default"})
        return {**out, "layer_types": list(self.layer_types)}


# Where a configuration says nothing.
_DEFAULTS: Mapping[str, object] = {"rms_norm_eps": 1e-5, "rope_theta": 150000.0}
_YARN: Mapping[str, object] = {
    "rope_type": "yarn",
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
}


def read_gpt_oss(config: Mapping[str, object]) -> GptOssConfig:
    """A ``config.json`` of ``model_type: gpt_oss`` (GG0502, GG0503)."""
    given = {"sliding_window": 128, **_DEFAULTS, **config}
    if given.get("rope_parameters") is None and given.get("rope_scaling") is None:
        given["rope_scaling"] = _YARN
    reader = ConfigReader(given, ALIASES)
    sizes = read_sizes(reader, positions=131072, kv_heads=8, head_dim=64)
    experts, chosen = read_experts(reader, "num_local_experts", (128, 4))
    # The original context again; experts are gated by SWIGLU, whatever the activation is called.
    reader.neutral("initial_context_length")
    reader.only("hidden_act", ["silu"], "silu")
    layers = sizes["num_hidden_layers"]
    read = GptOssConfig(
        **sizes,
        attention_bias=reader.boolean("attention_bias", True),
        sliding_window=reader.optional_integer("sliding_window"),
        layer_types=read_layer_types(reader, [layer % 2 == 0 for layer in range(layers)]),
        num_local_experts=experts,
        num_experts_per_tok=chosen,
        swiglu_alpha=reader.number("swiglu_alpha", 1.702),
        swiglu_limit=reader.number("swiglu_limit", 7.0),
    )
    reader.finish()
    return read


# Other names of configuration keys.
ALIASES = {"num_experts": "num_local_experts", "experts_per_token": "num_experts_per_tok"}
GPT_OSS = Family(
    "gpt_oss",
    ("GptOssForCausalLM",),
    read_gpt_oss,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
    aliases=ALIASES,
)
