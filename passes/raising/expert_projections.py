"""Match products of tokens and matrices of experts, gathered by a choice or all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from graphgen.build import Builder
from graphgen.ir import Value
from graphgen.passes.raising.axes import (
    Product,
    UnlikeError,
    arranged,
    beneath,
    counts,
    matched,
    product_of,
)
from graphgen.passes.raising.expert_choice import chosen_of
from graphgen.passes.raising.index_functions import leaf_of, linear_leaf, matrix_of, numbers_at
from graphgen.passes.raising.row_order import Axis, Followed, SortedAxis, takes_entries
from graphgen.pattern import apply, related, variables
from graphgen.pattern.see_through import integer, literal, spread

_ROW, _SAME, _STARTS, _ENDS = variables("row same starts ends")
_IN_GROUPS = apply("and", related(_ROW, "GE", _STARTS), related(_SAME, "LT", _ENDS))


def grouped_rows(product: Product) -> tuple[Followed, Followed, Axis, Followed] | None:
    """The rows, the stack, its axis of experts, and the expert of each row before the sort."""
    for placed, stack in product.either() if len(product.summed) == 2 else ():
        placed = beneath(placed)
        op = placed.value.producer("select")
        rows = [axis for axis in placed.axes if isinstance(axis, SortedAxis)]
        if op is None or len(rows) != 1 or literal(op.operands[2]) != 0:
            continue
        x = beneath(Followed(op.operands[1], placed.dims))
        experts = [axis for axis in product.summed if axis not in x.axes]
        if len(experts) != 1 or len(stack.axes) != 3:
            continue
        if _in_groups(Followed(op.operands[0], placed.dims), rows[0], experts[0]):
            ids = Followed(rows[0].sort.operands[0], (rows[0].axes,))
            return x, beneath(stack), experts[0], ids
    return None


def _in_groups(mask: Followed, rows: SortedAxis, experts: Axis) -> bool:
    """Match ``start[e] <= row < end[e]``, the groups of rows of one expert after the other."""
    for found, _ in matched(mask, _IN_GROUPS):
        starts, ends = beneath(found["starts"]), beneath(found["ends"])
        alike = all(counts(found[name], (rows,)) for name in ("row", "same"))
        if alike and starts.axes == ends.axes == (experts,):
            return _are_ends(starts.value, ends.value, rows)
    return False


def _are_ends(starts: Value, ends: Value, rows: SortedAxis) -> bool:
    """Test whether groups end at the sums of their sizes up to each, and start at those before."""
    import numpy as np

    counts = linear_leaf(ends)
    if counts is None or linear_leaf(starts) is not counts or counts.type.rank != 1:
        return False
    upper, before = matrix_of(ends, counts), matrix_of(starts, counts)
    if upper is None or before is None:
        return False
    ones = np.ones(upper.shape)
    right = np.array_equal(upper, np.tril(ones)) and np.array_equal(before, np.tril(ones, -1))
    return right and _counts_numbers(counts, rows)


def _counts_numbers(counts: Value, rows: SortedAxis) -> bool:
    """Test whether a vector [E] says how often each expert is among the sorted numbers."""
    import numpy as np

    known = (rows.sort.results[0], rows.sort.operands[0])
    (experts,), op = counts.shape, counts.op
    if op is None or not isinstance(experts, int):
        return False
    if op.name == "reduce" and op.attrs.integers("dimensions") == (0,):
        hot = op.operands[0]
        leaf = leaf_of(hot, known)
        if op.attrs.text("kind") != "add" or leaf not in known or hot.type.rank != 2:
            return False
        assert leaf is not None
        made = numbers_at(hot, leaf, experts)
        return made is not None and np.array_equal(made, np.eye(experts))
    if op.name != "scatter" or op.attrs.text("kind") != "add":
        return False
    into, indices, updates = op.operands
    ones = updates.shape == rows.sort.operands[0].shape and integer(spread(updates)[0]) == 1
    if not ones or integer(spread(into)[0]) != 0 or op.attrs.integers("update_window_dims"):
        return False
    leaf = leaf_of(indices, known)
    if leaf not in known:
        return False
    assert leaf is not None
    made = numbers_at(indices, leaf, experts)
    return made is not None and np.array_equal(made.ravel(), np.arange(experts))


@dataclass(frozen=True, slots=True)
class ExpertTable:
    """A stack of matrices, or of biases, of experts.

    Attributes:
        table: the stack of all, with the axes of experts and of each expert's numbers.
        experts: the axis of experts of ``table``.
        indices: of the expert of each token and choice; ``None`` where every one is used.
    """

    table: Followed
    experts: Axis
    indices: Followed | None

    @property
    def choice(self) -> tuple[int, tuple[tuple[Axis, ...], ...]] | None:
        """Equal for two tables that are looked up by the same indices."""
        return None if self.indices is None else (id(self.indices.value), self.indices.dims)


@dataclass(frozen=True, slots=True)
class FeatureRange:
    """Every ``stride``-th of the output features from ``start`` to ``limit``."""

    start: int
    limit: int
    stride: int


@dataclass(frozen=True, slots=True)
class Projection:
    """A product of tokens and matrices of experts, perhaps with a bias.

    Attributes:
        x: the tokens.
        matrix: the matrices.
        summed: the axis of input features.
        result: the axis of output features of the matrices.
        features: those of them that are used, ``part`` of the others where it is given.
        part: which these are.
        bias: the table of biases, with ``result`` as its axis of features.
    """

    x: Followed
    matrix: ExpertTable
    summed: Axis
    result: Axis
    features: Axis
    part: FeatureRange | None = None
    bias: ExpertTable | None = None

    @property
    def tokens(self) -> tuple[tuple[Axis, ...], ...]:
        """Axes of the dimensions of x, without the one that is summed."""
        return tuple(dim for dim in self.x.dims if dim != (self.summed,))

    def built(self, b: Builder, order: tuple[Axis, Axis]) -> Value:
        """The matrices [E, ...] with the other axes in an order."""
        value = arranged(b, self.matrix.table, (self.matrix.experts, *order))
        return self._cut(b, value, 1 + order.index(self.result))

    def built_bias(self, b: Builder) -> Value | None:
        """The biases [E, features]."""
        if self.bias is None:
            return None
        return self._cut(b, arranged(b, self.bias.table, (self.bias.experts, self.result)), 1)

    def _cut(self, b: Builder, value: Value, dim: int) -> Value:
        if self.part is None:
            return value
        starts, limits = [0] * value.type.rank, list(value.shape)
        starts[dim], limits[dim] = self.part.start, self.part.limit
        if self.part.stride == 1:
            return b.slice(value, starts, limits)
        strides = [self.part.stride if each == dim else 1 for each in range(value.type.rank)]
        return b.op(
            "slice",
            value,
            start_indices=tuple(starts),
            limit_indices=tuple(limits),
            strides=tuple(strides),
        )


def projection_of(found: Followed, over: Axis, features: Axis) -> Projection:
    """Tokens times matrices of experts, if possible with these features.

    Raises:
        UnlikeError: of depth 0 for a value that is no such product.
    """
    ways = projections_of(found, over)
    if not ways:
        raise UnlikeError("no product of tokens and experts", found.value, 0)
    return next((way for way in ways if way.features is features), ways[0])


def projections_of(found: Followed, over: Axis) -> list[Projection]:
    """The ways in which a value is tokens times matrices of experts, perhaps plus a bias."""
    found, cut = _rows(beneath(found))
    ways = _products(found, over, cut)
    op = beneath(found).value.producer("add")
    if ways or op is None:
        return ways
    dims = beneath(found).dims
    sides = [Followed(operand, dims) for operand in op.operands]
    for product, added in (sides, sides[::-1]):
        for way in _products(product, over, cut):
            bias = _bias(beneath(added), over, way)
            if bias is not None:
                ways.append(replace(way, bias=bias))
    return ways


def _products(found: Followed, over: Axis, cut: _CutFeatures | None) -> list[Projection]:
    product = product_of(beneath(found))
    ways: list[Projection] = []
    for x, matrix, summed in _factors(product, over) if product is not None else ():
        rest = [axis for axis in matrix.table.axes if axis not in (matrix.experts, summed)]
        if len(rest) != 1 or rest[0] in x.axes or (cut and cut.whole is not rest[0]):
            continue
        used, part = (cut.features, cut.part) if cut else (rest[0], None)
        ways.append(Projection(beneath(x), matrix, summed, rest[0], used, part))
    return ways


def _factors(product: Product, over: Axis) -> Iterator[tuple[Followed, ExpertTable, Axis]]:
    """Tokens, matrices of experts and the axis of input features of a product.

    Raises:
        UnlikeError: matrices are looked up by other indices.
    """
    grouped = grouped_rows(product)
    if grouped is not None:
        x, stack, experts, ids = grouped
        choice = chosen_of(ids, experts.size)
        if choice is None:
            reason = "rows are not sorted by the indices of a top_k over the matrices"
            raise UnlikeError(reason, ids.value, 2)
        (summed,) = [axis for axis in product.summed if axis is not experts]
        yield x, ExpertTable(stack, experts, choice), summed
    if len(product.summed) != 1:
        return
    (summed,) = product.summed
    for held, x in product.either():
        matrix = _matrix(beneath(held), over, summed)
        if matrix is not None:
            yield x, matrix, summed


@dataclass(frozen=True, slots=True)
class _CutFeatures:
    """A slice of one axis: the axis before it, the axis after it, and the part."""

    whole: Axis
    features: Axis
    part: FeatureRange


def _rows(found: Followed) -> tuple[Followed, _CutFeatures | None]:
    """Under a slice of one axis: the value with that axis whole."""
    op = found.value.producer("slice")
    if op is None:
        return found, None
    (source,) = op.operands
    cut = [dim for dim, size in enumerate(source.shape) if size != found.value.shape[dim]]
    if len(cut) != 1 or len(found.dims[cut[0]]) != 1:
        return found, None
    (dim,) = cut
    start, limit = (op.attrs.dims(f"{end}_indices")[dim] for end in ("start", "limit"))
    if not isinstance(start, int) or not isinstance(limit, int):
        return found, None
    strides = op.attrs.integers("strides")
    whole = Axis(source.shape[dim])
    dims = (*found.dims[:dim], (whole,), *found.dims[dim + 1 :])
    part = FeatureRange(start, limit, strides[dim] if strides else 1)
    return Followed(source, dims), _CutFeatures(whole, found.dims[dim][0], part)


def _matrix(found: Followed, over: Axis, summed: Axis) -> ExpertTable | None:
    """The stack that a product reads: gathered by chosen experts, or whole."""
    op = found.value.producer("gather")
    if op is not None:
        return looked_up(found) if op.operands[0].type.rank == 3 else None
    if over in found.axes and summed in found.axes and len(found.axes) == 3:
        return ExpertTable(found, over, None)
    return None


def _bias(found: Followed, over: Axis, way: Projection) -> ExpertTable | None:
    """The biases that are added to a product; of the same experts as its matrices."""
    if found.value.op is None or found.value.op.name not in ("gather", "embedding"):
        whole = way.matrix.indices is None and set(found.axes) == {over, way.result}
        return ExpertTable(found, over, None) if whole else None
    bias = looked_up(found)
    if bias is None or set(bias.table.axes) != {bias.experts, way.result}:
        return None
    return bias if bias.choice == way.matrix.choice else None


def looked_up(found: Followed) -> ExpertTable | None:
    """A lookup of whole entries of a stack by the indices of a ``top_k`` over as many.

    Raises:
        UnlikeError: the indices are others.
    """
    op = found.value.op
    assert op is not None
    table, indices = op.operands
    attrs = op.attrs
    if op.name == "embedding":
        inner: tuple[int, ...] = (found.value.type.rank - 1,)
        outer = list(found.dims[:-1])
    else:
        if not takes_entries(op):
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
    return ExpertTable(Followed(table, dims), experts, choice)
