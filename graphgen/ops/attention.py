"""The attention composite: optional operands, type inference, factors and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from graphgen.ir import Attrs, Dim, TensorType, tensor
from graphgen.ir.dtype import f32, pred
from graphgen.ops.attr_types import NUMBER
from graphgen.ops.factors import Factors, Notation
from graphgen.ops.opdef import attr, define, float_operand, rank_of, require
from graphgen.ops.traits import Trait, Types


class _Ranked(Protocol):
    @property
    def shape(self) -> tuple[Dim, ...]: ...


class AttentionTerms(NamedTuple):
    """Indices of the optional operands of ``attention``; ``None`` for an absent one.

    Attributes:
        slopes: f32 [H], always with ``distance``.
        distance: f32 [B,S,C].
        bias: f32 [B,H,S,C].
        sinks: f32 [H].
    """

    slopes: int | None = None
    distance: int | None = None
    bias: int | None = None
    sinks: int | None = None


def attention_terms(operands: Sequence[_Ranked]) -> AttentionTerms:
    """Find the optional operands by their ranks; each choice of them has other ranks.

    Raises:
        InferError: the ranks are those of no attention.
    """
    ranks = [len(operand.shape) for operand in operands]
    at = 4
    slopes = distance = bias = sinks = None
    if ranks[at : at + 2] == [1, 3]:
        slopes, distance, at = at, at + 1, at + 2
    if ranks[at : at + 1] == [4]:
        bias, at = at, at + 1
    if ranks[at : at + 1] == [1]:
        sinks, at = at, at + 1
    what = (
        "optional are slopes [H] with distance [B,S,C], a bias [B,H,S,C], sinks [H]; in this order"
    )
    require(at == len(ranks), what, at)
    return AttentionTerms(slopes, distance, bias, sinks)


def head_dimensions(operands: Sequence[_Ranked]) -> dict[int, int]:
    """The dimension of query heads of each operand that has one, key and value left out."""
    terms = attention_terms(operands)
    found = {0: 2}
    if len(operands[3].shape) == 4:
        found[3] = 1
    own = ((terms.slopes, 0), (terms.bias, 1), (terms.sinks, 0))
    return found | {index: dim for index, dim in own if index is not None}


_FACTORS = {"slopes": "kg", "distance": "b s c", "bias": "b kg s c", "sinks": "kg"}


def _factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    return _notation(operands, "b s kg W", {"c": "add"}, "c")(operands, results, attrs)


def _part_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    made = "b s kg, b s kg, b s kg W"
    return _notation(operands, made, {}, "")(operands, results, attrs)


def _notation(
    operands: Types, results: str, reduction: Mapping[str, str], special: str
) -> Notation:
    """The factors of attention; slots c are ``special``, or must be whole."""
    mask = "b s c" if operands[3].rank == 3 else "b kg s c"
    terms = attention_terms(operands)
    given = [_FACTORS[name] for name, at in terms._asdict().items() if at is not None]
    text = f"{', '.join(['b s kg D', 'b c k D', 'b c k W', mask, *given])} -> {results}"
    text = text if special else text.replace("c", "C")
    return Notation(text, reduction, special, slots=special)


def _cost(operands: Types, results: Types, attrs: Attrs) -> tuple[Dim, Dim]:
    """Scores and their sum over values: 2·B·S·H·C·D each; one exponential per score."""
    rows, active, heads, size = operands[0].shape
    scores = rows * active * heads * operands[1].shape[1]
    terms = attention_terms(operands)
    # A linear bias adds a product and a sum, another bias a sum, a cap a quotient and a product.
    more = 2 * (terms.slopes is not None) + (terms.bias is not None)
    capped = attrs.number("softcap") != 0
    widths = size + results[0].shape[3]
    flops = 2 * scores * widths + (3 + more + 2 * capped) * scores
    sinks = rows * active * heads if terms.sinks is not None else 0
    return flops, scores * (1 + capped) + sinks


@define(
    "attention",
    "query key value mask slopes? distance? bias? sinks?",
    attr("scale", NUMBER),
    attr("softcap", NUMBER, 0.0),
    traits=(Trait.COMPOSITE, Trait.POSITIONAL),
    factors=_factors,
    cost=_cost,
)
def _attention(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Softmax attention of q [B,S,H,D] over keys [B,C,K,D] and values [B,C,K,W]: [B,S,H,W].

    H is a multiple of K: query head h reads key-value head ``h // (H/K)``. The mask is pred [B,S,C]
    or, different from head to head, [B,H,S,C]. Scores and softmax are f32; a masked score is the
    lowest finite f32, so a row with no allowed slot stays finite.

    A score is ``scale * q k``, with a ``softcap`` above 0 then ``softcap * tanh(score / softcap)``
    (Gemma 2), plus what these optional operands add; each may be left out, their ranks differ:

    * ``slopes`` f32 [H] and ``distance`` f32 [B,S,C]: ``slopes[h] * distance[b,s,c]`` (attention
      with linear biases, arXiv 2108.12409);
    * ``bias`` f32 [B,H,S,C], for example the relative positions of T5;
    * ``sinks`` f32 [H]: a score per head of a slot without a value, which takes part in the softmax
      only (GPT-OSS, arXiv 2309.17453).

    Example:
        %o = attention(%q, %k, %v, %m) scale=0.125 : f32[B,S,4,8]
    """
    return (_checked(types, attrs),)


def _checked(types: Sequence[TensorType], attrs: Attrs) -> TensorType:
    """The type of the result of attention on operands that fit together."""
    q, k, v = types[:3]
    float_operand(types)
    for index, name in enumerate(("query", "key", "value")):
        rank_of(types, index, 4, name)
    b, s, h, d = q.shape
    c, heads, width = k.shape[1], k.shape[2], v.shape[3]
    per_head = types[3].rank == 4
    wanted = {
        1: tensor(q.dtype, (b, c, heads, d)),
        2: tensor(q.dtype, (b, c, heads, width)),
        3: tensor(pred, (b, h, s, c) if per_head else (b, s, c)),
    }
    grouped = isinstance(h, int) and isinstance(heads, int) and heads > 0 and h % heads == 0
    require(grouped, f"{h} query heads are not a multiple of {heads} key-value heads", 1)
    require(attrs.number("softcap") >= 0, f"a softcap of {attrs.number('softcap')}")
    terms = attention_terms(types)
    shapes = ((h,), (b, s, c), (b, h, s, c), (h,))
    for index, shape in zip(terms, shapes, strict=True):
        if index is not None:
            wanted[index] = tensor(f32, shape)
    for index, type_ in sorted(wanted.items()):
        require(types[index] is type_, f"needs {type_.text}, got {types[index].text}", index)
    return tensor(q.dtype, (b, s, h, width))


def _part_cost(operands: Types, results: Types, attrs: Attrs) -> tuple[Dim, Dim]:
    return _cost(operands, results[2:], attrs)


@define(
    "attention_part",
    "query key value mask slopes? distance? bias?",
    attr("scale", NUMBER),
    attr("softcap", NUMBER, 0.0),
    traits=(Trait.COMPOSITE, Trait.POSITIONAL),
    factors=_part_factors,
    cost=_part_cost,
)
def _attention_part(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """``attention`` of some of the slots, still to be combined with that of the others.

    Its operands are those of ``attention`` without sinks. The results are f32: per token and head
    the largest score ``m`` [B,S,H], the sum [B,S,H] of ``exp(score - m)``, and the sum [B,S,H,W] of
    ``exp(score - m) * value``. Of several parts, with M the largest of their m, the attention of
    all slots is the sum of ``exp(m - M) * out`` over the sum of ``exp(m - M) * sum``
    (arXiv 2205.14135).

    Example:
        %m, %t, %o = attention_part(%q, %k, %v, %a) scale=0.5 : f32[B,S,4], f32[B,S,4], f32[B,S,4,8]
    """
    terms = attention_terms(types)
    require(terms.sinks is None, "sinks take part once, where parts are combined", terms.sinks)
    whole = _checked(types, attrs)
    row = tensor(f32, whole.shape[:3])
    return (row, row, tensor(f32, whole.shape))
