"""DBRX: layer norms without biases, clipped queries, keys and values, an expert mixture a layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import DType, Value
from graphgen.ir.dtype import f32
from graphgen.models.config_reader import ConfigReader
from graphgen.models.decoder_config import DecoderConfig, smaller, wider
from graphgen.models.expert_counts import small_experts
from graphgen.models.family import Family, FusedRows
from graphgen.models.rope_config import read_rope, rope_to_hf
from graphgen.nn import (
    ACTIVATIONS,
    MixtureConfig,
    Rotary,
    StepInputs,
    TopKRouter,
    attend,
    causal_mask,
    embed,
    layer_norm,
    linear,
    lm_head,
    mixture,
    rotary,
)

# Of torch's LayerNorm, which transformers leaves as it is.
EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class DbrxConfig(DecoderConfig):
    """Sizes and switches under the names of other decoders; ``intermediate_size`` is an expert's.

    Attributes:
        num_local_experts, num_experts_per_tok: experts, and those of a token.
        clip_qkv: largest magnitude of queries, keys and values before they are rotated; 0 for none.
        norm_topk_prob: the weights of a token's experts are divided by their sum.
    """

    num_local_experts: int = 4
    num_experts_per_tok: int = 1
    clip_qkv: float = 0.0
    norm_topk_prob: bool = True

    def mixture(self, layer: int) -> MixtureConfig:
        """Softmax of all experts."""
        experts, chosen = self.num_local_experts, self.num_experts_per_tok
        return MixtureConfig(
            TopKRouter(experts, chosen, normalize=self.norm_topk_prob),
            self.intermediate_size,
            "ffn",
            names=("w1", "v1", "w2"),
            gate="router.layer",
        )

    def mini(self) -> DbrxConfig:
        """See :func:`~.decoder_config.smaller`; with few of many experts."""
        return self._few_experts(smaller(self))

    def wide(self) -> DbrxConfig:
        """See :func:`~.decoder_config.wider`."""
        return self._few_experts(wider(self))

    def _few_experts(self, made: DbrxConfig) -> DbrxConfig:
        experts, chosen = small_experts(self.num_local_experts, self.num_experts_per_tok)
        return replace(made, num_local_experts=experts, num_experts_per_tok=chosen)

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        rope = rope_to_hf(self.rope)
        return {
            "model_type": "dbrx",
            "architectures": ["DbrxForCausalLM"],
            "d_model": self.hidden_size,
            "n_heads": self.num_attention_heads,
            "n_layers": self.num_hidden_layers,
            "max_seq_len": self.max_position_embeddings,
            "vocab_size": self.vocab_size,
            "tie_word_embeddings": False,
            **rope,
            "attn_config": {
                "kv_n_heads": self.num_key_value_heads,
                "clip_qkv": self.clip_qkv or None,
                "rope_theta": rope["rope_theta"],
            },
            "ffn_config": {
                "ffn_act_fn": {"name": self.hidden_act},
                "ffn_hidden_size": self.intermediate_size,
                "moe_num_experts": self.num_local_experts,
                "moe_top_k": self.num_experts_per_tok,
                "moe_normalize_expert_weights": 1.0 if self.norm_topk_prob else None,
            },
        }


def read_dbrx(config: Mapping[str, object]) -> DbrxConfig:
    """A ``config.json`` of ``model_type: dbrx`` (GG0502, GG0503)."""
    reader = ConfigReader(config, ALIASES)
    attention = ConfigReader(reader.mapping("attn_config") or {})
    experts = ConfigReader(reader.mapping("ffn_config") or {})
    width, heads = _divided(reader)
    kv_heads = attention.integer("kv_n_heads", 1)
    # transformers writes these again.
    reader.only("num_key_value_heads", [kv_heads], kv_heads)
    experts.only("hidden_size", [width], width)
    reader.only("tie_word_embeddings", [False], False)
    reader.neutral("emb_pdrop", "resid_pdrop", "output_router_logits")
    experts.neutral("moe_loss_weight", "moe_jitter_eps")
    if heads % kv_heads:
        what = f"config: n_heads = {heads} is not a multiple of {kv_heads} KV heads"
        raise GraphgenError("GG0503", what)
    read = DbrxConfig(
        width,
        experts.integer("ffn_hidden_size", 3584),
        reader.integer("num_hidden_layers", 24),
        heads,
        kv_heads,
        width // heads,
        reader.integer("vocab_size", 32000),
        EPSILON,
        reader.integer("max_position_embeddings", 2048),
        read_rope(_with_theta(reader, attention)),
        hidden_act=_activation(experts),
        num_local_experts=experts.integer("moe_num_experts", 4),
        num_experts_per_tok=experts.integer("moe_top_k", 1),
        clip_qkv=attention.number("clip_qkv") if attention.config.get("clip_qkv") else 0.0,
        norm_topk_prob=_normalized(experts),
    )
    for each in (attention, experts, reader):
        each.finish()
    return read


def _divided(reader: ConfigReader) -> tuple[int, int]:
    """The width and the heads that divide it evenly (GG0503)."""
    width, heads = reader.integer("hidden_size", 2048), reader.integer("num_attention_heads", 16)
    if width % (2 * heads):
        what = f"config: d_model = {width} does not divide into {heads} heads of even size"
        raise GraphgenError("GG0503", what)
    return width, heads


def _with_theta(reader: ConfigReader, attention: ConfigReader) -> ConfigReader:
    """The reader with the base of ``attn_config``, where older configurations have it (GG0503)."""
    given = attention.config.get("rope_theta")
    attention.neutral("rope_theta")
    ropes = reader.mapping("rope_parameters") or {}
    other = ropes.get("rope_theta", reader.config.get("rope_theta", given))
    if given is not None and other != given:
        raise GraphgenError(
            "GG0503",
            f"config: attn_config.rope_theta = {given!r} and rope_theta = {other!r} disagree",
            help="leave one of them out",
        )
    reader.config.setdefault("rope_theta", given)
    return reader


def _activation(experts: ConfigReader) -> str:
    """The name in ``ffn_act_fn`` (GG0502)."""
    return ConfigReader(experts.mapping("ffn_act_fn") or {}).choice("name", ACTIVATIONS, "silu")


def _normalized(experts: ConfigReader) -> bool:
    """True to divide weights by their sum, which is their norm of order 1 (GG0502)."""
    key = "moe_normalize_expert_weights"
    if key in experts.config and experts.config[key] is None:
        experts.neutral(key)
        return False
    return experts.only(key, [1.0], 1.0) == 1.0


def body(b: Builder, config: DbrxConfig, tokens: Value, step: StepInputs, dtype: DType) -> Value:
    """Embedding, layers and last norm: hidden states [B,S,E]; the residual stream is f32."""
    turns = rotary(b, step, config.rope_frequencies(), config.rope.attention_factor)
    mask = causal_mask(b, step)

    def norm(name: str, x: Value) -> Value:
        return layer_norm(b, name, x, EPSILON, dtype, bias=False)

    with b.scope("transformer"):
        x = embed(b, "wte", tokens, config.vocab_size, config.hidden_size, dtype)
        x = b.convert(x, f32)
        for layer in range(config.num_hidden_layers):
            step.keep(x)
            with b.scope(f"blocks.{layer}"):
                with b.scope("norm_attn_norm"):
                    x = x + _attention(b, config, norm("norm_1", x), step, mask, turns)
                    h = norm("norm_2", x)
                x = x + mixture(b, h, config.mixture(layer), config.hidden_act, f32)
        return norm("norm_f", x)


def _attention(
    b: Builder, config: DbrxConfig, x: Value, step: StepInputs, mask: Value, turns: Rotary
) -> Value:
    size, limit = config.head_dim, config.clip_qkv

    def heads(name: str, count: int) -> Value:
        y = linear(b, name, x, count * size, dtype=f32)
        if limit:
            y = b.binary("minimum", b.binary("maximum", y, -limit), limit)
        return b.reshape(y, (*x.shape[:2], count, size))

    with b.scope("attn"):
        q = heads("q_proj", config.num_attention_heads)
        k, v = (heads(name, config.num_key_value_heads) for name in ("k_proj", "v_proj"))
        # Rotated in f32 and rounded once.
        q, k = [b.convert(b.rope(part, turns.cos, turns.sin), x.dtype) for part in (q, k)]
        out = attend(b, q, k, b.convert(v, x.dtype), step, mask, size**-0.5)
        return linear(b, "out_proj", out, config.hidden_size, dtype=f32)


def head(b: Builder, config: DbrxConfig, x: Value) -> Value:
    """Logits f32 [..., V] of x [..., E]."""
    return lm_head(b, x, config.vocab_size)


def _fused(config: DbrxConfig) -> Mapping[str, FusedRows]:
    rows = config.num_key_value_heads * config.head_dim
    heads = ("q_proj", config.hidden_size), ("k_proj", rows), ("v_proj", rows)
    return {"Wqkv": FusedRows(heads)}


# Other names of configuration keys.
ALIASES = {
    "n_heads": "num_attention_heads",
    "d_model": "hidden_size",
    "n_layers": "num_hidden_layers",
    "max_seq_len": "max_position_embeddings",
}
DBRX = Family(
    "dbrx",
    ("DbrxForCausalLM",),
    read_dbrx,
    body,
    head,
    prefix="transformer",
    embedding="transformer.wte.weight",
    aliases={name: other for other, name in ALIASES.items()},
    fused=_fused,
)
