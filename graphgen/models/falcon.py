"""Falcon: attention and MLP in parallel, one key-value head (7B) or one for each group (40B).

``query_key_value`` of checkpoints is read as three layers: with one key-value head it has the rows
of q, then of k, then of v, otherwise these of each group of heads. The first models (``falcon-rw``)
have linear biases in the place of rotated heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import DType, Value
from graphgen.ir.dtype import f32
from graphgen.models.config_reader import ConfigReader
from graphgen.models.family import Family, FusedRows
from graphgen.models.rope_config import read_rope, rope_to_hf
from graphgen.models.twins import WIDE_HEAD_DIM, WIDE_POSITIONS, WIDE_VOCABULARY, wide_heads
from graphgen.nn import (
    ACTIVATIONS,
    RopeConfig,
    Rotary,
    StepInputs,
    attend,
    causal_mask,
    embed,
    inverse_frequencies,
    layer_norm,
    linear,
    lm_head,
    mlp,
    rotary,
    rounded_biases,
)

ALIASES = {"n_embed": "hidden_size"}
# Module of the embedding table.
EMBEDDING = "transformer.word_embeddings"
# Tables that turn heads, or biases f32 [B,H,S,C] of scores.
_Places = Rotary | Value


@dataclass(frozen=True, slots=True)
class FalconConfig:
    """Sizes and switches under Hugging Face's names.

    ``num_kv_heads`` counts the key-value heads there are; ``multi_query`` and
    ``new_decoder_architecture`` name the layouts of ``query_key_value``.
    """

    vocab_size: int = 65024
    hidden_size: int = 4544
    num_hidden_layers: int = 32
    num_attention_heads: int = 71
    num_kv_heads: int = 1
    ffn_hidden_size: int = 18176
    activation: str = "gelu"
    layer_norm_epsilon: float = 1e-5
    max_position_embeddings: int = 2048
    bias: bool = False
    alibi: bool = False
    multi_query: bool = True
    parallel_attn: bool = True
    new_decoder_architecture: bool = False
    num_ln_in_parallel_attn: int = 1
    tie_word_embeddings: bool = True
    rope: RopeConfig = field(default_factory=RopeConfig)

    @property
    def head_dim(self) -> int:
        """Size of a head."""
        return self.hidden_size // self.num_attention_heads

    def mini(self) -> FalconConfig:
        """Two layers, up to two key-value heads of four query heads, an odd vocabulary."""
        kv, group = self.num_kv_heads, self.num_attention_heads // self.num_kv_heads
        kv = min(kv, 4 if group == 1 else 2)
        return self._small(kv, min(group, 5 if kv == 1 else 4), 8, 257)

    def wide(self) -> FalconConfig:
        """Two layers, six, three or one key-value heads, large numbers."""
        kv, group = wide_heads(self.num_kv_heads), self.num_attention_heads // self.num_kv_heads
        # Scores are scaled by another number than the 1/2 of GELU.
        size = WIDE_HEAD_DIM + 2
        made = self._small(kv, min(group, 5 if kv == 1 else 2), size, WIDE_VOCABULARY)
        made = replace(made, max_position_embeddings=WIDE_POSITIONS)
        return replace(made, ffn_hidden_size=made.num_attention_heads * 8 + 2)

    def _small(self, kv: int, group: int, size: int, words: int) -> FalconConfig:
        heads = kv * group
        return replace(
            self,
            vocab_size=words,
            hidden_size=heads * size,
            num_hidden_layers=min(self.num_hidden_layers, 2),
            num_attention_heads=heads,
            num_kv_heads=kv,
            ffn_hidden_size=heads * 24,
        )

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        out: dict[str, object] = {item.name: getattr(self, item.name) for item in fields(self)}
        del out["rope"]
        kind = {"model_type": "falcon", "architectures": ["FalconForCausalLM"]}
        return {**out, **kind, **rope_to_hf(self.rope)}


def read_falcon(config: Mapping[str, object]) -> FalconConfig:
    """A ``config.json`` of ``model_type: falcon`` (GG0502, GG0503)."""
    reader = ConfigReader(config, ALIASES)
    plain = FalconConfig()
    width, heads = reader.width_and_heads(plain, "hidden_size", "num_attention_heads")
    new = reader.boolean("new_decoder_architecture", False)
    read = reader.read_fields(
        plain,
        hidden_size=width,
        num_attention_heads=heads,
        num_kv_heads=_kv_heads(reader, heads, new),
        ffn_hidden_size=reader.integer("ffn_hidden_size", 4 * width),
        activation=reader.choice("activation", ACTIVATIONS, "gelu"),
        parallel_attn=bool(reader.only("parallel_attn", [True] if new else [True, False], True)),
        num_ln_in_parallel_attn=_norms(reader, new),
        rope=read_rope(reader),
    )
    if read.head_dim % 2 and not read.alibi:
        raise GraphgenError("GG0503", f"config: heads of {read.head_dim} have no halves")
    # The factor that the inner size was made by, and a switch of BLOOM that Falcon ignores.
    reader.neutral("ff_factor", "apply_residual_connection_post_layernorm")
    reader.finish()
    return read


def _kv_heads(reader: ConfigReader, heads: int, new: bool) -> int:
    """The key-value heads there are; the key counts where neither switch is 1 (GG0503)."""
    stated = reader.integer("num_kv_heads", heads)
    if not new:
        return 1 if reader.boolean("multi_query", True) else heads
    if heads % stated:
        raise GraphgenError(
            "GG0503",
            f"config: num_attention_heads = {heads} is not a multiple of {stated} KV heads",
        )
    return stated


def _norms(reader: ConfigReader, new: bool) -> int:
    """Norms of a layer of the new architecture: one for both, or one for each (GG0502)."""
    found = reader.only("num_ln_in_parallel_attn", [1, 2] if new else [1], 2 if new else 1)
    return 2 if found == 2 else 1


def _fused(config: FalconConfig) -> Mapping[str, FusedRows]:
    size, kv = config.head_dim, config.num_kv_heads
    group = config.num_attention_heads // kv
    parts = ("q_proj", group * size), ("k_proj", size), ("v_proj", size)
    return {"query_key_value": FusedRows(parts, kv)}


def body(b: Builder, config: FalconConfig, tokens: Value, step: StepInputs, dtype: DType) -> Value:
    """Embedding, layers and last norm: hidden states [B,S,E]; the residual stream is f32."""
    places = _places(b, config, step)
    mask, epsilon = causal_mask(b, step), config.layer_norm_epsilon
    with b.scope("transformer"):
        x = embed(b, "word_embeddings", tokens, config.vocab_size, config.hidden_size, dtype)
        x = b.convert(x, f32)
        for layer in range(config.num_hidden_layers):
            step.keep(x)
            with b.scope(f"h.{layer}"):
                x = _block(b, config, x, step, mask, places, dtype)
        return layer_norm(b, "ln_f", x, epsilon, dtype)


def _places(b: Builder, config: FalconConfig, step: StepInputs) -> _Places:
    if config.alibi:
        return rounded_biases(b, step, config.num_attention_heads, config.head_dim**-0.5)
    frequencies = inverse_frequencies(config.rope, config.head_dim)
    return rotary(b, step, frequencies, config.rope.attention_factor)


def _block(
    b: Builder,
    config: FalconConfig,
    x: Value,
    step: StepInputs,
    mask: Value,
    places: _Places,
    dtype: DType,
) -> Value:
    def norm(name: str, x: Value) -> Value:
        return layer_norm(b, name, x, config.layer_norm_epsilon, dtype)

    own = config.num_ln_in_parallel_attn == 2
    h = norm("ln_attn" if own else "input_layernorm", x)
    out = _attention(b, config, h, step, mask, places)
    if not config.parallel_attn and not own:
        x = x + out
        return x + _mlp(b, config, norm("post_attention_layernorm", x))
    # Summed first: ranks have addends of both, and of their sum.
    return x + (out + _mlp(b, config, norm("ln_mlp", x) if own else h))


def _mlp(b: Builder, config: FalconConfig, x: Value) -> Value:
    size, names = config.ffn_hidden_size, ("dense_h_to_4h", "dense_4h_to_h")
    with b.scope("mlp"):
        return mlp(b, x, names, size, config.activation, bias=config.bias)


def _attention(
    b: Builder, config: FalconConfig, x: Value, step: StepInputs, mask: Value, places: _Places
) -> Value:
    size = config.head_dim

    def heads(name: str, count: int, dtype: DType) -> Value:
        flat = linear(b, name, x, count * size, bias=config.bias, dtype=dtype)
        return b.reshape(flat, (*x.shape[:2], count, size))

    with b.scope("self_attention"):
        # Rotated in f32 and rounded once.
        q = heads("q_proj", config.num_attention_heads, f32)
        k = heads("k_proj", config.num_kv_heads, f32)
        v = heads("v_proj", config.num_kv_heads, x.dtype)
        biases: list[Value] = []
        if isinstance(places, Rotary):
            q, k = [places.turn(b, part) for part in (q, k)]
        else:
            biases = [places]
        q, k = [b.convert(part, x.dtype) for part in (q, k)]
        out = attend(b, q, k, v, step, mask, size**-0.5, *biases)
        return linear(b, "dense", out, config.hidden_size, bias=config.bias, dtype=f32)


def head(b: Builder, config: FalconConfig, x: Value) -> Value:
    """Logits f32 [..., V] of x [..., E]."""
    return lm_head(b, x, config.vocab_size, tied=EMBEDDING if config.tie_word_embeddings else "")


FALCON = Family(
    "falcon",
    ("FalconForCausalLM",),
    read_falcon,
    body,
    head,
    prefix="transformer",
    embedding=f"{EMBEDDING}.weight",
    aliases=ALIASES,
    fused=_fused,
)
