"""Decomposition of ``accept``: speculative sampling over lists of candidates."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.composites.drawing import draw
from graphgen.composites.registry import decomposition
from graphgen.ir import Attrs, Value, tensor
from graphgen.ir.dtype import f32, s32


@decomposition
def accept(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """Accept a proposal while each before it is accepted, then draw what comes in its place."""
    proposals, limits, ids, target, draft_ids, drafted, random = operands
    rows, places, count = target.shape
    assert isinstance(places, int)
    accepting, drawing = (
        b.reshape(b.slice_dim(random, 2, i, i + 1), (rows, places)) for i in range(2)
    )
    before = b.slice_dim(target, 1, 0, places - 1)
    ids_before = b.slice_dim(ids, 1, 0, places - 1)
    p, q = _of(b, proposals, ids_before, before), _of(b, proposals, draft_ids, drafted)
    right = b.compare(b.slice_dim(accepting, 1, 0, places - 1) * q, p, "LT")
    accepted = _leading(b, right, limits)
    left = _residual(b, (ids_before, before), (draft_ids, drafted))
    last = b.slice_dim(target, 1, places - 1, places)
    left = b.select(_at_limit(b, limits, target), target, b.concatenate([left, last], 1))
    flat = (rows * places, count)
    drawn = draw(
        b, b.reshape(left, flat), b.reshape(ids, flat), b.reshape(drawing, (rows * places,))
    )
    return _answers(b, proposals, b.reshape(drawn, (rows, places)), accepted, limits)


def _of(b: Builder, tokens: Value, ids: Value, probabilities: Value) -> Value:
    """Probabilities f32 [B,n] of tokens [B,n] among candidates [B,n,K]."""
    same = b.compare(ids, b.broadcast_in_dim(tokens, ids.shape, [0, 1]), "EQ")
    return b.reduce(b.select(same, probabilities, _zeros(b, probabilities)), [2], "add")


def _leading(b: Builder, right: Value, limits: Value) -> Value:
    """Number s32 [B] of true elements at the front of each row that its limit leaves room for."""
    rows, count = right.shape
    assert isinstance(count, int)
    room = b.broadcast_in_dim(limits - b.full(1, limits.type), right.shape, [0])
    here = b.binary("and", right, b.compare(b.iota(s32, right.shape, 1), room, "LT"))
    found, alive = b.full(0, limits.type), None
    for place in range(count):
        column = b.reshape(b.slice_dim(here, 1, place, place + 1), (rows,))
        alive = column if alive is None else b.binary("and", alive, column)
        found = found + b.convert(alive, s32)
    return found


def _residual(b: Builder, target: tuple[Value, Value], draft: tuple[Value, Value]) -> Value:
    """``max(p - q, 0)`` [B,n,K] of the target's candidates; p where that is 0 everywhere."""
    (ids, p), (draft_ids, drafted) = target, draft
    shape = (*ids.shape, draft_ids.shape[2])
    same = b.compare(
        b.broadcast_in_dim(ids, shape, [0, 1, 2]),
        b.broadcast_in_dim(draft_ids, shape, [0, 1, 3]),
        "EQ",
    )
    wide = b.broadcast_in_dim(drafted, shape, [0, 1, 3])
    q = b.reduce(b.select(same, wide, _zeros(b, wide)), [3], "add")
    left = b.binary("maximum", p - q, _zeros(b, p))
    most = b.broadcast_in_dim(b.reduce(left, [2], "maximum"), p.shape, [0, 1])
    return b.select(b.compare(most, _zeros(b, most), "GT"), left, p)


def _at_limit(b: Builder, limits: Value, like: Value) -> Value:
    """Pred [B,N,K]: whether a place is the last that its row has room for."""
    last = b.broadcast_in_dim(limits - b.full(1, limits.type), like.shape, [0])
    return b.compare(b.iota(s32, like.shape, 1), last, "EQ")


def _answers(
    b: Builder, proposals: Value, drawn: Value, accepted: Value, limits: Value
) -> Sequence[Value]:
    """The accepted tokens of each row, then the drawn one, then -1; and how many there are."""
    none = b.full(-1, drawn.type)
    rows = drawn.shape[0]
    wide = b.concatenate([proposals, b.full(-1, tensor(s32, (rows, 1)))], 1)
    places, count = b.iota(s32, drawn.shape, 1), b.broadcast_in_dim(accepted, drawn.shape, [0])
    tokens = b.select(b.compare(places, count, "LT"), wide, none)
    tokens = b.select(b.compare(places, count, "EQ"), drawn, tokens)
    takes = b.compare(limits, b.full(0, limits.type), "GT")
    tokens = b.select(b.broadcast_in_dim(takes, drawn.shape, [0]), tokens, none)
    made = accepted + b.full(1, accepted.type)
    return [tokens, b.select(takes, made, b.full(0, made.type))]


def _zeros(b: Builder, like: Value) -> Value:
    return b.full(0.0, tensor(f32, like.shape))
