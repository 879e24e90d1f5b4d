"""Shape ops: create, broadcast, reshape, permute, slice, join and pad, without arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

from graphgen.ir import Attrs, Dim, TensorType, tensor
from graphgen.ir.dims import product
from graphgen.ops.attr_types import DIMS, ELEMENT, INTEGER, INTEGERS, LITERAL
from graphgen.ops.factors import DimFactors, Factors, FactorTable, passthrough_factors
from graphgen.ops.opdef import attr, define, require
from graphgen.ops.traits import LinearIn, Trait, Types

DATA_MOVEMENT = Trait.DATA_MOVEMENT


@define("constant", "", attr("value", LITERAL), traits=(DATA_MOVEMENT,))
def _constant(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """A literal written into the program.

    Example:
        %c = constant() value=f32[](0.5) : f32[]
    """
    literal = attrs.literal("value")
    return (tensor(literal.dtype, literal.shape),)


def _iota_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    counted = attrs.integer("dimension")
    found = passthrough_factors(results, results, [i != counted for i in range(results[0].rank)])
    return replace(found, operands=())


@define(
    "iota",
    "",
    attr("dtype", ELEMENT),
    attr("shape", DIMS),
    attr("dimension", INTEGER),
    traits=(DATA_MOVEMENT, Trait.POSITIONAL),
    factors=_iota_factors,
)
def _iota(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Counts 0, 1, 2, ... along one dimension.

    Example:
        %i = iota() dtype=s32 shape=[B,C] dimension=1 : s32[B,C]
    """
    shape, dimension = attrs.dims("shape"), attrs.integer("dimension")
    require(0 <= dimension < len(shape), f"dimension {dimension} of {list(shape)}")
    kind = attrs.element("dtype")
    require(kind.is_number or kind.is_complex, f"counts have no meaning in {kind.name}")
    return (tensor(kind, shape),)


def _broadcast_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    table = FactorTable()
    result = table.of(results[0])
    pairs = zip(operands[0].shape, attrs.integers("dimensions"), strict=True)
    operand = tuple(
        result[target] if size == results[0].shape[target] else () for size, target in pairs
    )
    return Factors(table.sizes, (operand,), (result,))


@define(
    "broadcast_in_dim",
    "operand",
    attr("shape", DIMS),
    attr("dimensions", INTEGERS, ()),
    traits=(DATA_MOVEMENT, Trait.RELAYOUT, LinearIn((0,))),
    factors=_broadcast_factors,
)
def _broadcast_in_dim(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Operand dimension i becomes result dimension ``dimensions[i]``; the rest repeats it.

    Example:
        %y = broadcast_in_dim(%x) shape=[B,S,4] dimensions=[2] : f32[B,S,4]
    """
    shape, dimensions = attrs.dims("shape"), attrs.integers("dimensions")
    require(len(dimensions) == types[0].rank, f"dimensions {list(dimensions)} for {types[0].text}")
    require(len(set(dimensions)) == len(dimensions), f"dimensions {list(dimensions)} repeat")
    for size, target in zip(types[0].shape, dimensions, strict=True):
        require(0 <= target < len(shape), f"dimension {target} of a result {list(shape)}")
        require(
            size == 1 or size == shape[target],
            f"size {size} does not broadcast to {shape[target]} (result dimension {target})",
            0,
        )
    return (tensor(types[0].dtype, shape),)


def _reshape_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """Merged and split dimensions share their outermost common factors."""
    table = FactorTable()
    old, new = operands[0].shape, results[0].shape
    left: list[DimFactors] = [()] * len(old)
    right: list[DimFactors] = [()] * len(new)
    for olds, news in _reshape_groups(old, new):
        for i, j, size in _common_factors(old, new, olds, news):
            number = table.new(size)
            left[i] += (number,)
            right[j] += (number,)
    return Factors(table.sizes, (tuple(left),), (tuple(right),))


def _reshape_groups(old: Sequence[Dim], new: Sequence[Dim]) -> list[tuple[list[int], list[int]]]:
    """Runs of dimensions of both shapes that have the same number of elements."""
    found: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) and j < len(new):
        olds, news = [i], [j]
        i, j = i + 1, j + 1
        left, right = old[olds[0]], new[news[0]]
        while left != right and (i < len(old) or j < len(new)):
            # Sizes that cannot be compared are joined to the end of the shape.
            grows_left = isinstance(left, int) and isinstance(right, int) and left < right
            if j >= len(new) or (grows_left and i < len(old)):
                olds.append(i)
                left, i = left * old[i], i + 1
            else:
                news.append(j)
                right, j = right * new[j], j + 1
        found.append((olds, news))
    return found


def _common_factors(
    old: Sequence[Dim], new: Sequence[Dim], olds: list[int], news: list[int]
) -> list[tuple[int, int, Dim]]:
    """The common factors of one run, outermost first: the two dimensions and the size."""
    if len(olds) == len(news) == 1:
        return [(olds[0], news[0], old[olds[0]])]
    out: list[tuple[int, int, Dim]] = []
    left = [(i, size) for i in olds if isinstance(size := old[i], int) and size > 1]
    right = [(j, size) for j in news if isinstance(size := new[j], int) and size > 1]
    if product(size for _, size in left) != product(old[i] for i in olds):
        return []
    while left and right:
        (i, a), (j, b) = left[0], right[0]
        shared = gcd(a, b)
        if shared == 1:
            break
        out.append((i, j, shared))
        left = ([(i, a // shared)] if a > shared else []) + left[1:]
        right = ([(j, b // shared)] if b > shared else []) + right[1:]
    return out


@define(
    "reshape",
    "operand",
    attr("shape", DIMS),
    traits=(DATA_MOVEMENT, Trait.RELAYOUT, Trait.VIEW, LinearIn((0,))),
    factors=_reshape_factors,
)
def _reshape(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The same elements in row-major order under another shape.

    Example:
        %y = reshape(%x) shape=[B,S,9,64] : f32[B,S,9,64]
    """
    result = tensor(types[0].dtype, attrs.dims("shape"))
    require(
        result.size == types[0].size,
        f"{types[0].text} has {types[0].size} elements, {result.text} has {result.size}",
        0,
    )
    return (result,)


def _reverse_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    reversed_ = attrs.integers("dimensions")
    return passthrough_factors(
        operands, results, [dim not in reversed_ for dim in range(results[0].rank)]
    )


@define(
    "reverse",
    "operand",
    attr("dimensions", INTEGERS),
    traits=(DATA_MOVEMENT, Trait.ALIGNED, LinearIn((0,))),
    factors=_reverse_factors,
)
def _reverse(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The elements of these dimensions from the last to the first.

    Example:
        %y = reverse(%x) dimensions=[1] : f32[B,4]
    """
    dimensions = attrs.integers("dimensions")
    distinct = len(set(dimensions)) == len(dimensions)
    inside = all(0 <= dim < types[0].rank for dim in dimensions)
    require(distinct and inside, f"dimensions {list(dimensions)} of {types[0].text}", 0)
    return (types[0],)


def _transpose_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    table = FactorTable()
    dims = table.of(operands[0])
    permuted = tuple(dims[dim] for dim in attrs.integers("permutation"))
    return Factors(table.sizes, (dims,), (permuted,))


@define(
    "transpose",
    "operand",
    attr("permutation", INTEGERS),
    traits=(DATA_MOVEMENT, Trait.RELAYOUT, LinearIn((0,))),
    factors=_transpose_factors,
)
def _transpose(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Result dimension i is operand dimension ``permutation[i]``.

    Example:
        %y = transpose(%x) permutation=[0,2,1,3] : f32[B,9,S,64]
    """
    order = attrs.integers("permutation")
    require(
        sorted(order) == list(range(types[0].rank)),
        f"{list(order)} is not a permutation of the dimensions of {types[0].text}",
        0,
    )
    return (tensor(types[0].dtype, [types[0].shape[i] for i in order]),)


def _slice_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    strides = attrs.integers("strides") or (1,) * operands[0].rank
    bounds = zip(attrs.dims("start_indices"), attrs.dims("limit_indices"), strides, strict=True)
    whole = [
        start == 0 and limit == size and stride == 1
        for size, (start, limit, stride) in zip(operands[0].shape, bounds, strict=True)
    ]
    return passthrough_factors(operands, results, whole)


@define(
    "slice",
    "operand",
    attr("start_indices", DIMS),
    attr("limit_indices", DIMS),
    attr("strides", INTEGERS, ()),
    traits=(
        *(DATA_MOVEMENT, Trait.PARTIAL_READ, Trait.POSITIONAL, Trait.ALIGNED),
        LinearIn((0,)),
    ),
    factors=_slice_factors,
)
def _slice(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Elements ``start, start+stride, ... < limit`` of each dimension; no strides means all 1.

    Example:
        %y = slice(%x) start_indices=[0,0] limit_indices=[B,2] : f32[B,2]
    """
    starts, limits = attrs.dims("start_indices"), attrs.dims("limit_indices")
    strides = attrs.integers("strides") or (1,) * types[0].rank
    require(
        len(starts) == len(limits) == len(strides) == types[0].rank,
        f"needs {types[0].rank} starts, limits and strides",
        0,
    )
    bounds = zip(types[0].shape, starts, limits, strides, strict=True)
    shape = [_slice_size(*bound) for bound in bounds]
    return (tensor(types[0].dtype, shape),)


def _slice_size(size: Dim, start: Dim, limit: Dim, stride: int) -> Dim:
    require(stride > 0, f"stride {stride} is not positive")
    if isinstance(start, int) and isinstance(limit, int):
        require(0 <= start <= limit, f"slice {start}:{limit} runs backward")
        require(not isinstance(size, int) or limit <= size, f"slice limit {limit} of size {size}")
        return -(-(limit - start) // stride)
    require(stride == 1, "a stride needs static bounds")
    return limit - start


def _concatenate_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    axis = attrs.integer("dimension")
    found = passthrough_factors(results, results, [i != axis for i in range(results[0].rank)])
    return replace(found, operands=found.results * len(operands))


@define(
    "concatenate",
    "*operands",
    attr("dimension", INTEGER),
    traits=(DATA_MOVEMENT, Trait.ALIGNED, LinearIn()),
    factors=_concatenate_factors,
)
def _concatenate(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The operands one after the other along ``dimension``.

    Example:
        %y = concatenate(%a, %b) dimension=1 : f32[B,8]
    """
    axis = attrs.integer("dimension")
    require(bool(types), "needs at least one operand")
    require(0 <= axis < types[0].rank, f"dimension {axis} of {types[0].text}", 0)
    total: Dim = 0
    for index, other in enumerate(types):
        same = other.rank == types[0].rank and all(
            i == axis or a == b
            for i, (a, b) in enumerate(zip(types[0].shape, other.shape, strict=True))
        )
        require(
            same and other.dtype is types[0].dtype,
            f"{types[0].text} and {other.text} differ",
            index,
        )
        total = total + other.shape[axis]
    shape = [total if i == axis else size for i, size in enumerate(types[0].shape)]
    return (tensor(types[0].dtype, shape),)


def _pad_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    low, high = attrs.integers("low"), attrs.integers("high")
    between = attrs.integers("interior") or (0,) * len(low)
    kept = [set(three) == {0} for three in zip(low, high, between, strict=True)]
    return passthrough_factors(operands, results, kept)


@define(
    "pad",
    "operand value",
    attr("low", INTEGERS),
    attr("high", INTEGERS),
    attr("interior", INTEGERS, ()),
    traits=(DATA_MOVEMENT, Trait.ALIGNED),
    factors=_pad_factors,
)
def _pad(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """``value`` before (``low``) and after (``high``) each dimension, and between its elements.

    Negative numbers cut elements off instead. ``interior`` says how many values stand between two
    elements; empty means none.

    Example:
        %y = pad(%x, %zero) low=[0,0] high=[7,0] : f32[8,4]
    """
    low, high = attrs.integers("low"), attrs.integers("high")
    between = attrs.integers("interior") or (0,) * len(low)
    paddings = {len(low), len(high), len(between), types[0].rank}
    require(len(paddings) == 1, f"needs {types[0].rank} paddings", 0)
    require(all(count >= 0 for count in between), "interior padding must not be negative")
    require(types[1] is tensor(types[0].dtype), f"the value must be {types[0].dtype.name}[]", 1)
    edges = zip(types[0].shape, low, high, between, strict=True)
    return (tensor(types[0].dtype, [_padded(*each) for each in edges]),)


def _padded(size: Dim, low: int, high: int, between: int) -> Dim:
    held = size if size == 0 or not between else (size - 1) * (between + 1) + 1
    made = held + low + high
    require(not isinstance(made, int) or made >= 0, f"padding removes more than {size} elements")
    return made
