"""Builder methods that are several ops: products of arrays, indexing, statistics, joins."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import cast

from graphgen.build.argument_checks import as_tuple, located
from graphgen.build.op_methods import OpMethods
from graphgen.errors import GraphgenError
from graphgen.ir import AttrValue, Dim, DType, Value
from graphgen.ir.dims import product
from graphgen.ir.dtype import f32, s32

# An index of ``x[...]``.
Index = int | slice | EllipsisType | None


def _refused(what: str, help: str = "") -> GraphgenError:
    return located(GraphgenError("GG0105", what, help=help))


class ArrayMethods(OpMethods):
    """Methods for what NumPy has as one function; each appends a few ops."""

    def matmul(self, x: Value, y: Value) -> Value:
        """``x @ y``: [..., M, K] times [..., K, N], or times [K, N]; leading sizes are equal."""
        for side in (x, y):
            if not isinstance(cast(object, side), Value):
                raise _refused(f"{side!r} in a product is not a value", "b.literal makes one")
        if not x.shape or not y.shape:
            raise _refused(f"{x.type.text} @ {y.type.text}: a scalar has no rows", "write x * y")
        batch = max(len(y.shape) - 2, 0)
        if batch and x.shape[:batch] != y.shape[:batch]:
            raise _refused(
                f"{x.type.text} @ {y.type.text}: leading sizes differ",
                "b.broadcast_in_dim makes them equal, or b.dot_general says which go together",
            )
        if batch and len(x.shape) != len(y.shape):
            raise _refused(f"{x.type.text} @ {y.type.text}: ranks differ", "b.dot_general does it")
        pairs = list(range(batch))
        summed = ([len(x.shape) - 1], [max(len(y.shape) - 2, 0)])
        return self.dot_general(x, y, summed, (pairs, pairs))

    def index(self, x: Value, at: Index | Value | tuple[Index, ...]) -> Value:
        """``x[at]``: integers, slices, ``...`` and ``None``; or a value of ids along dimension 0.

        Raises:
            GraphgenError: GG0105 for an index outside of a dimension, and for what is none.
        """
        if isinstance(at, Value):
            if at.dtype.is_float or not x.shape:
                raise _refused(f"{x.type.text} at {at.type.text}", "ids are integers, such as s32")
            rows = self._one("take", x, self.reshape(at, (-1,)), dimension=0)
            return self.reshape(rows, (*at.shape, *x.shape[1:]))
        parts = _spread(x, at if isinstance(at, tuple) else (at,))
        cut = [part for part in parts if part is not None]
        bounds = [_bounds(x, part, size) for part, size in zip(cut, x.shape, strict=True)]
        if any(item != (0, size, 1) for item, size in zip(bounds, x.shape, strict=True)):
            starts, limits, strides = zip(*bounds, strict=True)
            attrs: dict[str, AttrValue] = {"start_indices": starts, "limit_indices": limits}
            if max(strides) > 1:
                attrs["strides"] = strides
            x = self.emit("slice", (x,), attrs).result
        sizes = iter(x.shape)
        shape: list[Dim] = []
        for part in parts:
            size = 1 if part is None else next(sizes)
            shape += [] if isinstance(part, int) else [size]
        return self.reshape(x, shape)

    def sum(self, x: Value, dimensions: Sequence[int], *, keep: bool = False) -> Value:
        """The sum along ``dimensions``, which become 1 with ``keep`` and disappear without."""
        dims = _from_front(x, dimensions)
        made = self.reduce(x, dims, "add")
        kept = [1 if dim in dims else size for dim, size in enumerate(x.shape)]
        return self.reshape(made, kept) if keep else made

    def mean(self, x: Value, dimensions: Sequence[int], *, keep: bool = False) -> Value:
        """The mean along ``dimensions``, summed in f32 where ``x`` is narrower."""
        count = product(x.shape[dim] for dim in _from_front(x, dimensions))
        if not isinstance(count, int):
            raise _refused(f"the mean over {count} elements of {x.type.text}", "sizes are numbers")
        wide = x if x.dtype.bits > 16 else self.convert(x, f32)
        made = self.sum(wide, dimensions, keep=keep)
        return self.convert(self.multiply(made, 1.0 / count), x.dtype)

    def var(self, x: Value, dimensions: Sequence[int], *, keep: bool = False) -> Value:
        """The mean squared deviation from the mean along ``dimensions``."""
        wide = x if x.dtype.bits > 16 else self.convert(x, f32)
        dims = _from_front(x, dimensions)
        rest = [dim for dim in range(len(x.shape)) if dim not in dims]
        center = self.broadcast_in_dim(self.mean(wide, dims), wide.shape, rest)
        apart = self.subtract(wide, center)
        return self.convert(self.mean(self.multiply(apart, apart), dims, keep=keep), x.dtype)

    def softmax(self, x: Value, dimension: int = -1) -> Value:
        """``exp(x - max x) / sum exp(x - max x)`` along a dimension, in the type of ``x``."""
        (axis,) = _from_front(x, [dimension])
        kept = [dim for dim in range(len(x.shape)) if dim != axis]
        top = self.broadcast_in_dim(self.reduce(x, [axis], "maximum"), x.shape, kept)
        powers = self.exponential(self.subtract(x, top))
        total = self.broadcast_in_dim(self.reduce(powers, [axis], "add"), x.shape, kept)
        return self.divide(powers, total)

    def one_hot(self, ids: Value, depth: Dim, dtype: DType = f32) -> Value:
        """1 at the place each id names in a new last dimension, 0 elsewhere and for other ids."""
        shape = (*ids.shape, depth)
        wide = self.broadcast_in_dim(self.convert(ids, s32), shape, list(range(len(ids.shape))))
        return self.convert(self.compare(wide, self.iota(s32, shape, len(ids.shape)), "EQ"), dtype)

    def split(self, x: Value, parts: int | Sequence[int], dimension: int) -> list[Value]:
        """Parts of ``x`` along a dimension: as many equal ones, or ones of these sizes."""
        (axis,) = _from_front(x, [dimension])
        size = x.shape[axis]
        if isinstance(parts, int):
            if not isinstance(size, int) or parts < 1 or size % parts:
                raise _refused(f"dimension {axis} of {x.type.text} is not {parts} equal parts")
            parts = [size // parts] * parts
        elif sum(parts) != size:
            raise _refused(f"{list(parts)} is {sum(parts)} of the {size} of dimension {axis}")
        ends = [sum(parts[: place + 1]) for place in range(len(parts))]
        pairs = zip([0, *ends], ends, strict=False)
        return [self.slice_dim(x, axis, start, end) for start, end in pairs]

    def stack(self, values: Sequence[Value], dimension: int = 0) -> Value:
        """Values of one type along a new dimension."""
        values = as_tuple(values)
        if not values:
            raise _refused("a stack of no values")
        rank = len(values[0].shape)
        axis = dimension + rank + 1 if dimension < 0 else dimension
        if not 0 <= axis <= rank:
            raise _refused(f"dimension {dimension} of a stack of {values[0].type.text}")
        shape = (*values[0].shape[:axis], 1, *values[0].shape[axis:])
        return self.concatenate([self.reshape(value, shape) for value in values], axis)


def _from_front(x: Value, dimensions: Sequence[int]) -> list[int]:
    """Dimensions counted from the front (GG0105 for one that does not exist)."""
    rank = len(x.shape)
    for dim in as_tuple(dimensions):
        if not -rank <= dim < rank:
            raise _refused(f"dim {dim} of {x.type.text} does not exist")
    return [dim % rank for dim in dimensions]


def _spread(x: Value, at: tuple[Index, ...]) -> list[int | slice | None]:
    """One entry a dimension of ``x``, and ``None`` for each new one."""
    for part in cast(tuple[object, ...], at):
        if isinstance(part, bool) or not (
            part is None or isinstance(part, int | slice | EllipsisType)
        ):
            raise _refused(
                f"{x.type.text} at {part!r}, which is not an index",
                "integers, slices, ... and None; one value of ids alone: x[ids]",
            )
    dots = [place for place, part in enumerate(at) if part is Ellipsis]
    left = len(x.shape) - sum(part is not None and part is not Ellipsis for part in at)
    if left < 0 or len(dots) > 1:
        raise _refused(f"{x.type.text} has {len(x.shape)} dimensions, indexed by {len(at)}")
    place = dots[0] if dots else len(at)
    full = [slice(None)] * left
    return [*at[:place], *full, *at[place + 1 :]]  # pyright: ignore[reportReturnType]


def _bounds(x: Value, part: int | slice, size: Dim) -> tuple[Dim, Dim, int]:
    """Start, limit and stride of one dimension."""
    if isinstance(part, int):
        if not isinstance(size, int) and part < 0:
            return size + part, size + part + 1, 1
        if isinstance(size, int) and not -size <= part < size:
            raise _refused(f"index {part} of a dimension of {size}, in {x.type.text}")
        start = part % size if isinstance(size, int) else part
        return start, start + 1, 1
    stride = 1 if part.step is None else part.step
    if not isinstance(stride, int) or stride < 1:
        raise _refused(f"a slice with step {part.step!r}", "b.reverse turns a dimension around")
    if isinstance(size, int) and all(
        isinstance(end, int | None) for end in (part.start, part.stop)
    ):
        start, limit, _ = part.indices(size)
        if start >= limit:
            raise _refused(f"[{part.start}:{part.stop}] of a dimension of {size} is empty")
        return start, limit, stride
    start = 0 if part.start is None else part.start
    limit = size if part.stop is None else part.stop
    start, limit = (
        size + end if isinstance(end, int) and end < 0 else end for end in (start, limit)
    )
    return start, limit, stride
