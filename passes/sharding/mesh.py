"""The device mesh: named axes, replica groups along them, coordinates of ranks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import Dim, Literal, Sharding, TensorType, Value
from graphgen.ir.dtype import s32
from graphgen.ir.sharding import Axes

Groups = tuple[tuple[int, ...], ...]


class Mesh:
    """A grid of ranks in row-major order: the last axis is the fastest.

    Args:
        axes: size of each named axis, in order.
    """

    def __init__(self, axes: Mapping[str, int]) -> None:
        self.axes = dict(axes)
        self.ranks = math.prod(axes.values())
        self.key = tuple(axes.items())
        self._sizes: dict[Axes, int] = {}
        self.local_shapes: dict[tuple[TensorType, Sharding], tuple[Dim, ...]] = {}

    def size(self, axes: Iterable[str]) -> int:
        """The product of the sizes of ``axes``, memoized."""
        axes = tuple(axes)
        found = self._sizes.get(axes)
        if found is None:
            found = self._sizes[axes] = math.prod([self.axes[axis] for axis in axes])
        return found

    def ordered(self, axes: Iterable[str]) -> Axes:
        """The axes in the order of the mesh."""
        chosen = set(axes)
        return tuple(axis for axis in self.axes if axis in chosen)

    def stride(self, axis: str) -> int:
        """The rank distance of neighbors along ``axis``."""
        names = list(self.axes)
        return self.size(names[names.index(axis) + 1 :])

    def groups(self, axes: Axes) -> Groups:
        """The groups of ranks that differ along ``axes`` only; the last axis is the fastest."""
        return _groups(self.key, axes)

    def place(self, rank: int, axes: Axes) -> int:
        """The coordinate of a rank along ``axes``, as one number; the last axis is the fastest."""
        found = 0
        for axis in axes:
            found = found * self.axes[axis] + rank // self.stride(axis) % self.axes[axis]
        return found

    def coordinate(self, b: Builder, rank: Value, axes: Axes) -> Value:
        """:meth:`place` of the rank (s32[1]), as a scalar of the program."""
        if axes == tuple(self.axes):
            return b.reshape(rank, ())
        places = [self.place(number, axes) for number in range(self.ranks)]
        table = b.op("constant", value=Literal.of(s32, places))
        return b.reshape(b.dynamic_slice(table, [b.reshape(rank, ())], (1,)), ())


@lru_cache(maxsize=4096)
def _groups(mesh: tuple[tuple[str, int], ...], axes: Axes) -> Groups:
    sizes = dict(mesh)
    others = [axis for axis in sizes if axis not in axes]
    strides: dict[str, int] = {}
    step = 1
    for axis in reversed(sizes):
        strides[axis] = step
        step *= sizes[axis]

    def corners(names: Sequence[str]) -> list[int]:
        spans = [range(0, sizes[name] * strides[name], strides[name]) for name in names]
        return [sum(point) for point in itertools.product(*spans)]

    return tuple(tuple(base + near for near in corners(axes)) for base in corners(others))


def mesh_of(axes: Mapping[str, int]) -> Mesh:
    """The mesh with these axes (GG0302 for a size below 1)."""
    for axis, size in axes.items():
        if size < 1:
            raise GraphgenError("GG0302", f"mesh axis {axis}={size} must be at least 1")
    return Mesh(axes)


def divides(size: Dim, parts: int) -> bool:
    """True if ``size`` is static and a multiple of ``parts``, or ``parts`` is 1."""
    return parts == 1 or (isinstance(size, int) and size > 0 and size % parts == 0)


def local_shape(mesh: Mesh, type_: TensorType, layout: Sharding) -> tuple[Dim, ...]:
    """The shape of one rank's part, memoized; sharded dimensions must divide."""
    key = (type_, layout)
    found = mesh.local_shapes.get(key)
    if found is None:
        found = mesh.local_shapes[key] = tuple(
            [
                size // mesh.size(axes) if axes and isinstance(size, int) else size
                for size, axes in zip(type_.shape, layout.dims, strict=True)
            ]
        )
    return found


def check_divides(mesh: Mesh, name: str, type_: TensorType, layout: Sharding) -> None:
    """Require that every sharded dimension of ``name`` is static and divides (GG0304)."""
    for size, axes in zip(type_.shape, layout.dims, strict=False):
        if divides(size, mesh.size(axes)):
            continue
        if not isinstance(size, int):
            raise GraphgenError(
                "GG0304",
                f"{name} {type_.text} cannot be split along {size}, which is not a number yet",
                help="specialize before partition binds the sizes of calls, and those of caches "
                "with in_place=true",
            )
        raise GraphgenError(
            "GG0304",
            f"{name} {type_.text}: {size} does not divide over {' * '.join(axes)} = "
            f"{mesh.size(axes)}",
            help="pad-to-mesh before partition pads weights; heads lays out heads and caches; an "
            "input has to have a size that the ranks divide",
        )


def fits(mesh: Mesh, type_: TensorType, layout: Sharding) -> bool:
    """True if every sharded dimension divides."""
    pairs = zip(type_.shape, layout.dims, strict=True)
    return all(divides(size, mesh.size(axes)) for size, axes in pairs if axes)
