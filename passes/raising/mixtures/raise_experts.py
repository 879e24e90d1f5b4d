"""Raise experts: gated MLPs of each token's chosen matrices, or of all, weighted and summed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graphgen.analysis.pattern.see_through import scalar
from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import f32, s32
from graphgen.passes.core import NoMatch, no_match, rule
from graphgen.passes.raising.mixtures.chosen_experts import UnlikeError, chosen_of, spread_weights
from graphgen.passes.raising.mixtures.followed_axes import (
    Axis,
    Followed,
    Product,
    arranged,
    beneath,
    factors_of,
    followed,
    product_of,
)

# Activation of ``experts`` by op, and by the approximation of gelu.
_ACTIVATIONS = {"silu": "silu", "logistic": "sigmoid"}
_GELUS = {"none": "gelu", "tanh": "gelu_pytorch_tanh", "sigmoid": "quick_gelu"}


@dataclass(frozen=True, slots=True)
class Matrix:
    """The matrices of experts that a product reads.

    Attributes:
        table: the stack of all, with the axes of experts, of what is summed and of the result.
        experts: the axis of experts of ``table``.
        indices: of the matrix of each token and choice; ``None`` where every one is multiplied.
    """

    table: Followed
    experts: Axis
    indices: Followed | None


@dataclass(frozen=True, slots=True)
class Projection:
    """A product of tokens and matrices of experts.

    Attributes:
        x: the tokens.
        matrix: the matrices.
        summed: the axis of input features.
        result: the axis of output features of the matrices.
        features: those of them that are used, ``part`` of the others where it is given.
        part: start and limit.
    """

    x: Followed
    matrix: Matrix
    summed: Axis
    result: Axis
    features: Axis
    part: tuple[int, int] | None = None

    @property
    def tokens(self) -> tuple[tuple[Axis, ...], ...]:
        """Axes of the dimensions of x, without the one that is summed."""
        return tuple(dim for dim in self.x.dims if dim != (self.summed,))

    def built(self, b: Builder, order: tuple[Axis, Axis]) -> Value:
        """The matrices [E, ...] with the other axes in an order."""
        value = arranged(b, self.matrix.table, (self.matrix.experts, *order))
        if self.part is None:
            return value
        return b.slice_dim(value, 1 + order.index(self.result), *self.part)


@dataclass(frozen=True, slots=True)
class WeightedSum:
    """``sum_z (down_z hidden[t,z]) weights[t,z]``: over choices, or over all experts.

    Attributes:
        down: the last projection; its tokens are the hidden features.
        weights: f32 [t,z].
        over: the axis z.
        root: the sum.
    """

    down: Projection
    weights: Followed
    over: Axis
    root: Followed


@rule("reduce", "dot_general")
def raise_experts(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """A weighted sum of gated MLPs, of the matrices that a ``top_k`` has chosen, is ``experts``."""
    unlike: list[UnlikeError] = []
    try:
        for found in _sums(op):
            try:
                return [_experts(op, b, found)]
            except UnlikeError as error:
                unlike.append(error)
    except UnlikeError as error:
        unlike.append(error)
    if not unlike:
        return NoMatch("it sums no results of experts", op.result)
    nearest = max(unlike, key=lambda error: error.depth)
    return no_match(nearest.reason, nearest.at, depth=nearest.depth)


def _sums(op: Op) -> Iterator[WeightedSum]:
    """The ways in which an op is a weighted sum of projections (:class:`UnlikeError`)."""
    root = followed(op.result)
    terms: list[tuple[Followed, Followed]] = []
    over: Axis | None = None
    if op.name == "reduce":
        dims = op.attrs.integers("dimensions")
        if op.attrs.text("kind") != "add" or len(dims) != 1:
            return
        over = Axis(op.operands[0].shape[dims[0]])
        whole = (*root.dims[: dims[0]], (over,), *root.dims[dims[0] :])
        terms += factors_of(beneath(Followed(op.operands[0], whole)))
    product = product_of(root)
    if product is not None and len(product.summed) == 2:
        yield from _weighted_before(product, root)
    if product is not None and len(product.summed) == 1:
        (over,) = product.summed
        terms += product.either()
    for term, weights in terms:
        assert over is not None
        for down in _projections(term, over):
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
                matrix = Matrix(beneath(table), experts[0], None)
                down = Projection(beneath(hidden), matrix, inner[0], rest[0], rest[0])
                yield WeightedSum(down, under, experts[0], root)


def _experts(op: Op, b: Builder, found: WeightedSum) -> Value:
    """The composite of a weighted sum (:class:`UnlikeError`)."""
    down = found.down
    hidden = down.x
    name, inside, up = _gated(hidden)
    gate = _projection(inside, found.over)
    other = _projection(up, found.over)
    x, choice = _one_token(gate, other, down)
    if {gate.features, other.features} != {down.summed}:
        raise UnlikeError("gate and up do not have the features that down sums", hidden.value, 4)
    indices, weights, chosen = choice, found.weights, found.over
    if indices is None:
        spread = spread_weights(found.weights, found.over)
        if spread is None:
            reason = "experts are not weighted by those that top_k chose"
            raise UnlikeError(reason, found.weights.value, 5)
        indices, weights, chosen = spread.indices, spread.weights, spread.chosen
    if found.root.axes != (*[axis for dim in gate.tokens for axis in dim], down.result):
        raise UnlikeError("features of the result are not its last dimension", op.result, 7)
    made = _built(op, b, name, (x, indices, weights), chosen, (gate, other, down))
    return made if made.shape == op.result.shape else b.reshape(made, op.result.shape)


def _gated(hidden: Followed) -> tuple[str, Followed, Followed]:
    """Activation, its operand and the other factor of what experts sum last."""
    for act, up in factors_of(hidden):
        activation = _activation(act)
        if activation is not None:
            return (*activation, up)
    raise UnlikeError("what experts sum last is not act(gate) * up", hidden.value, 3)


def _one_token(
    gate: Projection, up: Projection, down: Projection
) -> tuple[Followed, Followed | None]:
    """The tokens of gate and up, and the choice of all three (:class:`UnlikeError`)."""
    if gate.x.value is not up.x.value or gate.tokens != up.tokens:
        raise UnlikeError("gate and up do not read the same tokens", up.x.value, 4)
    choices = [part.matrix.indices for part in (gate, up, down)]
    if len({None if one is None else (id(one.value), one.dims) for one in choices}) > 1:
        raise UnlikeError("gate, up and down are not of the same experts", down.x.value, 4)
    return gate.x, choices[0]


def _built(
    op: Op,
    b: Builder,
    activation: str,
    routed: tuple[Followed, Followed, Followed],
    chosen: Axis,
    parts: tuple[Projection, Projection, Projection],
) -> Value:
    x, indices, weights = routed
    gate, up, down = parts
    tokens = [axis for axis in x.axes if axis is not gate.summed]
    for value in (indices, weights):
        if set(value.axes) != {*tokens, chosen}:
            raise UnlikeError(
                "a token does not have one weight for each of its experts", value.value, 6
            )
    matrices = [
        gate.built(b, (gate.result, gate.summed)),
        up.built(b, (up.result, up.summed)),
        down.built(b, (down.result, down.summed)),
    ]
    flat = arranged(b, x, (*tokens, gate.summed))
    if any(matrix.dtype is not flat.dtype for matrix in matrices):
        raise UnlikeError("experts are of another type than tokens", flat, 8)
    return b.op(
        "experts",
        flat,
        b.convert(arranged(b, indices, (*tokens, chosen)), s32),
        b.convert(arranged(b, weights, (*tokens, chosen)), f32),
        *matrices,
        activation=activation,
        dtype=op.result.dtype,
    )


def _activation(found: Followed) -> tuple[str, Followed] | None:
    """The name of an activation and its operand."""
    found = beneath(found)
    op = found.value.op
    if op is None:
        return None
    if op.name == "maximum" and scalar(op.operands[1]) == 0:
        name = "relu"
    elif op.name == "gelu":
        name = _GELUS[op.attrs.text("approximate")]
    elif op.name in _ACTIVATIONS:
        name = _ACTIVATIONS[op.name]
    else:
        return None
    return name, Followed(op.operands[0], found.dims)


def _projection(found: Followed, over: Axis) -> Projection:
    """Tokens times matrices of experts (:class:`UnlikeError`; of depth 0 for what has none)."""
    ways = _projections(found, over)
    if not ways:
        raise UnlikeError("no product of tokens and experts", found.value, 0)
    return ways[0]


def _projections(found: Followed, over: Axis) -> list[Projection]:
    """The ways in which a value is tokens times matrices of experts."""
    found, features, part = _rows(beneath(found))
    product = product_of(beneath(found))
    if product is None or len(product.summed) != 1:
        return []
    (summed,) = product.summed
    ways: list[Projection] = []
    for held, x in product.either():
        matrix = _matrix(beneath(held), over, summed)
        if matrix is None:
            continue
        rest = [axis for axis in matrix.table.axes if axis not in (matrix.experts, summed)]
        if len(rest) == 1 and rest[0] not in x.axes:
            used = features or rest[0]
            ways.append(Projection(beneath(x), matrix, summed, rest[0], used, part))
    return ways


def _rows(found: Followed) -> tuple[Followed, Axis | None, tuple[int, int] | None]:
    """Under a slice of one axis: the value with that axis whole, the axis, and the part."""
    op = found.value.producer("slice")
    if op is None or set(op.attrs.integers("strides")) - {1}:
        return found, None, None
    (source,) = op.operands
    cut = [dim for dim, size in enumerate(source.shape) if size != found.value.shape[dim]]
    if len(cut) != 1 or len(found.dims[cut[0]]) != 1:
        return found, None, None
    (dim,) = cut
    start, limit = (op.attrs.dims(f"{end}_indices")[dim] for end in ("start", "limit"))
    if not isinstance(start, int) or not isinstance(limit, int):
        return found, None, None
    dims = (*found.dims[:dim], (Axis(source.shape[dim]),), *found.dims[dim + 1 :])
    return Followed(source, dims), found.dims[dim][0], (start, limit)


def _matrix(found: Followed, over: Axis, summed: Axis) -> Matrix | None:
    """The stack that a product reads: gathered by chosen experts, or whole."""
    op = found.value.producer("gather")
    if op is None:
        if over in found.axes and summed in found.axes and len(found.axes) == 3:
            return Matrix(found, over, None)
        return None
    table, indices = op.operands
    attrs = op.attrs
    if table.type.rank != 3 or attrs.dims("slice_sizes") != (1, *table.shape[1:]):
        return None
    if attrs.integers("collapsed_slice_dims") != (0,) or attrs.integers("start_index_map") != (0,):
        return None
    inner = attrs.integers("offset_dims")
    outer = [dim for index, dim in enumerate(found.dims) if index not in inner]
    vector = attrs.integer("index_vector_dim")
    if vector < indices.type.rank:
        outer.insert(vector, ())
    choice = chosen_of(Followed(indices, tuple(outer)), table.shape[0])
    if choice is None:
        raise UnlikeError(
            "matrices are not looked up by the indices of a top_k over them", indices, 2
        )
    experts = Axis(table.shape[0])
    dims = ((experts,), *(found.dims[dim] for dim in inner))
    return Matrix(Followed(table, dims), experts, choice)
