"""How a value after a rewrite relates to the value it replaced.

Every comparison of a program with the one it came from goes through these: a rewrite may change
what a value holds, but never silently.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.ir import Sharding


@dataclass(frozen=True, slots=True)
class Equal:
    """The new value is the old one."""


@dataclass(frozen=True, slots=True)
class Take:
    """Along ``dim``, new element i is old element ``indices[i]``; -1 is zero."""

    dim: int
    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shard:
    """Each rank holds its part of the old value."""

    layout: Sharding


@dataclass(frozen=True, slots=True)
class Partial:
    """The old value is the sum of the ranks' values over ``axis``."""

    axis: str


@dataclass(frozen=True, slots=True)
class Quantized:
    """The old value is about the new one times the scale, which is broadcast along ``dims``."""

    scale: float | str
    dims: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DontCare:
    """Equal where it matters; ``what`` says which elements do not."""

    what: str


Relation = Equal | Take | Shard | Partial | Quantized | DontCare
EQUAL = Equal()
