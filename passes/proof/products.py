"""Sums of products in real arithmetic, multiplied out: a list of products, each with its variables.

A sum of products of sums may be taken in several orders, as products of three matrices are. Where
a condition parts the range of a variable, as in a contraction over joined parts, each part has a
product of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from itertools import product as choices

from graphgen.ir import Dim
from graphgen.ir.attrs import EMPTY
from graphgen.ir.dims import Poly, symbols
from graphgen.passes.proof.floats import Range as Span
from graphgen.passes.proof.rebuild import replaced
from graphgen.passes.proof.sums import Range, is_infinite, merged, ranges_of, zero_of
from graphgen.passes.proof.terms import Node, Term, Terms, size_name, walked

# A sum of more products is not multiplied out.
_MOST = 64


class TooManyProductsError(Exception):
    """A sum has too many products."""


@dataclass(frozen=True, slots=True)
class SumOfProduct:
    """The sum of a product over some variables.

    Attributes:
        ranges: the variables with their sizes.
        factors: of the product.
    """

    ranges: tuple[Range, ...]
    factors: tuple[Term, ...]


@dataclass(slots=True)
class Expansion:
    """Terms multiplied out.

    Args:
        terms: of the proof.
        to: the range of sums and products.
        prefix: of the names of variables, which no term has.
    """

    terms: Terms
    to: Span
    prefix: str
    _count: int = field(default=0)

    def products(self, term: Term) -> list[SumOfProduct]:
        """The products whose sum a term is."""
        found = self._products(term)
        if len(found) > _MOST:
            raise TooManyProductsError
        return found

    def _products(self, term: Term) -> list[SumOfProduct]:
        if not isinstance(term, Node) or term.args[1:2] != (self.to,):
            return [] if term is zero_of(self.terms) else [SumOfProduct((), (term,))]
        if term.kind == "fn" and term.args[0] == "add":
            return [x for part in term.args[3:] for x in self.products(_term(part))]
        if term.kind == "sum" and term.args[0] == "add" and term.args[2] is None:
            ranges, body = ranges_of(term)
            return [
                SumOfProduct((*over, *found.ranges), found.factors)
                for over, part in self._pieces(ranges, body)
                for found in self.products(part)
            ]
        if (
            term.kind == "fn"
            and term.args[0] == "multiply"
            and not any(map(is_infinite, map(_term, term.args[3:])))
        ):
            return self._multiplied([self.products(_term(x)) for x in term.args[3:]])
        return [SumOfProduct((), (term,))]

    def joined(self, found: SumOfProduct) -> SumOfProduct:
        """A sum of a product with variables that count as one, such as of ranks and of their parts.

        A factor that is the same in each part, such as the scale of a group, is out of the inner
        sum in one program, and in it in another one.
        """
        if len(found.ranges) < 2 or len(found.factors) < 2:
            return found
        product = self.terms.node("fn", "multiply", self.to, EMPTY, *found.factors)
        body, ranges = merged(self.terms, product, list(found.ranges))
        if len(ranges) == len(found.ranges):
            return found
        flat = isinstance(body, Node) and body.kind == "fn" and body.args[0] == "multiply"
        factors = tuple(map(_term, body.args[3:])) if flat and isinstance(body, Node) else (body,)
        return SumOfProduct(tuple(ranges), factors)

    def _multiplied(self, sides: Sequence[Sequence[SumOfProduct]]) -> list[SumOfProduct]:
        """The product of sums."""
        count = 1
        for side in sides:
            count *= len(side)
        if count > _MOST:
            raise TooManyProductsError
        return [
            SumOfProduct(
                tuple([pair for part in parts for pair in part.ranges]),
                tuple([factor for part in parts for factor in part.factors]),
            )
            for parts in choices(*sides)
        ]

    def _pieces(self, ranges: Sequence[Range], body: Term) -> list[tuple[list[Range], Term]]:
        """The parts of a sum between the places at which a condition on a variable changes."""
        found: list[tuple[list[Range], Term]] = [([], body)]
        for name, size in ranges:
            made: list[tuple[list[Range], Term]] = []
            for over, part in found:
                ends = [0, *condition_ends(self.terms, part, name, size), size]
                for start, end in pairwise(ends):
                    fresh, count = self._fresh(end + start * -1), end + start * -1
                    place = self.terms.variable(fresh, count) + start
                    pair = [] if count == 1 else [(fresh, count)]
                    made.append(([*over, *pair], replaced(self.terms, part, {name: place})))
            found = made
        return found

    def _fresh(self, size: Dim) -> str:
        self._count += 1
        return f"{self.prefix}_{self._count}_{size_name(size)}"


def condition_ends(terms: Terms, body: Term, name: str, size: Dim) -> list[int]:
    """The places within a range from which on a condition on the variable alone is another one."""
    found: set[int] = set()
    for node in walked(terms, body):
        value = node.args[0]
        if node.kind != "le0" or not isinstance(value, Poly) or symbols([value]) != {name}:
            continue
        parts = dict(value.terms)
        constant, factor = parts.pop((), 0), parts.pop((name,), 0)
        if not factor or parts:
            continue
        # factor * v + constant <= 0 holds up to a place, or from one.
        first = -constant // factor + 1 if factor > 0 else -(constant // factor)
        if isinstance(size, int) and 0 < first < size:
            found.add(first)
    return sorted(found)


def _term(value: object) -> Term:
    assert isinstance(value, bool | int | Poly | Node)
    return value
