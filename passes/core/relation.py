"""Relations between a value after a rewrite and the value it replaced.

Every comparison of a program with the one it came from goes through these: a rewrite may change
what a value holds, but never silently. What each means in numbers is in
``graphgen.passes.verify.relate``.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.ir import Literal, Sharding


@dataclass(frozen=True, slots=True)
class Equal:
    """The new value is the old one, on every rank."""


@dataclass(frozen=True, slots=True)
class Take:
    """Along ``dim``, new element i is old element ``indices[i]``; -1 is zero."""

    dim: int
    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sharded:
    """Each rank holds its part of the old value.

    Ranks are numbered through the mesh with its last axis running fastest. Over the axes of
    ``layout.partial`` the old value is the sum of the ranks' values.
    """

    layout: Sharding


@dataclass(frozen=True, slots=True)
class Partial:
    """The old value is the sum of the ranks' values over ``axis``."""

    axis: str


@dataclass(frozen=True, slots=True)
class Quantized:
    """The old value is about the new one times the scale.

    Attributes:
        scale: a number, a tensor, or the name of the new program's value that holds it.
        dims: which dimensions of the value those of the scale are; none for a scalar.
    """

    scale: float | str | Literal
    dims: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DontCare:
    """Equal where it matters.

    Attributes:
        mask: pred, true for the elements that do not matter; broadcast as in NumPy.
        what: what these elements are, for people.
    """

    mask: Literal
    what: str = ""


@dataclass(frozen=True, slots=True)
class Chain:
    """One relation after the other, from the old value to the new one."""

    steps: tuple[Relation, ...]


Relation = Equal | Take | Sharded | Partial | Quantized | DontCare | Chain
EQUAL = Equal()
