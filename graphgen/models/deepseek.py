"""DeepSeek-V2 and DeepSeek-V3: latent attention and many small experts, some of them shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import DType, Value
from graphgen.ir.dtype import f32
from graphgen.models.config_reader import ConfigReader
from graphgen.models.decoder import EMBEDDING, head
from graphgen.models.decoder_config import DecoderConfig, read_sizes, smaller, to_hf, wider
from graphgen.models.expert_counts import read_experts, small_experts
from graphgen.models.family import Family
from graphgen.nn import (
    ExpertGroups,
    LatentConfig,
    MixtureConfig,
    SharedExpert,
    StepInputs,
    TopKRouter,
    causal_mask,
    embed,
    gated_mlp,
    latent_attention,
    mixture,
    rms_norm,
    rotary,
)
from graphgen.nn.rope import yarn_scale

# Other names of configuration keys.
ALIASES = {
    "deepseek_v2": {"num_experts": "n_routed_experts"},
    "deepseek_v3": {
        "num_local_experts": "n_routed_experts",
        "num_mtp_layers": "num_nextn_predict_layers",
    },
}


@dataclass(frozen=True, slots=True)
class DeepseekConfig(DecoderConfig):
    """Sizes and switches under Hugging Face's names; ``head_dim`` is the rotated part of a head.

    Attributes:
        kind: ``deepseek_v2`` or ``deepseek_v3``.
        q_lora_rank: size of the vector that queries are made of; 0 for the hidden states.
        first_k_dense_replace: layers with one MLP of ``intermediate_size``; after these each
            ``moe_layer_freq``-th has experts.
        n_group: groups of experts, of which a token has ``topk_group``; 1 for no groups.
    """

    kind: str = "deepseek_v3"
    attention_bias: bool = False
    q_lora_rank: int = 0
    kv_lora_rank: int = 512
    qk_nope_head_dim: int = 128
    v_head_dim: int = 128
    rope_interleave: bool = True
    first_k_dense_replace: int = 0
    moe_layer_freq: int = 1
    moe_intermediate_size: int = 2048
    n_routed_experts: int = 256
    num_experts_per_tok: int = 8
    n_shared_experts: int = 1
    n_group: int = 1
    topk_group: int = 1
    norm_topk_prob: bool = False
    routed_scaling_factor: float = 1.0

    @property
    def latent(self) -> LatentConfig:
        """Every layer is the same; YaRN scales the scores too."""
        rope = self.rope
        stretch = yarn_scale(rope.factor, rope.mscale_all_dim) if rope.kind == "yarn" else 1.0
        return LatentConfig(
            self.num_attention_heads,
            self.kv_lora_rank,
            self.qk_nope_head_dim,
            self.head_dim,
            self.v_head_dim,
            self.q_lora_rank,
            (self.qk_nope_head_dim + self.head_dim) ** -0.5 * stretch**2,
            self.attention_bias,
            "neighbors" if self.rope_interleave else "halves",
        )

    def mixture(self, layer: int) -> MixtureConfig | None:
        """V2 chooses by softmax; V3 by the logistic function and a bias that is in no weight."""
        if layer < self.first_k_dense_replace or layer % self.moe_layer_freq:
            return None
        third, inner = self.kind == "deepseek_v3", self.moe_intermediate_size
        groups = ExpertGroups(self.n_group, self.topk_group, best=2 if third else 1)
        router = TopKRouter(
            self.n_routed_experts,
            self.num_experts_per_tok,
            score="sigmoid" if third else "softmax",
            normalize=self.norm_topk_prob,
            scaling=self.routed_scaling_factor,
            groups=groups if self.n_group > 1 else None,
            correction="gate.e_score_correction_bias" if third else "",
            epsilon=1e-20,
        )
        shared = SharedExpert(inner * self.n_shared_experts, bias=self.mlp_bias)
        return MixtureConfig(router, inner, shared=shared if self.n_shared_experts else None)

    def mini(self) -> DeepseekConfig:
        """See :func:`~.decoder_config.smaller`; two layers of each kind, if there are two."""
        dense = min(self.first_k_dense_replace, 2)
        layers = dense + min(self.num_hidden_layers - self.first_k_dense_replace, 2)
        small = self._small(replace(smaller(self), num_hidden_layers=layers), dense)
        heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
        return replace(small, **heads, hidden_size=32, intermediate_size=64)

    def wide(self) -> DeepseekConfig:
        """See :func:`~.decoder_config.wider`; a layer of each kind, if there are both."""
        small = self._small(wider(self), min(self.first_k_dense_replace, 1))
        return replace(small, kv_lora_rank=8, moe_intermediate_size=9)

    def _small(self, made: DeepseekConfig, dense: int) -> DeepseekConfig:
        experts, chosen = small_experts(self.n_routed_experts, self.num_experts_per_tok)
        groups = min(self.n_group, 4)
        return replace(
            made,
            head_dim=4,
            moe_intermediate_size=12,
            q_lora_rank=self.q_lora_rank and 24,
            kv_lora_rank=16,
            qk_nope_head_dim=8,
            v_head_dim=8,
            first_k_dense_replace=dense,
            n_routed_experts=experts,
            num_experts_per_tok=chosen,
            n_group=groups,
            topk_group=min(self.topk_group, 2),
        )

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        third = self.kind == "deepseek_v3"
        out = to_hf(self, self.kind, "DeepseekV3ForCausalLM" if third else "DeepseekV2ForCausalLM")
        del out["kind"]
        out["qk_rope_head_dim"] = out["head_dim"]
        out["q_lora_rank"] = self.q_lora_rank or None
        if third:
            return {**out, "topk_method": "noaux_tc", "scoring_func": "sigmoid"}
        del out["rope_interleave"], out["norm_topk_prob"]
        return {**out, "topk_method": "group_limited_greedy" if self.n_group > 1 else "greedy"}


def _read(config: Mapping[str, object], kind: str) -> DeepseekConfig:
    third = kind == "deepseek_v3"
    plain = {"q_lora_rank": 1536, "qk_rope_head_dim": 64, "n_shared_experts": 1 if third else 2}
    given = {**plain, **config}
    reader = ConfigReader({**given, "head_dim": given["qk_rope_head_dim"]}, ALIASES[kind])
    sizes = read_sizes(reader, positions=4096 if third else 2048)
    heads = sizes["num_attention_heads"]
    reader.only("num_key_value_heads", [heads], heads)
    reader.neutral("qk_rope_head_dim", "qk_head_dim", "num_nextn_predict_layers")
    # Of training, and of how its programs were written.
    reader.neutral("aux_loss_alpha", "seq_aux", "ep_size")
    experts, chosen = read_experts(reader, "n_routed_experts", (256, 8) if third else (64, 6))
    score = "sigmoid" if third else "softmax"
    reader.only("scoring_func", [score], score)
    groups, kept = _read_groups(reader, third, experts, chosen)
    read = DeepseekConfig(
        **sizes,
        kind=kind,
        attention_bias=reader.boolean("attention_bias", False),
        mlp_bias=not third and reader.boolean("mlp_bias", False),
        q_lora_rank=reader.optional_integer("q_lora_rank") or 0,
        kv_lora_rank=reader.integer("kv_lora_rank", 512),
        qk_nope_head_dim=reader.integer("qk_nope_head_dim", 128),
        v_head_dim=reader.integer("v_head_dim", 128),
        rope_interleave=not third or reader.boolean("rope_interleave", True),
        first_k_dense_replace=reader.count("first_k_dense_replace", 3 if third else 0),
        moe_layer_freq=reader.integer("moe_layer_freq", 1),
        moe_intermediate_size=reader.integer("moe_intermediate_size", 2048 if third else 1407),
        n_routed_experts=experts,
        num_experts_per_tok=chosen,
        n_shared_experts=reader.optional_integer("n_shared_experts") or 0,
        n_group=groups,
        topk_group=kept,
        # transformers leaves V2's weights as they are.
        norm_topk_prob=reader.boolean("norm_topk_prob", True)
        if third
        else bool(reader.only("norm_topk_prob", [False], False)),
        routed_scaling_factor=reader.number("routed_scaling_factor", 2.5 if third else 1.0),
    )
    reader.finish()
    return read


def _read_groups(reader: ConfigReader, third: bool, experts: int, chosen: int) -> tuple[int, int]:
    """The groups of experts and those that a token has, 1 and 1 for no limit (GG0502, GG0503)."""
    methods = ["noaux_tc"] if third else ["greedy", "group_limited_greedy"]
    method = reader.only("topk_method", methods, methods[0])
    if method == "greedy":
        reader.neutral("n_group", "topk_group")
        return 1, 1
    groups = reader.integer("n_group", 8 if third else None)
    kept = reader.integer("topk_group", 4 if third else None)
    size, rest = divmod(experts, groups)
    if rest or kept > groups or chosen > kept * size or (third and size < 2):
        raise GraphgenError(
            "GG0503",
            f"config: n_group = {groups} and topk_group = {kept} do not fit "
            f"{experts} experts with {chosen} per token",
        )
    return groups, kept


def read_deepseek_v2(config: Mapping[str, object]) -> DeepseekConfig:
    """A ``config.json`` of ``model_type: deepseek_v2`` (GG0502, GG0503)."""
    return _read(config, "deepseek_v2")


def read_deepseek_v3(config: Mapping[str, object]) -> DeepseekConfig:
    """A ``config.json`` of ``model_type: deepseek_v3`` (GG0502, GG0503)."""
    return _read(config, "deepseek_v3")


def body(
    b: Builder, config: DeepseekConfig, tokens: Value, step: StepInputs, dtype: DType
) -> Value:
    """Embedding, layers and last norm: hidden states [B,S,E]; the residual stream is f32."""
    turns = rotary(b, step, config.rope_frequencies(), config.rope.attention_factor)
    mask, epsilon, latent = causal_mask(b, step), config.rms_norm_eps, config.latent
    with b.scope("model"):
        x = embed(b, "embed_tokens", tokens, config.vocab_size, config.hidden_size, dtype)
        x = b.convert(x, f32)
        for layer in range(config.num_hidden_layers):
            step.keep(x)
            with b.scope(f"layers.{layer}"):
                h = rms_norm(b, "input_layernorm", x, epsilon, dtype)
                x = x + latent_attention(b, h, latent, step, mask, turns, f32)
                h = rms_norm(b, "post_attention_layernorm", x, epsilon, dtype)
                x = x + _feed_forward(b, config, layer, h)
        return rms_norm(b, "norm", x, epsilon, dtype)


def _feed_forward(b: Builder, config: DeepseekConfig, layer: int, h: Value) -> Value:
    """The experts, or one MLP: f32 [B,S,E] of h [B,S,E]."""
    experts = config.mixture(layer)
    if experts is not None:
        return mixture(b, h, experts, config.hidden_act, f32)
    activation, bias = config.hidden_act, config.mlp_bias
    return gated_mlp(b, h, config.intermediate_size, activation=activation, bias=bias, dtype=f32)


DEEPSEEK_V2 = Family(
    "deepseek_v2",
    ("DeepseekV2ForCausalLM",),
    read_deepseek_v2,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
    aliases=ALIASES["deepseek_v2"],
)
DEEPSEEK_V3 = Family(
    "deepseek_v3",
    ("DeepseekV3ForCausalLM",),
    read_deepseek_v3,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
    aliases=ALIASES["deepseek_v3"],
)
