"""Which dimensions of an op's operands and results are cut together: its factors.

A factor is an index the op runs over. A matrix product runs over rows, columns and what it sums:
cut the rows of the left operand, and the rows of the result are cut; cut what is summed on both
sides, and each rank has a part of the sum. A dimension made of several factors lists them, the
outermost first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.ir import Attrs, Dim, TensorType

# The factors of one dimension, the outermost first; none for one that must be whole.
DimFactors = tuple[int, ...]
ValueFactors = tuple[DimFactors, ...]


@dataclass(frozen=True, slots=True)
class Factors:
    """How the dimensions of one op hang together.

    Attributes:
        sizes: of each factor.
        operands, results: per value, per dimension, its factors.
        reduced: how the ranks' results are combined where a factor is cut that no result has.
        linear: sets of operands in which the op is linear: where all of a set are sums not yet
            taken and the other operands are not, so is the result.
        formed: factors of which a part is computed by another form than the op itself.
        fixed: factors that no rank can do a part of, though dimensions do go together along them.
    """

    sizes: tuple[Dim, ...]
    operands: tuple[ValueFactors, ...]
    results: tuple[ValueFactors, ...]
    reduced: Mapping[int, str] = field(default_factory=dict[int, str])
    linear: tuple[frozenset[int], ...] = ()
    formed: frozenset[int] = frozenset()
    fixed: frozenset[int] = frozenset()


class Table:
    """Numbers factors while a rule is written."""

    def __init__(self) -> None:
        self.sizes: list[Dim] = []

    def new(self, size: Dim) -> int:
        """One more factor."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def of(self, type_: TensorType) -> ValueFactors:
        """One more factor for each dimension of a type."""
        return tuple((self.new(size),) for size in type_.shape)


Types = Sequence[TensorType]


@dataclass(frozen=True, slots=True)
class Notation:
    """Factors in letters, for ops whose operands have fixed numbers of dimensions.

    A word for each dimension: one letter a factor, the outermost first; a capital for one that no
    rank can do a part of; ``.`` for a dimension that is whole and goes with no other; ``*`` for any
    number of leading dimensions, the same in all values.

    Attributes:
        operands: a text for each operand; operands beyond them are left out of the op.
        results: a text for each result.
        reduced: letters, and how their parts are combined.
        formed: letters of which a part is computed by another form.
    """

    operands: tuple[str, ...]
    results: tuple[str, ...]
    reduced: Mapping[str, str] = field(default_factory=dict[str, str])
    formed: str = ""

    def factors(self, operands: Types, results: Types) -> Factors:
        """The factors for these types."""
        values = [*operands, *results]
        texts = [*self.operands[: len(operands)], *self.results]
        words = [_words(text, type_) for text, type_ in zip(texts, values, strict=True)]
        sizes = _sizes(words, values)
        numbers = {name: index for index, name in enumerate(sizes)}
        found = tuple(
            tuple(tuple(numbers[name] for name in word) for word in value) for value in words
        )
        return Factors(
            tuple(sizes.values()),
            found[: len(operands)],
            found[len(operands) :],
            {numbers[name]: kind for name, kind in self.reduced.items()},
            formed=frozenset(numbers[name] for name in self.formed if name in numbers),
            fixed=frozenset(number for name, number in numbers.items() if name.isupper()),
        )


# The factors of one dimension by name.
_Word = tuple[str, ...]


def _words(text: str, type_: TensorType) -> list[_Word]:
    """A word for each dimension; ``*`` stands for what is left over, as ``*0 *1 ...``."""
    out: list[_Word] = []
    parts = text.split()
    rest = type_.rank - len(parts) + 1
    for part in parts:
        if part == "*":
            out += [(f"*{index}",) for index in range(rest)]
        else:
            out.append(tuple(re.findall(r"[A-Za-z]", part)))
    return out


def _sizes(words: Sequence[Sequence[_Word]], values: Types) -> dict[str, Dim]:
    """The size of each factor: from a dimension it has to itself, else what the others leave."""
    sizes: dict[str, Dim] = {}
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
                # A dimension of several factors, such as heads in groups, has a number as its size.
                left = left // known if isinstance(left, int) and isinstance(known, int) else 1
            sizes[missing[0]] = left
    return sizes


def together(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """Elementwise: dimension i of every value is cut together; scalars are whole."""
    table = Table()
    shared = table.of(results[0])
    return Factors(
        tuple(table.sizes),
        tuple(shared if type_.rank else () for type_ in operands),
        tuple(shared for _ in results),
    )
