"""Match the experts of a token: indices of a ``top_k``, and weights spread over all experts."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.analysis.pattern.see_through import integer, literal, spread
from graphgen.ir import Dim, Value
from graphgen.passes.raising.mixtures.followed_axes import (
    Axis,
    Followed,
    beneath,
    factors_of,
    product_of,
)


class UnlikeError(Exception):
    """The condition that a program does not meet, and the value at fault."""

    def __init__(self, reason: str, at: Value, depth: int) -> None:
        super().__init__(reason)
        self.reason, self.at, self.depth = reason, at, depth


@dataclass(frozen=True, slots=True)
class SpreadWeights:
    """Weights of all experts: of those chosen along ``chosen``, 0 of the others."""

    indices: Followed
    weights: Followed
    chosen: Axis


def chosen_of(found: Followed, experts: Dim) -> Followed | None:
    """The indices of a ``top_k`` over as many experts; ``None`` for other numbers.

    ``select(i < 0, i + E, i)``, which counts from the end, is i.
    """
    found = beneath(found)
    op = found.value.producer("select")
    if op is not None:
        _, moved, kept = op.operands
        if not _counts_from_the_end(op.operands[0], moved, kept, experts):
            return None
        return chosen_of(Followed(kept, found.dims), experts)
    op = found.value.producer("clamp")
    if op is not None:
        # Indices of a top_k are within 0..E-1 already.
        low, middle, high = op.operands
        ends = (_number(low), _number(high))
        last = experts - 1 if isinstance(experts, int) else None
        return chosen_of(Followed(middle, found.dims), experts) if ends == (0, last) else None
    op = found.value.producer("top_k")
    whole = op is not None and found.value is op.results[1] and op.operands[0].shape[-1] == experts
    return found if whole else None


def _counts_from_the_end(below: Value, moved: Value, kept: Value, experts: Dim) -> bool:
    compared, added = below.producer("compare"), moved.producer("add")
    if compared is None or added is None or compared.attrs.text("direction") != "LT":
        return False
    own = compared.operands[0] is kept and added.operands[0] is kept
    return own and _number(compared.operands[1]) == 0 and _number(added.operands[1]) == experts


def _number(value: Value) -> int | None:
    return integer(spread(value)[0])


def spread_weights(found: Followed, experts: Axis) -> SpreadWeights | None:
    """Match ``sum_k onehot(i)[t,k,e] w[t,k]``; ``None`` for another value [t,e]."""
    found = beneath(found)
    product = product_of(found)
    if product is not None and len(product.summed) == 1:
        (chosen,) = product.summed
        for hot, weights in product.either():
            indices = _one_hot(hot, experts)
            if indices is not None and experts not in weights.axes:
                return SpreadWeights(indices, beneath(weights), chosen)
    op = found.value.producer("reduce")
    if op is None or op.attrs.text("kind") != "add" or len(op.attrs.integers("dimensions")) != 1:
        return None
    (place,) = op.attrs.integers("dimensions")
    chosen = Axis(op.operands[0].shape[place])
    inside = beneath(
        Followed(op.operands[0], (*found.dims[:place], (chosen,), *found.dims[place:]))
    )
    for hot, weights in factors_of(inside):
        indices, under = _one_hot(hot, experts), beneath(weights)
        if indices is not None and experts not in under.axes:
            return SpreadWeights(indices, under, chosen)
    return _selected(inside, experts, chosen)


def _selected(found: Followed, experts: Axis, chosen: Axis) -> SpreadWeights | None:
    """Match ``select(i == e, w, 0)``."""
    op = found.value.producer("select")
    if op is None or literal(op.operands[2]) != 0:
        return None
    indices = _equal(Followed(op.operands[0], found.dims), experts)
    weights = beneath(Followed(op.operands[1], found.dims))
    if indices is None or experts in weights.axes:
        return None
    return SpreadWeights(indices, weights, chosen)


def _one_hot(found: Followed, experts: Axis) -> Followed | None:
    """Match ``convert(i == e)``: the indices."""
    found = beneath(found)
    op = found.value.producer("convert")
    if op is None:
        return None
    return _equal(Followed(op.operands[0], found.dims), experts)


def _equal(found: Followed, experts: Axis) -> Followed | None:
    found = beneath(found)
    op = found.value.producer("compare")
    if op is None or op.attrs.text("direction") != "EQ":
        return None
    sides = [beneath(Followed(operand, found.dims)) for operand in op.operands]
    for counts, indices in (sides, sides[::-1]):
        run = counts.value.producer("iota")
        if run is not None and counts.dims[run.attrs.integer("dimension")] == (experts,):
            return chosen_of(indices, experts.size)
    return None
