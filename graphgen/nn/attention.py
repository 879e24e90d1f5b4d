"""Self-attention over a KV cache, for any number of rows and tokens per step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import Dim, DType, Literal, Value
from graphgen.ir.dtype import f32, s32
from graphgen.nn.linear import linear


@dataclass(frozen=True, slots=True)
class StepInputs:
    """The inputs that every layer of one step shares.

    Attributes:
        positions: s32 [B,S], of each token; -1 for padding.
        slots: s32 [B,S], the cache slot each token is written to; -1 for padding.
        key_positions: s32 [B,C], the position in each attended slot; -1 for none. Of a tree, as if
            its tokens followed each other.
        seq_ids: s32 [B], the cache row of each row; R for an idle row.
        rows: R, rows of the cache.
        allocated: M, slots of a cache row.
        attended: C, slots that attention reads.
        ancestors: s32 [B,S,S], not 0 where a token reads another one of its row, where the tokens
            form a tree; ``None`` for tokens that follow each other.
        kept: what :meth:`keep` got; ``None`` if nothing is kept.
    """

    positions: Value
    slots: Value
    key_positions: Value
    seq_ids: Value
    rows: Dim
    allocated: Dim
    attended: Dim
    ancestors: Value | None = None
    kept: list[Value] | None = None

    def keep(self, x: Value) -> None:
        """Note the hidden states [B,S,E] before a layer, which programs may return."""
        if self.kept is not None:
            self.kept.append(x)


@dataclass(frozen=True, slots=True)
class Rotary:
    """Cosine and sine of the rotary angles of a step.

    Attributes:
        cos, sin: f32 [B,S,D/2].
        pairs: what is turned together: ``halves`` of a head, or ``neighbors``.
    """

    cos: Value
    sin: Value
    pairs: str = "halves"

    def turn(self, b: Builder, x: Value) -> Value:
        """Heads x [B,S,H,D] turned by the angles of their positions."""
        return b.rope(x, self.cos, self.sin, self.pairs)


@dataclass(frozen=True, slots=True)
class Alibi:
    """Linear biases of the scores (ALiBi): each head's slope times the distance of slot and token.

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
        qkv_bias: q, k and v have a bias.
        out_bias: o has a bias.
        scale: factor of the scores; 0 for ``head_dim ** -0.5``.
        window: largest number of slots a token reads; 0 for all.
        sinks: each head has a score without a value, the weight ``sinks`` [heads].
        rotated: q and k are turned by their positions.
        softcap: bound of the scores; 0 for none.
    """

    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    out_bias: bool = False
    scale: float = 0.0
    window: int = 0
    sinks: bool = False
    rotated: bool = True
    softcap: float = 0.0


# A norm of q or k [B,S,H,D] by its name in the checkpoint.
Normalize = Callable[[str, Value], Value]


@dataclass(frozen=True, slots=True)
class LongFrequencies:
    """Inverse frequencies f32 [D/2] of rows that have more than ``above`` slots."""

    inv_freq: Literal
    above: int


def rotary(
    b: Builder,
    step: StepInputs,
    inv_freq: Literal,
    factor: float = 1.0,
    pairs: str = "halves",
    long: LongFrequencies | None = None,
) -> Rotary:
    """The rotary tables of a step, from the inverse frequencies f32 [D/2], times ``factor``.

    Those of ``long`` take their place in caches with rows that are longer.
    """
    tables: Sequence[Value] = b.rope_table(step.positions, inv_freq)
    if long is not None:
        tables = _by_length(b, step, tables, long)
    cos, sin = tables if factor == 1 else [b.multiply(table, factor) for table in tables]
    return Rotary(cos, sin, pairs)


def _by_length(
    b: Builder, step: StepInputs, tables: Sequence[Value], long: LongFrequencies
) -> Sequence[Value]:
    """The tables, or those of ``long``: one choice for all calls, as cached keys are rotated."""
    slots = step.allocated
    last = b.slice_dim(b.iota(s32, (slots,), 0), 0, slots - 1, slots)
    is_long = b.compare(b.reshape(last, ()), b.literal(long.above, s32), "GE")
    others = b.rope_table(step.positions, long.inv_freq)
    return [
        b.select(b.broadcast_in_dim(is_long, table.shape, []), other, table)
        for table, other in zip(tables, others, strict=True)
    ]


def causal_mask(b: Builder, step: StepInputs, window: int = 0, chunk: int = 0) -> Value:
    """pred [B,S,C]: a token reads its position and those before it, ``window`` in all if not 0.

    With a ``chunk`` it reads those of its own chunk. Of the tokens of a tree it reads its ancestors
    alone.
    """
    if step.ancestors is not None:
        operands = (step.positions, step.key_positions, step.ancestors)
        return b.op("tree_mask", *operands, window=window, chunk=chunk)
    return b.attention_mask(step.positions, step.key_positions, window, chunk)


def linear_biases(b: Builder, step: StepInputs, heads: int) -> Alibi:
    """The linear biases of a step, with the slopes of arXiv 2108.12409 for ``heads`` heads."""
    slopes = b.literal(alibi_slopes(heads), f32)
    if step.ancestors is None:
        return Alibi(slopes, b.key_distance(step.positions, step.attended))
    shape = (*step.positions.shape, step.attended)
    own = b.broadcast_in_dim(step.positions, shape, [0, 1])
    return Alibi(slopes, b.convert(b.broadcast_in_dim(_held(b, step), shape, [0, 2]) - own, f32))


def rounded_biases(b: Builder, step: StepInputs, heads: int, scale: float) -> Value:
    """Biases f32 [B,H,S,C] of scores: each head's slope times the position in a slot, as bf16.

    Slope, position and product are rounded, the factor ``scale`` is not: Falcon's form of linear
    biases (transformers' ``build_alibi_tensor``). A rounded product depends on the position itself,
    so that the distance alone does not give it.
    """
    slopes = b.reduce_precision(b.literal(alibi_slopes(heads), f32), 8, 7)
    places = b.reduce_precision(b.convert(_held(b, step), f32), 8, 7)
    batch, active = step.positions.shape
    shape = (batch, heads, step.attended)
    product = b.broadcast_in_dim(slopes, shape, [1]) * b.broadcast_in_dim(places, shape, [0, 2])
    each = b.multiply(b.reduce_precision(product, 8, 7), scale)
    return b.broadcast_in_dim(each, (batch, heads, active, step.attended), [0, 1, 3])


def _held(b: Builder, step: StepInputs) -> Value:
    """The position s32 [B,C] in each slot, of a tree by the depth of its tokens."""
    if step.ancestors is None:
        return step.key_positions
    return b.op("tree_positions", step.positions, step.key_positions)


def alibi_slopes(heads: int) -> list[float]:
    """One slope per head: powers of ``2 ** (-8 / n)``, n the largest power of two up to ``heads``.

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
    step: StepInputs,
    mask: Value,
    turns: Rotary,
    *,
    width: int = 0,
    dtype: DType | None = None,
    normalize: Normalize | None = None,
    finish: Normalize | None = None,
) -> Value:
    """Attention of x [B,S,E] with rotary positions; keys and values are kept in the cache.

    ``normalize``, if given, applies to q and k before they are rotated, and ``finish`` after that.
    The result has ``width`` columns, by default E, and is of type ``dtype``, by default that of
    ``x``.
    """
    size = width or x.shape[-1]
    assert isinstance(size, int)
    with b.scope("self_attn"):
        # Rotated in f32 and rounded once.
        q = _heads(b, "q_proj", x, config.heads, config, f32)
        k = _heads(b, "k_proj", x, config.kv_heads, config, f32)
        v = _heads(b, "v_proj", x, config.kv_heads, config, x.dtype)
        if normalize is not None:
            q, k = normalize("q_norm", q), normalize("k_norm", k)

        def placed(name: str, heads: Value) -> Value:
            turned = turns.turn(b, heads) if config.rotated else heads
            return b.convert(turned if finish is None else finish(name, turned), x.dtype)

        q, k = placed("q_norm", q), placed("k_norm", k)
        terms = [_sinks(b, config.heads, x.dtype)] if config.sinks else []
        scale = config.scale or config.head_dim**-0.5
        out = attend(b, q, k, v, step, mask, scale, *terms, softcap=config.softcap)
        return linear(b, "o_proj", out, size, bias=config.out_bias, dtype=dtype)


def attend(
    b: Builder,
    q: Value,
    k: Value,
    v: Value,
    step: StepInputs,
    mask: Value,
    scale: float,
    *terms: Value,
    softcap: float = 0.0,
) -> Value:
    """Write k and v [B,S,K,D] to the cache and attend to it with q [B,S,H,D]: [B,S,H*D].

    ``terms`` and ``softcap`` are those of :meth:`Builder.attention`.
    """
    batch, active, heads, size = q.shape
    keys = read_updated(b, "k_cache", k, step)
    values = read_updated(b, "v_cache", v, step)
    out = b.attention(q, keys, values, mask, scale, *terms, softcap=softcap)
    return b.reshape(out, (batch, active, heads * size))


def _sinks(b: Builder, heads: int, dtype: DType) -> Value:
    """The score f32 [H] of each head's slot without a value."""
    return b.convert(b.weight("sinks", dtype, (heads,)), f32)


def _heads(
    b: Builder, name: str, x: Value, heads: int, config: AttentionConfig, dtype: DType
) -> Value:
    """A projection split into heads: ``dtype`` [B,S,heads,D]."""
    flat = linear(b, name, x, heads * config.head_dim, bias=config.qkv_bias, dtype=dtype)
    return b.reshape(flat, (*x.shape[:2], heads, config.head_dim))


def read_updated(b: Builder, name: str, new: Value, step: StepInputs) -> Value:
    """Write ``new`` [B,S,K,D] to the cache ``name`` and read the attended slots: [B,C,K,D]."""
    cache = b.state(name, new.dtype, (step.rows, step.allocated, *new.shape[2:]))
    updated = b.kv_update(cache, new, step.seq_ids, step.slots)
    b.set_state(cache, updated)
    return b.cache_read(updated, step.seq_ids, step.attended)
