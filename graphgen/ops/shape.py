"""Ops that make or rearrange elements without computing on them."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Attrs, Dim, TensorType, tensor
from graphgen.ops.opdef import Attr, define, require


@define("constant", "", Attr("value", "literal"))
def _constant(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """A literal written into the program.

    Example:
        %c = constant() value=f32[](0.5) : f32[]
    """
    literal = attrs.literal("value")
    return (tensor(literal.dtype, literal.shape),)


@define("iota", "", Attr("dtype", "element"), Attr("shape", "dims"), Attr("dimension", "integer"))
def _iota(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Counts 0, 1, 2, ... along one dimension.

    Example:
        %i = iota() dtype=s32 shape=[B,C] dimension=1 : s32[B,C]
    """
    shape, dimension = attrs.dims("shape"), attrs.integer("dimension")
    require(0 <= dimension < len(shape), f"dimension {dimension} of {list(shape)}")
    kind = attrs.element("dtype")
    require(kind.is_number, f"counts have no meaning in {kind.name}")
    return (tensor(kind, shape),)


@define("broadcast_in_dim", "operand", Attr("shape", "dims"), Attr("dimensions", "integers", ()))
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


@define("reshape", "operand", Attr("shape", "dims"))
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


@define("reverse", "operand", Attr("dimensions", "integers"))
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


@define("transpose", "operand", Attr("permutation", "integers"))
def _transpose(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Result dimension i is operand dimension ``permutation[i]``.

    Example:
        %y = transpose(%x) permutation=[0,2,1,3] : f32[B,9,S,64]
    """
    order = attrs.integers("permutation")
    require(
        sorted(order) == list(range(types[0].rank)),
        f"{list(order)} is no permutation of the dimensions of {types[0].text}",
        0,
    )
    return (tensor(types[0].dtype, [types[0].shape[i] for i in order]),)


@define(
    "slice",
    "operand",
    Attr("start_indices", "dims"),
    Attr("limit_indices", "dims"),
    Attr("strides", "integers", ()),
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


@define("concatenate", "*operands", Attr("dimension", "integer"))
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


@define("pad", "operand value", Attr("low", "integers"), Attr("high", "integers"))
def _pad(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """``value`` before (``low``) and after (``high``) each dimension; no interior padding.

    Example:
        %y = pad(%x, %zero) low=[0,0] high=[7,0] : f32[8,4]
    """
    low, high = attrs.integers("low"), attrs.integers("high")
    require(len(low) == len(high) == types[0].rank, f"needs {types[0].rank} paddings", 0)
    require(all(p >= 0 for p in (*low, *high)), "padding must not be negative")
    require(types[1] is tensor(types[0].dtype), f"the value must be {types[0].dtype.name}[]", 1)
    shape = [size + lo + hi for size, lo, hi in zip(types[0].shape, low, high, strict=True)]
    return (tensor(types[0].dtype, shape),)
