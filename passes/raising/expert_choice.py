"""Match the experts of a token: indices of a ``top_k``, and weights spread over all experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from graphgen.build import Builder
from graphgen.ir import Dim, Value
from graphgen.ir.dtype import f32
from graphgen.passes.raising.activations import logistic_operand
from graphgen.passes.raising.expert_axes import (
    Axis,
    Followed,
    arranged,
    beneath,
    factors_of,
    product_of,
)
from graphgen.pattern.see_through import integer, literal, spread


class UnlikeError(Exception):
    """The condition that a program does not meet, and the value at fault."""

    def __init__(self, reason: str, at: Value, depth: int) -> None:
        super().__init__(reason)
        self.reason, self.at, self.depth = reason, at, depth


@dataclass(frozen=True, slots=True)
class SpreadWeights:
    """Weights of all experts: of those chosen along ``chosen``, 0 of the others.

    ``logistic`` is still to be applied to ``weights`` where it says so.
    """

    indices: Followed
    weights: Followed
    chosen: Axis
    logistic: bool = False

    def built(self, b: Builder, axes: Sequence[Axis]) -> Value:
        """The weights f32 with one dimension for each axis."""
        found = b.convert(arranged(b, self.weights, axes), f32)
        return b.op("logistic", found) if self.logistic else found


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
    op = found.value.producer("convert")
    if op is not None and op.operands[0].dtype.is_integer and found.value.dtype.bits >= 32:
        # So are they in any such type.
        return chosen_of(Followed(op.operands[0], found.dims), experts)
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
    """Match ``sum_k onehot(i)[t,k,e] w[t,k]``, or w at i; ``None`` for another value [t,e]."""
    found = beneath(found)
    written = _written(found, experts)
    if written is not None:
        return written
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


def _written(found: Followed, experts: Axis) -> SpreadWeights | None:
    """Match w [t,k] written at i [t,k] into zeros, or its logistic function into ``-inf``."""
    outer = logistic_operand(found)
    inside = beneath(found if outer is None else outer)
    op = inside.value.producer("scatter")
    if op is None or inside.value.type.rank != 2 or inside.dims[1] != (experts,):
        return None
    into, places, weights = op.operands
    attrs = op.attrs
    whole = attrs.integers("inserted_window_dims") == (0, 1)
    whole = whole and attrs.integers("scatter_dims_to_operand_dims") == (0, 1)
    joined = places.producer("concatenate")
    if not whole or attrs.integers("update_window_dims") or joined is None:
        return None
    if attrs.text("kind") != "assign" or literal(into) != (-inf if outer is not None else 0.0):
        return None
    vector = attrs.integer("index_vector_dim")
    if (vector, joined.attrs.integer("dimension"), len(joined.operands)) != (2, 2, 2):
        return None
    chosen = Axis(weights.shape[1])
    dims = (inside.dims[0], () if chosen.size == 1 else (chosen,))
    row, expert = [Followed(each, (*dims, ())) for each in joined.operands]
    indices = chosen_of(expert, experts.size)
    if indices is None or not _counts_rows(row):
        return None
    return SpreadWeights(indices, beneath(Followed(weights, dims)), chosen, outer is not None)


def _counts_rows(found: Followed) -> bool:
    """Test whether a value is the place along its first dimension."""
    rows, under = found.dims[0], beneath(found)
    op = under.value.producer("select")
    if op is not None:
        below, moved, kept = op.operands
        if not _counts_from_the_end(below, moved, kept, found.value.shape[0]):
            return False
        return _counts_rows(Followed(kept, under.dims))
    run = under.value.producer("iota")
    return run is not None and under.dims[run.attrs.integer("dimension")] == rows


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
