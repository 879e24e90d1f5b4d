"""Raise attention over the cache and the new tokens apart, under one softmax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.passes.core import NoMatch, rule
from graphgen.passes.raising.attention import attention_of
from graphgen.passes.raising.attention_dims import AttentionPart, part_of
from graphgen.passes.raising.axes import (
    UnlikeError,
    beneath,
    first_that_fits,
    followed,
    matched,
    product_of,
    reduced,
)
from graphgen.passes.raising.row_order import Axis, Followed
from graphgen.passes.raising.softmax import Scores, scores_of
from graphgen.pattern import apply, variables

_P, _Q, _S, _T, _X, _TOP = variables("p q s t x top")
_QUOTIENT = (_P + _Q) / (_S + _T)
_POWER = apply("exponential", _X - _TOP)
_LARGER = apply("maximum", _S, _T)


@rule("divide")
def raise_split_attention(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``(exp(s - m) u + exp(t - m) v) / (sum exp(s - m) + sum exp(t - m))`` is attention."""
    root = followed(op.result)
    none = UnlikeError("it is not a sum of two products over a sum of two", op.result, 0)

    def attention(way: tuple[Mapping[str, Followed], object]) -> Value:
        found, _ = way
        (s, u, top), (t, v, limit) = (_scores(found[p], found[s]) for p, s in ("ps", "qt"))
        one, other = part_of(s, *u, root, t), part_of(t, *v, root, s)
        if top != limit:
            raise UnlikeError("the parts do not subtract one maximum", op.result, 18)
        if _read(one) != _read(other) or any(p.scores.cap or p.scores.biases for p in (one, other)):
            raise UnlikeError("the parts are not of one query, scaled alike", op.result, 19)
        return attention_of(b, root, [one, other])

    try:
        return [first_that_fits(matched(root, _QUOTIENT), attention, none)]
    except UnlikeError as error:
        return error.refusal


# The scores of one part, its values with the axis of its slots, and the maximum subtracted.
_Scores = tuple[Scores, tuple[Followed, Axis], Followed]


def _scores(summed: Followed, total: Followed) -> _Scores:
    """One part, of its product and its sum (:class:`UnlikeError`)."""
    product = product_of(beneath(summed))
    none = UnlikeError("a part is not a product with exponentials", summed.value, 1)
    if product is None or len(product.summed) > 1:
        raise none
    # One slot has no axis in the operands.
    slots = product.summed[0] if product.summed else Axis(1)

    def part(sides: tuple[Followed, Followed]) -> _Scores:
        weights, values = beneath(sides[0]), sides[1]
        found = next((found for found, _ in matched(weights, _POWER)), None)
        if found is None:
            raise none
        scores, top = beneath(found["x"]), beneath(found["top"])
        if not _is_reduced(total, "add", slots, weights):
            raise UnlikeError("a part is not summed along its slots", weights.value, 2)
        tops = (found["s"] for found, _ in matched(top, _LARGER))
        if not any(_is_reduced(each, "maximum", slots, scores) for each in tops):
            raise UnlikeError("the value subtracted is not the largest score", top.value, 3)
        return scores_of(Scores(scores)), (values, slots), top

    return first_that_fits(product.either(), part, none)


def _is_reduced(value: Followed, kind: str, slots: Axis, of: Followed) -> bool:
    """Test whether a value is the reduction of another along the slots."""
    found = reduced(beneath(value), kind, slots)
    return found is not None and beneath(found[0]) == of


def _read(part: AttentionPart) -> tuple[object, ...]:
    """The query of a part, its axes and its factors, in which both parts are alike."""
    query, scores = part.query, part.scores
    dims = [None if dim == (part.size,) else dim for dim in query.dims]
    roles = (part.rows, part.tokens, part.heads, part.group)
    places = [axis if axis in query.axes else None for axis in roles]
    return query.value, dims, places, scores.factor, scores.steps
