"""Builder methods that repeat, count and rename dimensions, as NumPy's functions do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from math import ceil

from graphgen.build.argument_checks import as_tuple, located
from graphgen.build.op_methods import OpMethods
from graphgen.errors import GraphgenError
from graphgen.ir import Dim, DType, Value
from graphgen.ir.dtype import f32, s32


def refused(what: str, help: str = "") -> GraphgenError:
    """GG0105 at the caller's line."""
    return located(GraphgenError("GG0105", what, help=help))


def from_front(x: Value, dimensions: Sequence[int]) -> list[int]:
    """Dimensions counted from the front (GG0105 for one that does not exist)."""
    rank = len(x.shape)
    for dim in as_tuple(dimensions):
        if not -rank <= dim < rank:
            raise refused(f"dim {dim} of {x.type.text} does not exist")
    return [dim % rank for dim in dimensions]


def broadcast_shape(shapes: Iterable[tuple[Dim, ...]]) -> tuple[Dim, ...] | None:
    """The shape that all shapes broadcast to by NumPy's rule; None if there is none.

    Shapes are compared from their last sizes on: these are the same number or symbol, or 1.
    """
    found: list[Dim] = []
    for sizes in zip_longest(*[reversed(shape) for shape in shapes], fillvalue=1):
        wide = [size for size in sizes if size != 1]
        if any(size != wide[0] for size in wide):
            return None
        found.append(wide[0] if wide else 1)
    return tuple(reversed(found))


class ShapeMethods(OpMethods):
    """Methods for NumPy's functions that repeat, count and rename dimensions."""

    def broadcast_to(self, x: Value, shape: Sequence[Dim]) -> Value:
        """``x`` repeated to ``shape``: sizes of 1, and leading dimensions that it has not.

        The result is ``x`` itself if it has that shape.
        """
        shape = as_tuple(shape)
        if x.shape == shape:
            return x
        if len(x.shape) > len(shape) or broadcast_shape([x.shape, shape]) != shape:
            raise refused(
                f"{x.type.text} does not broadcast to {list(shape)}",
                "sizes from the last one on are equal, or 1 in what is broadcast",
            )
        return self.broadcast_in_dim(x, shape, range(len(shape) - len(x.shape), len(shape)))

    def expand_dims(self, x: Value, dimensions: Sequence[int]) -> Value:
        """``x`` with new dimensions of size 1, which are those of the result called so."""
        given = as_tuple(dimensions)
        rank = len(x.shape) + len(given)
        places = [dim % rank if -rank <= dim < rank else -1 for dim in given]
        if -1 in places or len(set(places)) < len(places):
            raise refused(f"dimensions {list(given)} of a result of {rank} dimensions")
        sizes = iter(x.shape)
        return self.reshape(x, [1 if dim in places else next(sizes) for dim in range(rank)])

    def squeeze(self, x: Value, dimensions: Sequence[int] | None = None) -> Value:
        """``x`` without these dimensions, which have size 1; by default without all such."""
        if dimensions is None:
            dimensions = [dim for dim, size in enumerate(x.shape) if size == 1]
        gone = from_front(x, dimensions)
        for dim in gone:
            if x.shape[dim] != 1:
                raise refused(f"dimension {dim} of {x.type.text} is {x.shape[dim]}, not 1")
        return self.reshape(x, [size for dim, size in enumerate(x.shape) if dim not in gone])

    def repeat(self, x: Value, times: int, dimension: int) -> Value:
        """Each element along a dimension this many times, one after the other."""
        (axis,) = from_front(x, [dimension])
        count = _count(times)
        shape = (*x.shape[: axis + 1], count, *x.shape[axis + 1 :])
        places = [dim if dim <= axis else dim + 1 for dim in range(len(x.shape))]
        wide = self.broadcast_in_dim(x, shape, places)
        return self.reshape(wide, (*x.shape[:axis], x.shape[axis] * count, *x.shape[axis + 1 :]))

    def tile(self, x: Value, times: Sequence[int]) -> Value:
        """The whole of ``x`` this many times along each dimension; the last numbers fit last."""
        counts = [_count(item) for item in as_tuple(times)]
        rank = max(len(counts), len(x.shape))
        counts = [1] * (rank - len(counts)) + counts
        sizes = [1] * (rank - len(x.shape)) + list(x.shape)
        shape = [item for pair in zip(counts, sizes, strict=True) for item in pair]
        places = [2 * dim + 1 for dim in range(rank - len(x.shape), rank)]
        whole = [count * size for count, size in zip(counts, sizes, strict=True)]
        return self.reshape(self.broadcast_in_dim(x, shape, places), whole)

    def arange(
        self,
        start: Dim | float,
        stop: Dim | float | None = None,
        step: float = 1,
        dtype: DType | None = None,
    ) -> Value:
        """Numbers from ``start`` (0 if one is given) up to ``stop``, without it, by ``step``.

        They are s32, or f32 if one of the numbers is a float. ``stop`` may be a symbol.
        """
        if stop is None:
            start, stop = 0, start
        if not isinstance(start, int | float):
            raise refused(f"arange from {start}, which is a symbol", "b.iota counts from 0")
        floats = any(isinstance(item, float) for item in (start, stop, step))
        kind = dtype or (f32 if floats else s32)
        if step == 0:
            raise refused("arange by steps of 0")
        if not isinstance(stop, int | float):
            if step != 1 or not isinstance(start, int):
                raise refused(f"arange to {stop}, a symbol, by {step} from {start}")
            size: Dim = stop - start
        else:
            size = max(ceil((stop - start) / step), 0)
        counts = self.iota(kind, (size,), 0)
        counts = counts if step == 1 else self.binary("multiply", counts, step)
        return counts if start == 0 else self.binary("add", counts, start)


def _count(times: object) -> int:
    if isinstance(times, bool) or not isinstance(times, int) or times < 0:
        raise refused(f"{times!r} is not a number of times", "write an integer of 0 or more")
    return times
