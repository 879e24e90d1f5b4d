"""Recognizing a softmax over the last dimension, and the scores and the mask behind it."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.ir import Value
from passes.raising.peel import either_way, over_rows, plain, scalar, spread

# A score this low has no weight beside any other.
HIDDEN = -1e4


@dataclass(frozen=True, slots=True)
class Scores:
    """What a softmax is taken of.

    Attributes:
        dot: the product of queries and keys.
        factor: each score is multiplied by it.
        divisor: and divided by it.
        mask: where it is false a score is hidden; ``None`` for nowhere.
        at: which dimension of the scores each dimension of the mask is.
    """

    dot: Value
    factor: float = 1.0
    divisor: float = 1.0
    mask: Value | None = None
    at: tuple[int, ...] = (0, 1, 2, 3)


def softmax_of(value: Value) -> Value | None:
    """What ``value`` is the softmax of, along the last dimension."""
    op = plain(value).producer("divide")
    if op is None:
        return None
    raised, total = op.operands
    exponential = plain(raised).producer("exponential")
    rank = raised.type.rank
    if exponential is None or not _is_reduced(total, raised, "add", rank):
        return None
    difference = exponential.operands[0].producer("subtract")
    if difference is None:
        return None
    scores, top = difference.operands
    return scores if _is_reduced(top, scores, "maximum", rank) else None


def _is_reduced(value: Value, of: Value, kind: str, rank: int) -> bool:
    """Whether each row of ``value`` repeats the sum or maximum of that row of ``of``."""
    row = over_rows(value, rank)
    if row is None:
        return False
    row = plain(row)
    limit = row.producer("maximum")
    if limit is not None:
        # JAX keeps the maximum of no numbers from being anything but minus infinity.
        rows = [a for a, number in either_way(limit) if scalar(number) == float("-inf")]
        row = plain(rows[0]) if rows else row
    op = row.producer("reduce")
    if op is None or op.attrs.text("kind") != kind:
        return False
    last = op.attrs.integers("dimensions") == (rank - 1,)
    return last and plain(op.operands[0]) is plain(of)


def scores_of(value: Value) -> Scores | None:
    """Take scale and mask off scores."""
    value = plain(value)
    masked = value.producer("select")
    if masked is not None:
        mask, shown, hidden = masked.operands
        number = scalar(hidden)
        if number is None or number > HIDDEN:
            return None
        return _scaled(shown, mask)
    shifted = value.producer("add")
    if shifted is not None:
        for shown, bias in either_way(shifted):
            source, at = spread(plain(bias))
            mask = _mask_of(source)
            if mask is not None:
                return _scaled(shown, mask, at)
        return None
    return _scaled(value, None)


def _mask_of(bias: Value) -> Value | None:
    """The mask of a value that is 0 where it is true and very low elsewhere."""
    source = plain(bias)
    op = source.producer("select")
    if op is None:
        return None
    mask, shown, hidden = op.operands
    low = scalar(hidden)
    fits = scalar(shown) == 0 and low is not None and low <= HIDDEN
    return mask if fits else None


def _scaled(value: Value, mask: Value | None, at: tuple[int, ...] = (0, 1, 2, 3)) -> Scores | None:
    value = plain(value)
    product = value.producer("multiply")
    if product is not None:
        for dot, number in either_way(product):
            factor = scalar(number)
            if factor is not None and plain(dot).producer("dot_general"):
                return Scores(plain(dot), factor=factor, mask=mask, at=at)
    quotient = value.producer("divide")
    if quotient is not None:
        divisor = scalar(quotient.operands[1])
        dot = plain(quotient.operands[0])
        if divisor is not None and dot.producer("dot_general"):
            return Scores(dot, divisor=divisor, mask=mask, at=at)
    return Scores(value, mask=mask, at=at) if value.producer("dot_general") else None
