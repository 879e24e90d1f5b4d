"""Raise experts: gated MLPs of each token's chosen matrices, or of all, weighted and summed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import s32
from graphgen.passes.core import NoMatch, rule
from graphgen.passes.raising.axes import (
    Axis,
    Followed,
    Product,
    UnlikeError,
    arranged,
    beneath,
    factors_of,
    first_that_fits,
    followed,
    product_of,
    reduced,
)
from graphgen.passes.raising.expert_choice import SpreadWeights, spread_weights
from graphgen.passes.raising.expert_gating import Gating, gating_of
from graphgen.passes.raising.expert_projections import (
    ExpertTable,
    Projection,
    projection_of,
    projections_of,
)
from graphgen.passes.raising.row_order import added_rows


@dataclass(frozen=True, slots=True)
class WeightedSum:
    """``sum_z (down_z hidden[t,z]) weights[t,z]``: over choices, or over all experts.

    Attributes:
        down: the last projection; its tokens are the hidden features.
        weights: f32 [t,z]; ``None`` where it is not results that are weighted.
        over: the axis z.
        root: the sum.
    """

    down: Projection
    weights: Followed | None
    over: Axis
    root: Followed


@dataclass(frozen=True, slots=True)
class RoutedTokens:
    """Tokens, with the experts of each and their weights.

    Attributes:
        x: the tokens.
        choice: experts and weights.
        modulate: of the op ``experts``.
    """

    x: Followed
    choice: SpreadWeights
    modulate: str = "output"


@rule("reduce", "dot_general", "scatter")
def raise_experts(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """A weighted sum of gated MLPs, of the matrices that a ``top_k`` has chosen, is ``experts``."""
    none = UnlikeError("it sums no results of experts", op.result, 0)
    try:
        return [first_that_fits(_sums(op), lambda found: _experts(op, b, found), none)]
    except UnlikeError as error:
        return error.refusal


def _sums(op: Op) -> Iterator[WeightedSum]:
    """The ways in which an op is a weighted sum of projections (:class:`UnlikeError`)."""
    root = followed(op.result)
    terms: list[tuple[Followed, Followed]] = []
    over: Axis | None = None
    added = added_rows(op, root)
    if added is not None:
        rows, over = added
        terms += factors_of(beneath(rows))
    summed = reduced(root, "add")
    if summed is not None:
        inside, over = summed
        terms += factors_of(beneath(inside))
        if not terms:
            for down in projections_of(inside, over):
                yield WeightedSum(down, None, over, root)
    product = product_of(root)
    if product is not None and len(product.summed) == 2:
        yield from _weighted_before(product, root)
    if product is not None and len(product.summed) == 1:
        (over,) = product.summed
        terms += product.either()
    for term, weights in terms:
        assert over is not None
        for down in projections_of(term, over):
            yield WeightedSum(down, beneath(weights), over, root)


def _weighted_before(product: Product, root: Followed) -> Iterator[WeightedSum]:
    """``sum_ei (hidden[t,e,i] weights[t,e]) down[e,i,h]``: experts weighted before ``down``."""
    for scaled, table in product.either():
        for hidden, weights in factors_of(beneath(scaled)):
            under = beneath(weights)
            experts = [axis for axis in product.summed if axis in under.axes]
            inner = [axis for axis in product.summed if axis not in under.axes]
            rest = [axis for axis in table.axes if axis not in product.summed]
            if len(experts) == len(inner) == len(rest) == 1 and rest[0] not in hidden.axes:
                matrix = ExpertTable(beneath(table), experts[0], None)
                down = Projection(beneath(hidden), matrix, inner[0], rest[0], rest[0])
                yield WeightedSum(down, under, experts[0], root)


def _experts(op: Op, b: Builder, found: WeightedSum) -> Value:
    """The composite of a weighted sum (:class:`UnlikeError`)."""
    down = found.down
    hidden = down.x
    gating = gating_of(hidden)
    gate = projection_of(gating.gate.value, found.over, down.summed)
    other = projection_of(gating.up.value, found.over, down.summed)
    x, choice = _one_token(gate, other, down)
    if {gate.features, other.features} != {down.summed}:
        raise UnlikeError("gate and up do not have the features that down sums", hidden.value, 4)
    parts = (gate, other, down)
    if choice is None or found.weights is None:
        routed = _of_all_experts(found, x, gating, parts)
    else:
        routed = RoutedTokens(x, SpreadWeights(choice, found.weights, found.over))
    tokens = [axis for axis in routed.x.axes if axis is not gate.summed]
    if found.root.axes != (*tokens, down.result):
        raise UnlikeError("features of the result are not its last dimension", op.result, 7)
    made = _built(op, b, gating, routed, tokens, parts)
    return made if made.shape == op.result.shape else b.reshape(made, op.result.shape)


def _of_all_experts(
    found: WeightedSum,
    x: Followed,
    gating: Gating,
    parts: tuple[Projection, Projection, Projection],
) -> RoutedTokens:
    """Tokens that every expert reads, weighted before or after it (:class:`UnlikeError`)."""
    spread = spread_weights(found.weights, found.over) if found.weights is not None else None
    if spread is not None:
        return RoutedTokens(x, spread)
    for plain, weights in factors_of(x) if found.weights is None else ():
        under, spread = beneath(plain), spread_weights(weights, found.over)
        if spread is None or found.over in under.axes:
            continue
        if not gating.keeps_zero or any(part.bias is not None for part in parts):
            reason = "experts make more than zeros of tokens that were not theirs"
            raise UnlikeError(reason, x.value, 6)
        return RoutedTokens(under, spread, "input")
    reason = "experts are not weighted by those that top_k chose"
    raise UnlikeError(reason, (found.weights or x).value, 5)


def _one_token(
    gate: Projection, up: Projection, down: Projection
) -> tuple[Followed, Followed | None]:
    """The tokens of gate and up, and the choice of all three (:class:`UnlikeError`)."""
    if gate.x.value is not up.x.value or gate.tokens != up.tokens:
        raise UnlikeError("gate and up do not read the same tokens", up.x.value, 4)
    if len({part.matrix.choice for part in (gate, up, down)}) > 1:
        raise UnlikeError("gate, up and down are not of the same experts", down.x.value, 4)
    return gate.x, gate.matrix.indices


def _built(
    op: Op,
    b: Builder,
    gating: Gating,
    routed: RoutedTokens,
    tokens: Sequence[Axis],
    parts: tuple[Projection, Projection, Projection],
) -> Value:
    x, choice = routed.x, routed.choice
    gate, up, down = parts
    # An axis of one choice may be left out.
    wanted = {axis for axis in (*tokens, choice.chosen) if axis.size != 1}
    for value in (choice.indices, choice.weights):
        if set(value.axes) != wanted:
            raise UnlikeError(
                "a token does not have one weight for each of its experts", value.value, 6
            )
    if len({part.bias is None for part in parts}) > 1:
        reason = "some products of experts have a bias, and others have none"
        raise UnlikeError(reason, x.value, 8)
    matrices = [
        gate.built(b, (gate.result, gate.summed)),
        up.built(b, (up.result, up.summed)),
        down.built(b, (down.result, down.summed)),
    ]
    flat = arranged(b, x, (*tokens, gate.summed))
    if any(matrix.dtype is not flat.dtype for matrix in matrices):
        raise UnlikeError("experts are of another type than tokens", flat, 8)
    biases = [value for part in parts if (value := part.built_bias(b)) is not None]
    modulated = {"modulate": routed.modulate} if routed.modulate != "output" else {}
    each = (*tokens, choice.chosen)
    return b.op(
        "experts",
        flat,
        b.convert(arranged(b, choice.indices, each), s32),
        choice.built(b, each),
        *matrices,
        *biases,
        **gating.attributes(),
        **modulated,
        dtype=op.result.dtype,
    )
