"""Composite ops: the building blocks of language models that passes match and lower as one op.

``graphgen.composites`` decomposes them. Letters in the documentation: B batch rows of a call,
R batch rows of the cache, S active tokens, C attended length, M allocated length, H query heads,
K key-value heads, D head size, E model width, V vocabulary.

Letters in factors: b batch rows of a call, r of the cache, s active tokens, c attended length,
m allocated length, k key-value heads, g query heads per key-value head, d head size, e model width,
v vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphgen.ir import Attrs, Dim, TensorType, tensor
from graphgen.ir.dims import product
from graphgen.ir.dtype import f32, lowest, pred, s32
from graphgen.ops.attr_types import DIM, ELEMENT, INTEGER, LITERAL, NUMBER, choice
from graphgen.ops.factors import FactorRule, Factors, Notation
from graphgen.ops.opdef import Cost, attr, define, float_operand, rank_of, require
from graphgen.ops.traits import Trait, Types, UpdatesPart

COMPOSITE = (Trait.COMPOSITE,)
POSITIONAL = (Trait.COMPOSITE, Trait.POSITIONAL)
ACTIVATION = (Trait.COMPOSITE, Trait.ELEMENTWISE, Trait.FINITE_AT_ZERO)
PARTIAL_READ = (*POSITIONAL, Trait.DATA_MOVEMENT, Trait.PARTIAL_READ)

ROWS = attr("rows", choice("any", "in_place"), "any")


def _like(types: Sequence[TensorType], index: int, wanted: TensorType) -> None:
    require(types[index] is wanted, f"needs {wanted.text}, got {types[index].text}", index)


@define(
    "embedding",
    "table ids",
    traits=PARTIAL_READ,
    factors=Notation("v e, * -> * e", {"v": "add"}, special="v"),
)
def _embedding(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Row ``ids[...]`` of ``table`` [V,E]; an id outside 0..V-1 is clamped.

    Example:
        %x = embedding(%table, %tokens) : f32[B,S,4]
    """
    rank_of(types, 0, 2, "the table")
    require(types[1].dtype is s32, f"ids must be s32, got {types[1].text}", 1)
    return (tensor(types[0].dtype, (*types[1].shape, types[0].shape[1])),)


def _norm_cost(flops: int) -> Cost:
    """``flops`` operations per element and a root per row."""

    def cost(operands: Types, results: Types, attrs: Attrs) -> tuple[Dim, Dim]:
        return flops * operands[0].size, product(operands[0].shape[:-1])

    return cost


_NORM = Notation("* E, E, E -> * E")


@define(
    "rms_norm",
    "operand weight",
    attr("epsilon", NUMBER),
    traits=COMPOSITE,
    factors=_NORM,
    cost=_norm_cost(4),
)
def _rms_norm(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """``x / sqrt(mean(x^2) + epsilon) * weight`` over the last dimension.

    The mean and the quotient are taken in f32 and rounded to the type of ``weight``, which is the
    result's, before ``weight`` is applied, as transformers does. x may be wider than ``weight``.

    Example:
        %h = rms_norm(%x, %w) epsilon=1e-05 : f32[B,S,4]
    """
    float_operand(types)
    require(types[0].rank >= 1, f"needs a dimension to normalize, got {types[0].text}", 0)
    float_operand(types, 1)
    _like(types, 1, tensor(types[1].dtype, types[0].shape[-1:]))
    return (tensor(types[1].dtype, types[0].shape),)


@define(
    "layer_norm",
    "operand weight bias",
    attr("epsilon", NUMBER),
    traits=COMPOSITE,
    factors=_NORM,
    cost=_norm_cost(7),  # Two sums, a difference, a square, the quotient, weight and bias.
)
def _layer_norm(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """``(x - mean(x)) / sqrt(variance(x) + epsilon) * weight + bias`` over the last dimension.

    Everything is computed in f32 and rounded once to the type of ``weight``, which is the result's.
    The variance is that of the elements themselves (divided by their count). x may be wider than
    ``weight``.

    Example:
        %h = layer_norm(%x, %w, %c) epsilon=1e-05 : f32[B,S,4]
    """
    float_operand(types)
    require(types[0].rank >= 1, f"needs a dimension to normalize, got {types[0].text}", 0)
    float_operand(types, 1)
    _like(types, 1, tensor(types[1].dtype, types[0].shape[-1:]))
    _like(types, 2, types[1])
    return (tensor(types[1].dtype, types[0].shape),)


def _activation_cost(operands: Types, results: Types, attrs: Attrs) -> tuple[Dim, Dim]:
    """A product and a special function per element."""
    return results[0].size, results[0].size


@define("silu", "operand", traits=ACTIVATION, cost=_activation_cost)
def _silu(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """``x * logistic(x)``, computed in f32.

    Example:
        %g = silu(%x) : f32[B,S,4]
    """
    float_operand(types)
    return (types[0],)


@define(
    "gelu",
    "operand",
    attr("approximate", choice("none", "tanh", "sigmoid")),
    traits=ACTIVATION,
    cost=_activation_cost,
)
def _gelu(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """``x`` times about the share of a normal distribution below x, in f32 (arXiv 1606.08415).

    ``none`` is ``x/2 * (1 + erf(x / sqrt(2)))``, which is what the others come near to:
    ``tanh`` is ``x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))``, and ``sigmoid`` is
    ``x * logistic(1.702 x)``.

    Example:
        %g = gelu(%x) approximate=tanh : f32[B,S,4]
    """
    float_operand(types)
    return (types[0],)


def _rope_table_cost(operands: Types, results: Types, attrs: Attrs) -> tuple[Dim, Dim]:
    """An angle, a cosine and a sine per element."""
    size = results[0].size
    return size, size + size


@define(
    "rope_table",
    "positions",
    attr("inv_freq", LITERAL),
    attr("scale", NUMBER, 1.0),
    traits=POSITIONAL,
    factors=Notation("* -> * D, * D"),
    cost=_rope_table_cost,
)
def _rope_table(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Cosine and sine of ``positions * inv_freq``, times ``scale``; f32 [..., D/2] each.

    Example:
        %cos, %sin = rope_table(%positions) inv_freq=f32[2](1.0,0.1) : f32[B,S,2], f32[B,S,2]
    """
    frequencies = attrs.literal("inv_freq")
    require(types[0].dtype is s32, f"positions must be s32, got {types[0].text}", 0)
    require(
        frequencies.dtype is f32 and len(frequencies.shape) == 1, "inv_freq must be an f32 vector"
    )
    result = tensor(f32, (*types[0].shape, frequencies.shape[0]))
    return (result, result)


def _rope_cost(operands: Types, results: Types, attrs: Attrs) -> tuple[Dim, Dim]:
    """Two products and a sum per element."""
    return 3 * results[0].size, 0


@define(
    "rope",
    "operand cos sin",
    attr("pairs", choice("halves", "neighbors"), "halves"),
    traits=POSITIONAL,
    factors=Notation("b s h D, b s ., b s . -> b s h D"),
    cost=_rope_cost,
)
def _rope(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Rotate pairs of the last dimension of x [B,S,H,D] by the angles of the table, in f32.

    The tables are f32 [B,S,R/2]: the first R elements of a head are rotated, the rest stays. Pair i
    is (i, i + R/2), or with ``pairs=neighbors`` (2i, 2i + 1).

    Example:
        %q = rope(%x, %cos, %sin) : f32[B,S,2,4]
    """
    float_operand(types)
    rank_of(types, 0, 4, "x")
    rank_of(types, 1, 3, "the table")
    b, s, _, d = types[0].shape
    half = types[1].shape[2]
    table = tensor(f32, (b, s, half))
    _like(types, 1, table)
    fits = isinstance(d, int) and isinstance(half, int) and 2 * half <= d
    require(fits, f"{half} pairs do not fit into heads of {d}", 1)
    _like(types, 2, table)
    return (types[0],)


@define(
    "key_positions",
    "lengths",
    attr("attended", DIM),
    traits=POSITIONAL,
    factors=Notation("b -> b C"),
)
def _key_positions(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The position in each of the first C slots of a plain cache row: c, and -1 for none.

    Slot c of row b holds position c if ``c < lengths[b]``.

    Example:
        %p = key_positions(%lengths) attended=C : s32[B,C]
    """
    rank_of(types, 0, 1, "lengths")
    _like(types, 0, tensor(s32, types[0].shape))
    return (tensor(s32, (*types[0].shape, attrs.dim("attended"))),)


@define(
    "attention_mask",
    "positions key_positions",
    attr("window", INTEGER, 0),
    attr("chunk", INTEGER, 0),
    traits=POSITIONAL,
    factors=Notation("b s, b c -> b s c", slots="c"),
)
def _attention_mask(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The cache slots each token may read: ``0 <= key_positions[b,c] <= positions[b,s]``.

    ``key_positions`` are the positions that the attended slots of a row hold, in any order; a
    negative one is that of an empty slot. A padding token has position -1 and so reads nothing.
    With a ``window`` above 0 a token reads that many positions at most:
    ``key_positions[b,c] > positions[b,s] - window``. With a ``chunk`` above 0 it reads positions of
    its own chunk only: ``key_positions[b,c] // chunk == positions[b,s] // chunk``.

    Example:
        %m = attention_mask(%positions, %keys) : pred[B,S,C]
    """
    rank_of(types, 0, 2, "positions")
    _like(types, 0, tensor(s32, types[0].shape))
    rank_of(types, 1, 2, "key_positions")
    attended = types[1].shape[1]
    _like(types, 1, tensor(s32, (types[0].shape[0], attended)))
    require_extent(attrs)
    return (tensor(pred, (*types[0].shape, attended)),)


def require_extent(attrs: Attrs) -> None:
    """Refuse a window or a chunk that is negative, of a mask."""
    require(attrs.integer("window") >= 0, f"a window of {attrs.integer('window')} slots")
    require(attrs.integer("chunk") >= 0, f"a chunk of {attrs.integer('chunk')} positions")


@define(
    "key_distance",
    "positions",
    attr("attended", DIM),
    traits=POSITIONAL,
    factors=Notation("b s -> b s C"),
)
def _key_distance(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Distance of each cache slot from each token: ``c - positions[b,s]`` as f32, 0 for its own.

    Example:
        %d = key_distance(%positions) attended=C : f32[B,S,C]
    """
    rank_of(types, 0, 2, "positions")
    _like(types, 0, tensor(s32, types[0].shape))
    return (tensor(f32, (*types[0].shape, attrs.dim("attended"))),)


def _by_rows(
    indexed: str,
    in_place: str,
    special: str = "",
    slots: str = "",
    given: Mapping[str, int] | None = None,
    reduction: Mapping[str, str] | None = None,
) -> FactorRule:
    """Rows ``in_place`` are the rows of the call; ``indexed`` rows are selected by number."""
    own, sizes = special or "r", given or {}
    rules = {
        "any": Notation(indexed, reduction or {}, special=own, slots=slots, given=sizes),
        "in_place": Notation(in_place, special=own, slots=slots, given=sizes),
    }

    def rule(operands: Types, results: Types, attrs: Attrs) -> Factors:
        return rules[attrs.text("rows")](operands, results, attrs)

    return rule


# A read of rows by number is a sum over ranks: each row is one rank's, zeros on the others.
_READ_SUM = {"r": "add"}
_READ_ALL = _by_rows(
    "r c k d, b -> b c k d", "r c k d, r -> r c k d", slots="c", reduction=_READ_SUM
)
_READ_FIRST = _by_rows("r . k d, b -> b C k d", "r . k d, r -> r C k d", reduction=_READ_SUM)


def _read_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """Slots may be split where all of them are read, or the first of each part."""
    parts = attrs.integer("parts")
    if parts > 1:
        texts = "r pM k d, b -> b pC k d", "r pM k d, r -> r pC k d"
        rule = _by_rows(*texts, slots="p", given={"p": parts}, reduction=_READ_SUM)
        return rule(operands, results, attrs)
    every = operands[0].shape[1] == attrs.dim("attended")
    return (_READ_ALL if every else _READ_FIRST)(operands, results, attrs)


@define(
    "cache_read",
    "cache seq_ids",
    attr("attended", DIM),
    ROWS,
    attr("parts", INTEGER, 1),
    traits=PARTIAL_READ,
    factors=_read_factors,
)
def _cache_read(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The first C slots of the cache rows ``seq_ids``: [R,M,K,D] -> [B,C,K,D].

    ``rows=in_place`` is the caller's promise that row b is ``b`` or idle. The values read for an
    idle row (``seq_ids[b] == R``) are undefined. A row of several equal ``parts`` is read in each
    of them: the first C / parts slots of a part, one part after the other.

    Example:
        %k = cache_read(%cache, %seq_ids) attended=C : f32[B,C,2,4]
    """
    rank_of(types, 0, 4, "the cache")
    rank_of(types, 1, 1, "seq_ids")
    _like(types, 1, tensor(s32, types[1].shape))
    rows, slots, heads, size = types[0].shape
    if attrs.text("rows") == "in_place":
        require(types[1].shape[0] == rows, f"in place needs B = R, got {types[1].shape[0]}", 1)
    attended = attrs.dim("attended")
    if isinstance(attended, int) and isinstance(slots, int):
        require(0 <= attended <= slots, f"attends to {attended} slots of {slots}", 0)
    parts = attrs.integer("parts")
    if parts != 1:
        sizes = [size for size in (slots, attended) if isinstance(size, int)]
        whole = parts > 1 and len(sizes) == 2 and not any(size % parts for size in sizes)
        require(whole, f"{attended} slots of {slots} are not {parts} equal parts", 0)
    shape = (types[1].shape[0], attended, heads, size)
    return (tensor(types[0].dtype, shape),)


@define(
    "kv_update",
    "cache new seq_ids slots",
    ROWS,
    traits=(*POSITIONAL, Trait.DATA_MOVEMENT, UpdatesPart(1)),
    factors=_by_rows(
        "r m k d, B S k d, B, B S -> r m k d",
        "r m k d, r S k d, r, r S -> r m k d",
        special="rm",
        slots="m",
    ),
)
def _kv_update(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The cache [R,M,K,D] with ``new`` [B,S,K,D] written at rows ``seq_ids``, ``slots`` [B,S].

    A write outside the cache (slot -1 of a padding token, row R of an idle row) is dropped;
    nothing is ever clamped. A plain row keeps position p in slot p; other layouts compute slots
    from positions.

    Example:
        %c = kv_update(%cache, %new, %seq_ids, %slots) : f32[R,M,2,4]
    """
    cache, new = types[0], types[1]
    rank_of(types, 0, 4, "the cache")
    rank_of(types, 1, 4, "new")
    _like(types, 1, tensor(cache.dtype, (*new.shape[:2], *cache.shape[2:])))
    _like(types, 2, tensor(s32, new.shape[:1]))
    _like(types, 3, tensor(s32, new.shape[:2]))
    if attrs.text("rows") == "in_place":
        require(new.shape[0] == cache.shape[0], f"in place needs B = R, got {new.shape[0]}", 1)
    return (cache,)


@define(
    "last_token",
    "operand positions lengths",
    traits=PARTIAL_READ,
    factors=Notation("b s e, b s, b -> b e", {"s": "add"}, special="s"),
)
def _last_token(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Of x [B,S,E], each row's token at position ``lengths - 1``: [B,E]; 0 where there is none.

    A call of one token a row (S = 1) gives that token, also of an idle row.

    Example:
        %y = last_token(%x, %positions, %lengths) : f32[B,4]
    """
    float_operand(types)
    rank_of(types, 0, 3, "x")
    b, s, e = types[0].shape
    _like(types, 1, tensor(s32, (b, s)))
    _like(types, 2, tensor(s32, (b,)))
    return (tensor(types[0].dtype, (b, e)),)


def _cost(operands: Types, results: Types, attrs: Attrs) -> tuple[Dim, Dim]:
    """Four operations an element for the norm; a comparison and a quotient for the numbers."""
    return 6 * operands[0].size, product(operands[0].shape[:-1])


@define(
    "rms_norm_quantize",
    "operand weight",
    attr("epsilon", NUMBER),
    attr("dtype", ELEMENT),
    attr("limit", NUMBER),
    traits=(Trait.COMPOSITE,),
    factors=Notation("* E, E -> * E, *"),
    cost=_cost,
)
def _rms_norm_quantize(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """``quantize(rms_norm(operand, weight))`` over the last dimension: 8-bit rows, f32 scales.

    The norm is rounded as ``rms_norm`` rounds it; ``limit`` is that of ``quantize``.

    Example:
        %q, %s = rms_norm_quantize(%x, %w) epsilon=1e-05 dtype=s8 limit=127.0 : s8[B,S,4], f32[B,S]
    """
    float_operand(types)
    float_operand(types, 1)
    x, weight, dtype = types[0], types[1], attrs.element("dtype")
    require(x.rank >= 1, f"needs a dimension to normalize, got {x.text}", 0)
    wanted = tensor(weight.dtype, x.shape[-1:])
    require(weight is wanted, f"needs {wanted.text}, got {weight.text}", 1)
    fits = dtype.bits == 8 and (dtype.is_float or lowest(dtype) < 0)
    require(fits, f"needs an 8-bit type with a sign, got {dtype.name}")
    limit = attrs.number("limit")
    require(
        0 < limit <= -lowest(dtype),
        f"limit={limit} is not in (0, {-lowest(dtype)}], the range of {dtype.name}",
    )
    return tensor(dtype, x.shape), tensor(f32, x.shape[:-1])
