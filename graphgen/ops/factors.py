"""Factors: the sharding rule of an op as data (Shardy's ``OpShardingRule``, GSPMD's dim mapping).

A factor is an index that the op iterates over. A matrix product has three: rows, columns and the
contracted index. Dimensions that share a factor are sharded together: sharding the rows of the left
operand shards the rows of the result; sharding the contracted index leaves a partial sum per rank.
A dimension composed of several factors lists them, outermost first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.ir import Attrs, Dim, TensorType
from graphgen.ops.traits import Types

# The factors of one dimension, outermost first; empty for one that must be whole.
DimFactors = tuple[int, ...]
ValueFactors = tuple[DimFactors, ...]


@dataclass(frozen=True, slots=True)
class Factors:
    """The factors of one op.

    Attributes:
        sizes: per factor.
        operands, results: per value, per dimension, its factors.
        reduction: per factor that no result has, the reduction that combines the ranks' results.
        linear_in: sets of operands in which the op is linear: if all operands of a set are
            unreduced sums and the others are not, the result is an unreduced sum.
        special: factors whose sharded form is another computation than the op itself.
        need_replication: factors that cannot be sharded, although dimensions share them.
        slots: factors of the slots of a cache: only mesh axes that split a cache along them do so.
    """

    sizes: tuple[Dim, ...]
    operands: tuple[ValueFactors, ...]
    results: tuple[ValueFactors, ...]
    reduction: Mapping[int, str] = field(default_factory=dict[int, str])
    linear_in: tuple[frozenset[int], ...] = ()
    special: frozenset[int] = frozenset()
    need_replication: frozenset[int] = frozenset()
    slots: frozenset[int] = frozenset()


# Operand types, result types, attributes -> factors.
FactorRule = Callable[[Types, Types, Attrs], Factors]


class FactorTable:
    """Numbers the factors of one op."""

    def __init__(self) -> None:
        self._sizes: list[Dim] = []

    @property
    def sizes(self) -> tuple[Dim, ...]:
        """The size of each factor."""
        return tuple(self._sizes)

    def new(self, size: Dim) -> int:
        """Add a factor; returns its number."""
        self._sizes.append(size)
        return len(self._sizes) - 1

    def of(self, type_: TensorType) -> ValueFactors:
        """Add a factor per dimension of a type."""
        return tuple((self.new(size),) for size in type_.shape)


def elementwise_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """Elementwise: dimension i of all values is one factor; a scalar operand is whole."""
    table = FactorTable()
    shared = table.of(results[0])
    return Factors(
        table.sizes,
        tuple(shared if type_.rank else () for type_ in operands),
        tuple(shared for _ in results),
    )


def passthrough_factors(operands: Types, results: Types, kept: Sequence[bool]) -> Factors:
    """The factors of an op that passes the ``kept`` dimensions on; the others must be whole.

    Further operands, such as start indices and padding values, have no factors.
    """
    table = FactorTable()
    dims = tuple(
        (table.new(size),) if keep else ()
        for size, keep in zip(operands[0].shape, kept, strict=True)
    )
    others = tuple(((),) * type_.rank for type_ in operands[1:])
    return Factors(table.sizes, (dims, *others), (dims,))


@dataclass(frozen=True, slots=True)
class Notation:
    """Factors in einsum-like letters, for ops whose operands have fixed ranks.

    Per dimension a word: one letter per factor, outermost first; a capital for a factor that needs
    replication; ``.`` for a dimension that is whole and shares no factor; ``*`` for any number of
    leading dimensions, the same in all values.

    Attributes:
        text: ``operand, operand -> result, result``; optional operands that are absent are skipped.
        reduction: letters of reduction factors, and how they combine.
        special: letters whose sharded form is another computation than the op itself.
        slots: letters of slots of a cache.
        given: sizes of letters that are the size of no dimension.
    """

    text: str
    reduction: Mapping[str, str] = field(default_factory=dict[str, str])
    special: str = ""
    slots: str = ""
    given: Mapping[str, int] = field(default_factory=dict[str, int])

    def __call__(self, operands: Types, results: Types, attrs: Attrs) -> Factors:
        """The factors for these types; the attributes do not matter."""
        left, _, right = self.text.partition("->")
        values = [*operands, *results]
        texts = [*left.split(",")[: len(operands)], *right.split(",")]
        words = [_words(text, type_) for text, type_ in zip(texts, values, strict=True)]
        sizes = _sizes(words, values, self.given)
        numbers = {name: index for index, name in enumerate(sizes)}
        found = tuple(
            tuple(tuple(numbers[name] for name in word) for word in value) for value in words
        )
        return Factors(
            tuple(sizes.values()),
            found[: len(operands)],
            found[len(operands) :],
            {numbers[name]: kind for name, kind in self.reduction.items()},
            special=frozenset(numbers[name] for name in self.special if name in numbers),
            need_replication=frozenset(
                number for name, number in numbers.items() if name.isupper()
            ),
            slots=frozenset(numbers[name] for name in self.slots if name in numbers),
        )


# The factors of one dimension by name.
_Word = tuple[str, ...]


def _words(text: str, type_: TensorType) -> list[_Word]:
    """A word per dimension; ``*`` expands to the remaining dimensions as ``*0 *1 ...``."""
    out: list[_Word] = []
    parts = text.split()
    rest = type_.rank - len(parts) + 1
    for part in parts:
        if part == "*":
            out += [(f"*{index}",) for index in range(rest)]
        else:
            out.append(tuple(re.findall(r"[A-Za-z]", part)))
    return out


def _sizes(
    words: Sequence[Sequence[_Word]], values: Types, given: Mapping[str, int]
) -> dict[str, Dim]:
    """The size per factor: of a dimension with that factor alone, else the quotient of the rest."""
    sizes: dict[str, Dim] = dict(given)
    dims = [
        (word, size)
        for value, type_ in zip(words, values, strict=True)
        for word, size in zip(value, type_.shape, strict=True)
    ]
    for word, size in dims:
        if len(word) == 1:
            sizes.setdefault(word[0], size)
    for word, size in dims:
        missing = [name for name in word if name not in sizes]
        if missing:
            assert len(missing) == 1, word
            left = size
            for name in word:
                known = sizes.get(name, 1)
                # A dimension of several factors, such as grouped heads, has a static size.
                left = left // known if isinstance(left, int) and isinstance(known, int) else 1
            sizes[missing[0]] = left
    return sizes
