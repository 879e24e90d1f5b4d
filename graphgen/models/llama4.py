"""Llama 4 (text): attention within chunks, layers without rotary positions, shared experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from graphgen.build import Builder
from graphgen.ir import DType, Value, tensor
from graphgen.ir.dtype import f32
from graphgen.models.config_reader import ConfigReader
from graphgen.models.decoder import EMBEDDING, head
from graphgen.models.decoder_config import DecoderConfig, read_sizes, smaller, to_hf, wider
from graphgen.models.expert_counts import read_experts, small_experts
from graphgen.models.family import Family
from graphgen.models.layer_types import CHUNKED, read_layer_types, read_numbers, read_rotated
from graphgen.models.twins import WIDE_WINDOW
from graphgen.nn import (
    AttentionConfig,
    ExpertForm,
    MixtureConfig,
    Normalize,
    SharedExpert,
    StepInputs,
    TopKRouter,
    causal_mask,
    embed,
    gated_mlp,
    mixture,
    rms_norm,
    rotary,
    self_attention,
)

_MINI_CHUNK = 6


@dataclass(frozen=True, slots=True)
class Llama4Config(DecoderConfig):
    """Sizes and switches under Hugging Face's names; ``intermediate_size`` is that of an expert.

    Attributes:
        intermediate_size_mlp: I of the MLP in layers without experts.
        sparse: true for each layer with experts.
        rotated: true for each layer with rotary positions, ``no_rope_layers`` of a ``config.json``.
        layer_types: ``chunked_attention`` or ``full_attention`` of each layer.
        attention_chunk_size: tokens of a chunk; 0 if those layers read everything too.
        use_qk_norm: q and k of rotated layers are divided by their root mean square.
        attn_temperature_tuning: queries of the other layers grow with their positions:
            ``log(1 + floor((p + 1) / floor_scale)) * attn_scale + 1`` (arXiv 2501.19399).
    """

    intermediate_size_mlp: int = 16384
    sparse: tuple[bool, ...] = ()
    rotated: tuple[bool, ...] = ()
    layer_types: tuple[str, ...] = ()
    num_local_experts: int = 16
    num_experts_per_tok: int = 1
    attention_chunk_size: int = 8192
    use_qk_norm: bool = True
    attn_temperature_tuning: bool = True
    floor_scale: int = 8192
    attn_scale: float = 0.1
    attention_bias: bool = False

    def attention(self, layer: int) -> AttentionConfig:
        """Sizes and switches of one layer's attention."""
        return replace(
            DecoderConfig.attention(self, layer),
            qkv_bias=self.attention_bias,
            out_bias=self.attention_bias,
            rotated=self.rotated[layer],
        )

    def mixture(self, layer: int) -> MixtureConfig | None:
        """Inputs of the chosen experts are multiplied by the logistic function of their logits."""
        if not self.sparse[layer]:
            return None
        router = TopKRouter(
            self.num_local_experts, self.num_experts_per_tok, score="sigmoid", over="chosen"
        )
        return MixtureConfig(
            router,
            self.intermediate_size,
            "feed_forward",
            gate="router",
            shared=SharedExpert(self.intermediate_size, "shared_expert"),
            form=ExpertForm(modulate="input"),
        )

    def mini(self) -> Self:
        """See :func:`~.decoder_config.smaller`; two layers of each kind."""
        small = self._kinds(smaller(self), _MINI_CHUNK, 2)
        inner = small.hidden_size // 8 + 8
        return replace(small, intermediate_size=inner, intermediate_size_mlp=2 * inner)

    def wide(self) -> Self:
        """See :func:`~.decoder_config.wider`; a layer of each kind."""
        made = self._kinds(wider(self), WIDE_WINDOW, 1)
        return replace(made, intermediate_size=9, intermediate_size_mlp=made.intermediate_size)

    def _kinds(self, twin: Self, chunk: int, each: int) -> Self:
        """The twin with ``each`` layers of each kind, short chunks and few experts."""
        kinds = dict.fromkeys(zip(self.layer_types, self.rotated, self.sparse, strict=True))
        layers = list(kinds) * (each if len(kinds) > 1 else 2)
        types, rotated, sparse = zip(*layers, strict=True)
        experts, chosen = small_experts(self.num_local_experts, self.num_experts_per_tok)
        # Equal where they are in the model, as constants of it are.
        same = self.floor_scale == self.attention_chunk_size
        return replace(
            twin,
            num_hidden_layers=len(layers),
            layer_types=types,
            rotated=rotated,
            sparse=sparse,
            num_local_experts=experts,
            num_experts_per_tok=chosen,
            attention_chunk_size=self.attention_chunk_size and chunk,
            floor_scale=chunk if same else chunk + 1,
        )

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        out = to_hf(self, "llama4_text", "Llama4ForCausalLM")
        del out["mlp_bias"], out["sparse"], out["rotated"]
        return {
            **out,
            "layer_types": list(self.layer_types),
            "attention_chunk_size": self.attention_chunk_size or None,
            "no_rope_layers": list(map(int, self.rotated)),
            "moe_layers": [layer for layer, sparse in enumerate(self.sparse) if sparse],
        }


def read_llama4(config: Mapping[str, object]) -> Llama4Config:
    """A ``config.json`` of ``model_type: llama4_text`` (GG0502, GG0503)."""
    reader = ConfigReader({"rms_norm_eps": 1e-5, "rope_theta": 5e5, **config})
    own = 0 if "head_dim" in config else 128
    sizes = read_sizes(reader, positions=131072, kv_heads=8, head_dim=own)
    layers = sizes["num_hidden_layers"]
    rotated = read_rotated(reader, layers)
    step = reader.integer("interleave_moe_layer_step", 1)
    sparse = read_numbers(reader, "moe_layers")
    experts, chosen = read_experts(reader, "num_local_experts", (16, 1))
    read = Llama4Config(
        **sizes,
        intermediate_size_mlp=reader.integer("intermediate_size_mlp", 16384),
        sparse=tuple(
            (layer + 1) % step == 0 if sparse is None else layer in sparse
            for layer in range(layers)
        ),
        rotated=rotated,
        layer_types=read_layer_types(reader, rotated, CHUNKED),
        num_local_experts=experts,
        num_experts_per_tok=chosen,
        attention_chunk_size=reader.optional_integer("attention_chunk_size") or 0
        if "attention_chunk_size" in config
        else 8192,
        use_qk_norm=reader.boolean("use_qk_norm", True),
        # The first configurations had 4.
        attn_temperature_tuning=bool(
            reader.only("attn_temperature_tuning", [True, False, 4], True)
        ),
        floor_scale=reader.integer("floor_scale", 8192),
        attn_scale=reader.number("attn_scale", 0.1),
        attention_bias=reader.boolean("attention_bias", False),
    )
    reader.finish()
    return read


def body(b: Builder, config: Llama4Config, tokens: Value, step: StepInputs, dtype: DType) -> Value:
    """Embedding, layers and last norm: hidden states [B,S,E]; the residual stream is f32."""
    turns = rotary(b, step, config.rope_frequencies(), config.rope.attention_factor, "neighbors")
    chunks = {CHUNKED: config.attention_chunk_size}
    masks = {
        kind: causal_mask(b, step, chunk=chunks.get(kind, 0))
        for kind in dict.fromkeys(config.layer_types)
    }
    tempers = config.attn_temperature_tuning and not all(config.rotated)
    finishes = {
        True: _normalizing(b, config) if config.use_qk_norm else None,
        False: _tempering(b, _temperatures(b, config, step)) if tempers else None,
    }
    epsilon = config.rms_norm_eps
    with b.scope("model"):
        x = embed(b, "embed_tokens", tokens, config.vocab_size, config.hidden_size, dtype)
        x = b.convert(x, f32)
        for layer, kind in enumerate(config.layer_types):
            step.keep(x)
            attention = config.attention(layer)
            with b.scope(f"layers.{layer}"):
                h = rms_norm(b, "input_layernorm", x, epsilon, dtype)
                finish = finishes[attention.rotated]
                x = x + self_attention(
                    b, h, attention, step, masks[kind], turns, dtype=f32, finish=finish
                )
                h = rms_norm(b, "post_attention_layernorm", x, epsilon, dtype)
                x = x + _feed_forward(b, config, layer, h)
        return rms_norm(b, "norm", x, epsilon, dtype)


def _feed_forward(b: Builder, config: Llama4Config, layer: int, x: Value) -> Value:
    """The layer's experts, or its MLP: f32 like x."""
    experts, activation = config.mixture(layer), config.hidden_act
    if experts is not None:
        return mixture(b, x, experts, activation, f32)
    size = config.intermediate_size_mlp
    return gated_mlp(b, x, size, activation=activation, dtype=f32, module="feed_forward")


def _normalizing(b: Builder, config: Llama4Config) -> Normalize:
    """Root-mean-square norms of heads, without weights."""

    def normalize(name: str, x: Value) -> Value:
        ones = b.full(1.0, tensor(f32, (config.head_dim,)))
        return b.rms_norm(x, ones, config.rms_norm_eps)

    return normalize


def _temperatures(b: Builder, config: Llama4Config, step: StepInputs) -> Value:
    """f32 [B,S], the factor of the query at each position: see :class:`Llama4Config`."""
    passed = b.binary("divide", b.binary("add", step.positions, 1), config.floor_scale)
    return b.log_plus_one(b.convert(passed, f32)) * config.attn_scale + 1.0


def _tempering(b: Builder, factors: Value) -> Normalize:
    """Queries times their factors f32 [B,S]; keys as they are."""

    def temper(name: str, x: Value) -> Value:
        return x * b.broadcast_in_dim(factors, x.shape, [0, 1]) if name == "q_norm" else x

    return temper


LLAMA4 = Family(
    "llama4_text",
    ("Llama4ForCausalLM",),
    read_llama4,
    body,
    head,
    prefix="model",
    embedding=f"{EMBEDDING}.weight",
    # Of checkpoints of the model that reads images too.
    renamed=(("language_model.", ""),),
    buffers=("*vision_model.*", "*multi_modal_projector.*"),
)
