"""Builder methods that are several ops: products of arrays, indexing, statistics, joins."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import cast

from graphgen.build.argument_checks import as_tuple
from graphgen.build.einsum import einsum
from graphgen.build.shape_methods import ShapeMethods, broadcast_shape, from_front, refused
from graphgen.ir import AttrValue, Dim, DType, Value, tensor
from graphgen.ir.dims import product
from graphgen.ir.dtype import f32, pred, s32

# An index of ``x[...]``.
Index = int | slice | EllipsisType | None


class ArrayMethods(ShapeMethods):
    """Methods for what NumPy has as one function; each appends a few ops."""

    # Whether operands of different shapes are repeated to the same one.
    broadcast: bool = True

    def matmul(self, x: Value, y: Value) -> Value:
        """``x @ y``: [..., M, K] times [..., K, N], or times [K, N]; leading sizes broadcast."""
        for side in (x, y):
            if not isinstance(cast(object, side), Value):
                raise refused(f"{side!r} in a product is not a value", "b.literal makes one")
        if not x.shape or not y.shape:
            raise refused(f"{x.type.text} @ {y.type.text}: a scalar has no rows", "write x * y")
        if len(y.shape) <= 2:
            return self.dot_general(x, y, ([len(x.shape) - 1], [max(len(y.shape) - 2, 0)]))
        row = len(x.shape) == 1
        rows = self.reshape(x, (1, *x.shape)) if row else x
        leading = rows.shape[:-2], y.shape[:-2]
        shape = broadcast_shape(leading) if self.broadcast else leading[1]
        if shape is None or (not self.broadcast and leading[0] != leading[1]):
            raise refused(
                f"{x.type.text} @ {y.type.text}: leading sizes differ",
                "b.broadcast_in_dim makes them equal, or b.dot_general says which go together",
            )
        rows = self.broadcast_to(rows, (*shape, *rows.shape[-2:]))
        pairs = list(range(len(shape)))
        summed = [len(shape) + 1], [len(shape)]
        made = self.dot_general(
            rows, self.broadcast_to(y, (*shape, *y.shape[-2:])), summed, (pairs, pairs)
        )
        return self.reshape(made, (*shape, y.shape[-1])) if row else made

    def index(self, x: Value, at: Index | Value | tuple[Index, ...]) -> Value:
        """``x[at]``: integers, slices, ``...`` and ``None``; or a value of ids along dimension 0.

        Raises:
            GraphgenError: GG0105 for an index outside of a dimension, and for what is none.
        """
        if isinstance(at, Value):
            if at.dtype.is_float or not x.shape:
                raise refused(f"{x.type.text} at {at.type.text}", "ids are integers, such as s32")
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
        return self._kept(x, self.reduce(x, from_front(x, dimensions), "add"), dimensions, keep)

    def mean(self, x: Value, dimensions: Sequence[int], *, keep: bool = False) -> Value:
        """The mean along ``dimensions``, summed in f32 where ``x`` is narrower."""
        count = product(x.shape[dim] for dim in from_front(x, dimensions))
        if not isinstance(count, int):
            raise refused(f"the mean over {count} elements of {x.type.text}", "sizes are numbers")
        wide = x if x.dtype.bits > 16 else self.convert(x, f32)
        made = self.sum(wide, dimensions, keep=keep)
        return self.convert(self.multiply(made, 1.0 / count), x.dtype)

    def var(self, x: Value, dimensions: Sequence[int], *, keep: bool = False) -> Value:
        """The mean squared deviation from the mean along ``dimensions``."""
        wide = x if x.dtype.bits > 16 else self.convert(x, f32)
        dims = from_front(x, dimensions)
        rest = [dim for dim in range(len(x.shape)) if dim not in dims]
        center = self.broadcast_in_dim(self.mean(wide, dims), wide.shape, rest)
        apart = self.subtract(wide, center)
        return self.convert(self.mean(self.multiply(apart, apart), dims, keep=keep), x.dtype)

    def softmax(self, x: Value, dimension: int = -1) -> Value:
        """``exp(x - max x) / sum exp(x - max x)`` along a dimension, in the type of ``x``."""
        (axis,) = from_front(x, [dimension])
        kept = [dim for dim in range(len(x.shape)) if dim != axis]
        top = self.broadcast_in_dim(self.reduce(x, [axis], "maximum"), x.shape, kept)
        powers = self.exponential(self.subtract(x, top))
        total = self.broadcast_in_dim(self.reduce(powers, [axis], "add"), x.shape, kept)
        return self.divide(powers, total)

    def einsum(self, equation: str, *operands: Value) -> Value:
        """The sum of products of an equation such as ``bij,bjk->bik``, as NumPy reads it."""
        return einsum(self, equation, as_tuple(operands))

    def where(self, pred: Value, on_true: Value | float, on_false: Value | float) -> Value:
        """``on_true`` where ``pred`` holds, else ``on_false``: NumPy's name of ``select``."""
        return self.select(pred, on_true, on_false)

    def clip(
        self, x: Value, low: Value | float | None = None, high: Value | float | None = None
    ) -> Value:
        """``x`` raised to ``low`` and lowered to ``high``; ``None`` leaves a side open."""
        above = x if low is None else self.maximum(x, low)
        return above if high is None else self.minimum(above, high)

    def max(self, x: Value, dimensions: Sequence[int], *, keep: bool = False) -> Value:
        """The largest element along ``dimensions``, 1 each with ``keep``; NaN if one is."""
        return self._kept(x, self.reduce(x, from_front(x, dimensions), "maximum"), dimensions, keep)

    def min(self, x: Value, dimensions: Sequence[int], *, keep: bool = False) -> Value:
        """The least element along ``dimensions``, 1 each with ``keep``; NaN if one is."""
        return self._kept(x, self.reduce(x, from_front(x, dimensions), "minimum"), dimensions, keep)

    def argmax(self, x: Value, dimension: int, *, keep: bool = False, dtype: DType = s32) -> Value:
        """The first place of the largest element along a dimension; of NaN, if there is one."""
        return self._place(x, dimension, "maximum", keep, dtype)

    def argmin(self, x: Value, dimension: int, *, keep: bool = False, dtype: DType = s32) -> Value:
        """The first place of the least element along a dimension; of NaN, if there is one."""
        return self._place(x, dimension, "minimum", keep, dtype)

    def _place(self, x: Value, dimension: int, kind: str, keep: bool, dtype: DType) -> Value:
        (axis,) = from_front(x, [dimension])
        if x.shape[axis] == 0:
            raise refused(f"the best of no elements, dimension {axis} of {x.type.text}")
        if x.dtype is pred:
            x = self.convert(x, s32)
        rest = [dim for dim in range(len(x.shape)) if dim != axis]
        best = self.broadcast_in_dim(self.reduce(x, [axis], kind), x.shape, rest)
        found = self.compare(x, best, "EQ")
        if x.dtype.is_float:
            found = self.or_(found, self.compare(x, x, "NE"))
        nowhere = self.full(2 ** (min(dtype.bits, 32) - 1) - 1, tensor(dtype, x.shape))
        places = self.select(found, self.iota(dtype, x.shape, axis), nowhere)
        return self._kept(x, self.reduce(places, [axis], "minimum"), [axis], keep)

    def _kept(self, x: Value, made: Value, dimensions: Sequence[int], keep: bool) -> Value:
        """The reduction ``made`` of ``x`` along ``dimensions``, with sizes of 1 to ``keep``."""
        if not keep:
            return made
        gone = from_front(x, dimensions)
        return self.reshape(made, [1 if n in gone else size for n, size in enumerate(x.shape)])

    def cumsum(self, x: Value, dimension: int, *, reverse: bool = False) -> Value:
        """The sum of the elements up to each one along a dimension, or from each one on.

        Sums of floats of 16 bits and less are made in f32. A size that is a number takes its
        logarithm in steps; a symbol, a sum of the row for each element.
        """
        (axis,) = from_front(x, [dimension])
        kind = x.dtype
        total = self.convert(x, f32) if kind.is_float and kind.bits <= 16 else x
        size, rank = x.shape[axis], len(x.shape)
        if not isinstance(size, int):
            shape = (*x.shape, size)
            rows = [dim if dim != axis else rank for dim in range(rank)]
            places = self.iota(s32, shape, rank), self.iota(s32, shape, axis)
            within = self.compare(*places, "GE" if reverse else "LE")
            wide = self.broadcast_in_dim(total, shape, rows)
            return self.convert(self.sum(self.select(within, wide, 0), [rank]), kind)
        reach = 1
        while reach < size:
            edge = [reach if dim == axis else 0 for dim in range(rank)]
            low, high = ([0] * rank, edge) if reverse else (edge, [0] * rank)
            start, end = (reach, size) if reverse else (0, size - reach)
            zero = self.full(0, tensor(total.dtype))
            moved = self.pad(self.slice_dim(total, axis, start, end), zero, low, high)
            total, reach = self.add(total, moved), 2 * reach
        return self.convert(total, kind)

    def one_hot(self, ids: Value, depth: Dim, dtype: DType = f32) -> Value:
        """1 at the place each id names in a new last dimension, 0 elsewhere and for other ids."""
        shape = (*ids.shape, depth)
        wide = self.broadcast_in_dim(self.convert(ids, s32), shape, list(range(len(ids.shape))))
        return self.convert(self.compare(wide, self.iota(s32, shape, len(ids.shape)), "EQ"), dtype)

    def split(self, x: Value, parts: int | Sequence[int], dimension: int) -> list[Value]:
        """Parts of ``x`` along a dimension: as many equal ones, or ones of these sizes."""
        (axis,) = from_front(x, [dimension])
        size = x.shape[axis]
        if isinstance(parts, int):
            if not isinstance(size, int) or parts < 1 or size % parts:
                raise refused(f"dimension {axis} of {x.type.text} is not {parts} equal parts")
            parts = [size // parts] * parts
        elif sum(parts) != size:
            raise refused(f"{list(parts)} is {sum(parts)} of the {size} of dimension {axis}")
        ends = [sum(parts[: place + 1]) for place in range(len(parts))]
        pairs = zip([0, *ends], ends, strict=False)
        return [self.slice_dim(x, axis, start, end) for start, end in pairs]

    def stack(self, values: Sequence[Value], dimension: int = 0) -> Value:
        """Values of one type along a new dimension."""
        values = as_tuple(values)
        if not values:
            raise refused("a stack of no values")
        rank = len(values[0].shape)
        axis = dimension + rank + 1 if dimension < 0 else dimension
        if not 0 <= axis <= rank:
            raise refused(f"dimension {dimension} of a stack of {values[0].type.text}")
        shape = (*values[0].shape[:axis], 1, *values[0].shape[axis:])
        return self.concatenate([self.reshape(value, shape) for value in values], axis)


def _spread(x: Value, at: tuple[Index, ...]) -> list[int | slice | None]:
    """One entry a dimension of ``x``, and ``None`` for each new one."""
    for part in cast(tuple[object, ...], at):
        if isinstance(part, bool) or not (
            part is None or isinstance(part, int | slice | EllipsisType)
        ):
            raise refused(
                f"{x.type.text} at {part!r}, which is not an index",
                "integers, slices, ... and None; one value of ids alone: x[ids]",
            )
    dots = [place for place, part in enumerate(at) if part is Ellipsis]
    left = len(x.shape) - sum(part is not None and part is not Ellipsis for part in at)
    if left < 0 or len(dots) > 1:
        raise refused(f"{x.type.text} has {len(x.shape)} dimensions, indexed by {len(at)}")
    place = dots[0] if dots else len(at)
    full = [slice(None)] * left
    return [*at[:place], *full, *at[place + 1 :]]  # pyright: ignore[reportReturnType]


def _bounds(x: Value, part: int | slice, size: Dim) -> tuple[Dim, Dim, int]:
    """Start, limit and stride of one dimension."""
    if isinstance(part, int):
        if not isinstance(size, int) and part < 0:
            return size + part, size + part + 1, 1
        if isinstance(size, int) and not -size <= part < size:
            raise refused(f"index {part} of a dimension of {size}, in {x.type.text}")
        start = part % size if isinstance(size, int) else part
        return start, start + 1, 1
    stride = 1 if part.step is None else part.step
    if not isinstance(stride, int) or stride < 1:
        raise refused(f"a slice with step {part.step!r}", "b.reverse turns a dimension around")
    if isinstance(size, int) and all(
        isinstance(end, int | None) for end in (part.start, part.stop)
    ):
        start, limit, _ = part.indices(size)
        if start >= limit:
            raise refused(f"[{part.start}:{part.stop}] of a dimension of {size} is empty")
        return start, limit, stride
    start = 0 if part.start is None else part.start
    limit = size if part.stop is None else part.stop
    start, limit = (
        size + end if isinstance(end, int) and end < 0 else end for end in (start, limit)
    )
    return start, limit, stride
