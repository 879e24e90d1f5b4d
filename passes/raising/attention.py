"""Raise attention: two products with a softmax between, in any order of dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import f32, pred
from graphgen.passes.core import NoMatch, rule
from graphgen.passes.raising.attention_dims import AttentionPart, part_of
from graphgen.passes.raising.axes import (
    UnlikeError,
    arranged,
    beneath,
    first_that_fits,
    followed,
    product_of,
)
from graphgen.passes.raising.matchers import placed
from graphgen.passes.raising.row_order import Axis, Followed
from graphgen.passes.raising.softmax import Scores, nearly_softmax, scores_of, weights_of
from graphgen.pattern.see_through import plain


@rule("dot_general")
def raise_attention(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``softmax(mask(q k)) v`` is attention; keys that are repeated for each query are not."""
    root = followed(op.result)
    product = product_of(root)
    none = NoMatch("no operand is a softmax", op.result)
    if product is None or len(product.summed) != 1:
        return none

    def attention(sides: tuple[Followed, Followed]) -> Value:
        weights, values = sides
        (slots,) = product.summed
        found = weights_of(weights, slots)
        if found is None:
            raise UnlikeError(none.reason, op.result, 0)
        part = part_of(scores_of(Scores(found[0])), values, slots, root)
        return attention_of(b, root, [part], found[1])

    try:
        made = first_that_fits(product.either(), attention, UnlikeError(none.reason, op.result, 0))
    except UnlikeError as error:
        near = [miss for side, _ in product.either() if (miss := nearly_softmax(side))]
        return near[0] if near and not error.depth else error.refusal
    return [made]


def attention_of(
    b: Builder, root: Followed, parts: Sequence[AttentionPart], sinks: Followed | None = None
) -> Value:
    """Build the composite, and lay out its result as ``root`` (:class:`UnlikeError`).

    Args:
        b: the builder.
        root: the value that is replaced.
        parts: parts of the cache positions in order; all of one query.
        sinks: scores of a slot without a value.
    """
    part, scores = parts[0], parts[0].scores
    sides = [_of_one_type(each) for each in parts]
    if len({side.value.dtype for each in sides for side in each}) > 1:
        reason = "queries, keys and values are of different types"
        raise UnlikeError(reason, root.value, 15)
    if sinks is not None and not {*sinks.axes} <= {part.heads, part.group}:
        reason = "the slot without a value differs in more than heads"
        raise UnlikeError(reason, root.value, 16)
    outer = (part.rows, part.tokens, part.heads, part.group)
    heads = [axis for axis in outer[2:] if axis in part.query.axes] or [part.heads]
    q = arranged(b, sides[0][0], (part.rows, part.tokens, *heads, part.size))
    q = _merged(b, q, 2) if len(heads) > 1 else q
    for name, number in scores.steps:
        number = b.convert(b.reshape(number, ()), q.dtype)
        q = b.binary(name, q, b.broadcast_in_dim(number, q.shape, []))
    # The composite divides by the cap itself.
    q = q * scores.cap if scores.cap and not scores.scaled else q
    k, v = _keys_and_values(b, parts, sides)
    terms = _bias(b, part)
    if sinks is not None:
        each = arranged(b, sinks, (part.heads, part.group))
        terms.append(b.convert(_merged(b, each, 0), f32))
    made = b.attention(q, k, v, _mask(b, parts), scores.factor, *terms, softcap=scores.cap)
    whole = (*outer, part.width)
    # Dimensions of size 1 are those of roles that have no axis, in order.
    units = iter([axis for axis in whole if axis not in root.axes])
    order = [dim[0] if dim else next(units, Axis(1)) for dim in root.dims]
    kept = [axis for axis in whole if axis in order]
    made = b.reshape(made, [axis.size for axis in kept])
    return b.convert(placed(b, made, kept, order, root.value.shape), root.value.dtype)


def _merged(b: Builder, value: Value, dim: int) -> Value:
    """The value with a dimension and the next as one."""
    shape = value.shape
    return b.reshape(value, (*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :]))


def _of_one_type(part: AttentionPart) -> tuple[Followed, Followed, Followed]:
    """Operands of one type, if necessary those before their conversions."""
    sides = (part.query, part.keys, part.values)
    if len({side.value.dtype for side in sides}) == 1:
        return sides
    q, k, v = (Followed(plain(side.value), side.dims) for side in sides)
    return q, k, v


def _keys_and_values(
    b: Builder, parts: Sequence[AttentionPart], sides: Sequence[tuple[Followed, Followed, Followed]]
) -> tuple[Value, Value]:
    """Keys and values [B,C,K,D] of all parts; heads that are repeated for queries once."""
    given = [(side, part) for part, (_, *both) in zip(parts, sides, strict=True) for side in both]
    once = [_once(side, part.heads) for side, part in given]
    if len({heads.size for _, heads in once}) > 1:
        once = [(side, part.heads) for side, part in given]
    made: list[Value] = []
    for index, ((side, part), (found, heads)) in enumerate(zip(given, once, strict=True)):
        last = part.width if index % 2 else part.size
        value = arranged(b, found, (part.rows, part.slots, heads, last))
        made.append(b.convert(value, side.value.dtype))
    return _joined(b, made[::2], 1), _joined(b, made[1::2], 1)


def _once(found: Followed, heads: Axis) -> tuple[Followed, Axis]:
    """Undo the repetition of each key-value head for its query heads: keys, and their heads."""
    under = beneath(found)
    if heads not in under.axes:
        return under, Axis(1)
    op = under.value.producer("reshape")
    for size in op.operands[0].shape if op is not None else ():
        if isinstance(size, int) and isinstance(heads.size, int) and 1 < size < heads.size:
            each, again = Axis(size), Axis(heads.size // size)
            dims = tuple((each, again) if dim == (heads,) else dim for dim in under.dims)
            inner = beneath(Followed(under.value, dims))
            if heads.size % size == 0 and each in inner.axes and again not in inner.axes:
                return inner, each
    return under, heads


def _mask(b: Builder, parts: Sequence[AttentionPart]) -> Value:
    """The conjunction of the masks: [B,S,C], or [B,H,S,C] if one differs from head to head."""
    masks = [mask for part in parts for mask, _ in part.scores.masks]
    per_head = any(axis in mask.axes for mask in masks for axis in (parts[0].heads, parts[0].group))
    made: list[Value] = []
    for part in parts:
        shown = [
            b.unary("not", mask) if hides else mask
            for found, hides in part.scores.masks
            for mask in [_over_scores(b, found, part, per_head=per_head)]
        ]
        if not shown:
            true = Followed(b.literal(True, pred), ())
            shown = [_over_scores(b, true, part, per_head=per_head)]
        made.append(reduce(lambda one, other: b.binary("and", one, other), shown))
    return _joined(b, made, 3 if per_head else 2)


def _joined(b: Builder, values: Sequence[Value], dim: int) -> Value:
    return values[0] if len(values) == 1 else b.concatenate(values, dim)


def _bias(b: Builder, part: AttentionPart) -> list[Value]:
    """The sum of the biases, f32 [B,H,S,C]; empty for none."""
    found: list[Value] = []
    for bias, factor in part.scores.biases:
        value = b.convert(bias.value, f32)
        value = value if factor == 1 else value * factor
        each = _over_scores(b, Followed(value, bias.dims), part, per_head=True)
        found = [each if not found else b.add(found[0], each)]
    return found


def _over_scores(b: Builder, value: Followed, part: AttentionPart, *, per_head: bool) -> Value:
    """Repeat a value to [B,S,C], or [B,H,S,C]."""
    heads = (part.heads, part.group) if per_head else ()
    each = arranged(b, value, (part.rows, *heads, part.tokens, part.slots))
    return _merged(b, each, 1) if per_head else each
