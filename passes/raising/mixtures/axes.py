"""Axes of a computation, and values with the axes of their dimensions."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.ir import Dim, Op, Value


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """An axis of a computation; two of one size are two axes."""

    size: Dim


@dataclass(frozen=True, slots=True, eq=False)
class SortedAxis(Axis):
    """Axes as one, in the order of a ``sort`` of numbers that lie along them.

    Attributes:
        sort: of the numbers, with their places.
        axes: the axes, outer to inner.
    """

    sort: Op
    axes: tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class Followed:
    """A value, and the axes of each of its dimensions, outer to inner; none for a size of 1."""

    value: Value
    dims: tuple[tuple[Axis, ...], ...]

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes, outer to inner."""
        return tuple(axis for dim in self.dims for axis in dim)
