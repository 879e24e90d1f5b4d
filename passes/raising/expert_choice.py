"""Match the experts of a token: indices of a ``top_k``, and weights spread over all experts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from graphgen.build import Builder
from graphgen.ir import Dim, Value
from graphgen.ir.dtype import f32
from graphgen.passes.raising.axes import (
    Axis,
    Followed,
    arranged,
    beneath,
    counts,
    factors_of,
    matched,
    product_of,
    reduced,
)
from graphgen.passes.raising.pattern_rule import logistic
from graphgen.pattern import apply, number, related, variables
from graphgen.pattern.see_through import literal


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
    for inner, numbers in matched(found, _WITHIN):
        # Indices of a top_k are within 0..E-1 already.
        size, last = numbers.get("size", experts), numbers.get("last")
        if size == experts and last in (None, experts - 1):
            return chosen_of(inner["x"], experts)
    found = beneath(found)
    op = found.value.producer("convert")
    if op is not None and op.operands[0].dtype.is_integer and found.value.dtype.bits >= 32:
        # So are they in any such type.
        return chosen_of(Followed(op.operands[0], found.dims), experts)
    op = found.value.producer("top_k")
    whole = op is not None and found.value is op.results[1] and op.operands[0].shape[-1] == experts
    return found if whole else None


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
    summed = reduced(found, "add")
    if summed is None:
        return None
    inside, chosen = beneath(summed[0]), summed[1]
    for hot, weights in factors_of(inside):
        indices, under = _one_hot(hot, experts), beneath(weights)
        if indices is not None and experts not in under.axes:
            return SpreadWeights(indices, under, chosen)
    return _selected(inside, experts, chosen)


def _written(found: Followed, experts: Axis) -> SpreadWeights | None:
    """Match w [t,k] written at i [t,k] into zeros, or its logistic function into ``-inf``."""
    outer = next((inner["x"] for inner, _ in matched(found, _LOGISTIC)), None)
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
    indices, size = chosen_of(expert, experts.size), row.value.shape[0]
    moved = (inner["x"] for inner, numbers in matched(row, _MOVED) if numbers["size"] == size)
    if indices is None or not counts(next(moved, row), row.dims[0]):
        return None
    return SpreadWeights(indices, beneath(Followed(weights, dims)), chosen, outer is not None)


def _selected(found: Followed, experts: Axis, chosen: Axis) -> SpreadWeights | None:
    """Match ``select(i == e, w, 0)``."""
    for inner, _ in matched(found, _SELECTED):
        indices, weights = _chosen(inner, experts), beneath(inner["weights"])
        if indices is not None and experts not in weights.axes:
            return SpreadWeights(indices, weights, chosen)
    return None


def _one_hot(found: Followed, experts: Axis) -> Followed | None:
    """Match ``convert(i == e)``: the indices."""
    ways = (_chosen(inner, experts) for inner, _ in matched(found, _ONE_HOT))
    return next((indices for indices in ways if indices is not None), None)


def _chosen(found: Mapping[str, Followed], experts: Axis) -> Followed | None:
    """The indices x that are compared with the numbers of the experts."""
    return chosen_of(found["x"], experts.size) if counts(found["run"], (experts,)) else None


_X, _RUN, _WEIGHTS = variables("x run weights")
# Indices that count from the end are moved up, or all are clamped.
_MOVED = apply("select", related(_X, "LT", 0.0), _X + number("size"), _X)
_WITHIN = _MOVED | apply("clamp", 0.0, _X, number("last"))
_ONE_HOT = apply("convert", related(_X, "EQ", _RUN))
_SELECTED = apply("select", related(_X, "EQ", _RUN), _WEIGHTS, 0.0)
_LOGISTIC = logistic(_X)
