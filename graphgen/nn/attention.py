"""Self-attention over a KV cache, for any number of rows and tokens a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import Dim, DType, Literal, Value
from graphgen.ir.dtype import f32
from graphgen.nn.linear import linear


@dataclass(frozen=True, slots=True)
class StepInputs:
    """What every layer of one call shares.

    Attributes:
        positions: s32 [B,S], the cache slot of each token; -1 for padding.
        lengths: s32 [B], tokens of each row so far, those of this call included.
        seq_ids: s32 [B], the cache row of each row; R for an idle row.
        rows: R, rows of the cache.
        allocated: M, slots of a cache row.
        attended: C, slots that are read.
    """

    positions: Value
    lengths: Value
    seq_ids: Value
    rows: Dim
    allocated: Dim
    attended: Dim


@dataclass(frozen=True, slots=True)
class Rotary:
    """The angles of a call's positions.

    Attributes:
        cos, sin: f32 [B,S,D/2].
    """

    cos: Value
    sin: Value


@dataclass(frozen=True, slots=True)
class Alibi:
    """Linear biases of the scores: each head's slope times how far a slot lies from a token.

    Attributes:
        slopes: f32 [H].
        distance: f32 [B,S,C], 0 or less for the slots a token reads.
    """

    slopes: Value
    distance: Value


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """Sizes of one attention layer.

    Attributes:
        heads: query heads.
        kv_heads: key and value heads; divides ``heads``.
        head_dim: size of a head.
        qkv_bias: whether q, k and v have a bias.
        out_bias: whether o has a bias.
        scale: of the scores; 0 for ``head_dim ** -0.5``.
        window: slots a token reads at most; 0 for all.
    """

    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    out_bias: bool = False
    scale: float = 0.0
    window: int = 0


# A norm of q or k [B,S,H,D] by its name in the checkpoint.
Normalize = Callable[[str, Value], Value]


def rotary(b: Builder, call: StepInputs, inv_freq: Literal) -> Rotary:
    """The rotary tables of a call, from the inverse frequencies f32 [D/2]."""
    return Rotary(*b.rope_table(call.positions, inv_freq))


def causal_mask(b: Builder, call: StepInputs, window: int = 0) -> Value:
    """pred [B,S,C]: a token reads its own slot and those before it, ``window`` in all if not 0."""
    return b.attention_mask(call.positions, call.lengths, call.attended, window)


def linear_biases(b: Builder, call: StepInputs, heads: int) -> Alibi:
    """The linear biases of a call, with the slopes of arXiv 2108.12409 for ``heads`` heads."""
    slopes = b.literal(alibi_slopes(heads), f32)
    return Alibi(slopes, b.key_distance(call.positions, call.attended))


def alibi_slopes(heads: int) -> list[float]:
    """One slope a head: powers of ``2 ** (-8 / n)``, n the largest power of two up to ``heads``.

    Heads beyond n take every other one of the slopes that 2n heads would have (transformers'
    ``build_alibi_tensor``).
    """
    n = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * i / n) for i in range(1, n + 1)]
    return slopes + [2.0 ** (-4 * i / n) for i in range(1, 2 * (heads - n), 2)]


def self_attention(
    b: Builder,
    x: Value,
    config: AttentionConfig,
    call: StepInputs,
    mask: Value,
    turns: Rotary,
    *,
    dtype: DType | None = None,
    normalize: Normalize | None = None,
) -> Value:
    """Attention of x [B,S,E] with rotary positions; keys and values are kept in the cache.

    q and k go through ``normalize``, if there is one, before they are rotated. The result is of
    type ``dtype``, by default that of ``x``.
    """
    size = x.shape[-1]
    assert isinstance(size, int)
    with b.scope("self_attn"):
        # Rotated in f32 and rounded once.
        q = _heads(b, "q_proj", x, config.heads, config, f32)
        k = _heads(b, "k_proj", x, config.kv_heads, config, f32)
        v = _heads(b, "v_proj", x, config.kv_heads, config, x.dtype)
        if normalize is not None:
            q, k = normalize("q_norm", q), normalize("k_norm", k)
        q = b.convert(b.rope(q, turns.cos, turns.sin), x.dtype)
        k = b.convert(b.rope(k, turns.cos, turns.sin), x.dtype)
        out = attend(b, q, k, v, call, mask, config.scale or config.head_dim**-0.5)
        return linear(b, "o_proj", out, size, bias=config.out_bias, dtype=dtype)


def attend(
    b: Builder,
    q: Value,
    k: Value,
    v: Value,
    call: StepInputs,
    mask: Value,
    scale: float,
    alibi: Alibi | None = None,
) -> Value:
    """What q [B,S,H,D] reads once k and v [B,S,K,D] are in the cache: [B,S,H*D]."""
    batch, active, heads, size = q.shape
    keys = _remember(b, "k_cache", k, call)
    values = _remember(b, "v_cache", v, call)
    bias = (alibi.slopes, alibi.distance) if alibi else ()
    out = b.attention(q, keys, values, mask, scale, *bias)
    return b.reshape(out, (batch, active, heads * size))


def _heads(
    b: Builder, name: str, x: Value, heads: int, config: AttentionConfig, dtype: DType
) -> Value:
    """A projection split into heads: ``dtype`` [B,S,heads,D]."""
    flat = linear(b, name, x, heads * config.head_dim, bias=config.qkv_bias, dtype=dtype)
    return b.reshape(flat, (*x.shape[:2], heads, config.head_dim))


def _remember(b: Builder, name: str, new: Value, call: StepInputs) -> Value:
    """Write ``new`` [B,S,K,D] into the cache ``name`` and read what is attended: [B,C,K,D]."""
    cache = b.state(name, new.dtype, (call.rows, call.allocated, *new.shape[2:]))
    updated = b.kv_update(cache, new, call.seq_ids, call.positions)
    b.set_state(cache, updated)
    return b.cache_read(updated, call.seq_ids, call.attended)
