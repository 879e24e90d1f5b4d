"""Relations between a value after a rewrite and the value it replaced.

Every comparison of a program with the one it came from goes through these: a rewrite may change
what a value holds, but never silently. ``graphgen.passes.equiv.relate`` defines each in
numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from graphgen.ir import Literal, Sharding

if TYPE_CHECKING:
    from graphgen.eval import Array


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


class ChosenOutput(Protocol):
    """An output of choices, such as token ids, as it follows from scores and inputs."""

    @property
    def scores(self) -> str:
        """Name of the output [B,V] that is chosen from, as it is without the pass."""
        ...

    def chosen(self, scores: Array, inputs: Mapping[str, Array]) -> Array:
        """The choices [B] that scores [B,V] and the inputs of the call imply."""
        ...

    def admits(
        self,
        scores: Array,
        inputs: Mapping[str, Array],
        tokens: Array,
        moved: float,
        error: float,
    ) -> Array:
        """Pred [B]: whether choices are right for some scores near the given ones.

        Args:
            scores: [B,V].
            inputs: of the call.
            tokens: the choices [B].
            moved: the largest change of a score; 0 for none.
            error: the largest error of a sum of probabilities.
        """
        ...


@dataclass(frozen=True, slots=True)
class OutputChanges:
    """Outputs that a pass adds and drops.

    Attributes:
        added: by name, how each follows from outputs and inputs.
        dropped: names of those that the programs no longer give.
    """

    added: Mapping[str, ChosenOutput]
    dropped: tuple[str, ...] = ()
