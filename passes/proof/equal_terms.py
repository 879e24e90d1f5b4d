"""Comparison of terms in real arithmetic that are equal by other means than their normal form.

Terms that are made alike are equal if their parts are. Sums are compared as the sums of their
parts, where tables part the range of a variable, then multiplied out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, permutations

from graphgen.ir.dims import Poly
from graphgen.passes.proof.floats import Range as Span
from graphgen.passes.proof.movement_rules import PADDING
from graphgen.passes.proof.products import Expansion, SumOfProduct, TooManyProductsError
from graphgen.passes.proof.rebuild import FLAT, renamed
from graphgen.passes.proof.split_sums import common_step, in_parts, is_irregular, total_range
from graphgen.passes.proof.terms import BINDING, Node, Term, Terms, bound_names, size_name

# Ways to pair the variables of two products that are tried.
_MOST_WAYS = 24


def equal_terms(terms: Terms, a: Term, b: Term) -> bool:
    """True if two elements in real arithmetic are known to be equal."""
    found = _Comparison(terms).equal(a, b)
    if found:
        terms.rules.add("equal terms")
    return found


@dataclass(slots=True)
class _Comparison:
    """Pairs of terms that are compared.

    Attributes:
        terms: of the proof.
        level: the number of terms with bound variables that a pair is in, which names these.
        found: of pairs whether they are known to be equal.
    """

    terms: Terms
    level: int = 0
    found: dict[tuple[Node, Node], bool] = field(default_factory=dict[tuple[Node, Node], bool])

    def equal(self, a: object, b: object) -> bool:
        """True if both are known to be equal."""
        if a is b or (a == b and type(a) is type(b)):
            return True
        first, second = _node(self.terms, a), _node(self.terms, b)
        if not isinstance(first, Node) or not isinstance(second, Node):
            return False
        key = (first, second)
        if key not in self.found:
            self.terms.count(1)
            self.found[key] = False
            self.found[key] = self._equal(first, second)
        return self.found[key]

    def _equal(self, a: Node, b: Node) -> bool:
        if _leaves(self.terms, a) != _leaves(self.terms, b):
            return False
        to = total_range(a) or total_range(b)
        if to is not None:
            return self._totals(to, a, b)
        if (a.kind, len(a.args)) != (b.kind, len(b.args)):
            return False
        if a.kind in BINDING:
            return self._bound(a, b)
        if a.kind == "and":
            return self._matched(*_only(a.args, b.args))
        if a.kind == "fn" and a.args[0] in FLAT:
            return a.args[:3] == b.args[:3] and self._matched(*_only(a.args[3:], b.args[3:]))
        return all(map(self.equal, a.args, b.args))

    def _bound(self, a: Node, b: Node) -> bool:
        """Two terms of one kind that bind variables."""
        names, others = bound_names(a), bound_names(b)
        bounds = self.terms.bounds
        if [bounds[x] for x in names] != [bounds[x] for x in others]:
            return False
        fresh: list[str] = []
        for place, name in enumerate(names):
            last = bounds[name].high
            if bounds[name].low != 0 or last is None:
                return False
            # One name always has one range.
            fresh.append(f"c{self.level}_{place}_{size_name(last + 1)}")
            bounds[fresh[-1]] = bounds[name]
        pairs = [
            (node, dict(zip(held, fresh, strict=True))) for node, held in ((a, names), (b, others))
        ]
        left, right = [
            [renamed(self.terms, x, to) if isinstance(x, Poly | Node) else x for x in node.args]
            for node, to in pairs
        ]
        self.level += 1
        try:
            return all(map(self.equal, left, right))
        finally:
            self.level -= 1

    def _matched(self, left: Sequence[object], right: Sequence[object]) -> bool:
        """True if each of some terms is equal to one of as many others."""
        rest = list(right)
        if len(left) != len(rest):
            return False
        for x in left:
            place = next((n for n, y in enumerate(rest) if self.equal(x, y)), None)
            if place is None:
                return False
            del rest[place]
        return True

    # ---- sums ------------------------------------------------------------------------------------

    def _totals(self, to: Span, a: Node, b: Node) -> bool:
        """Two sums without addends that both have: multiplied out, or by their parts."""
        left, right = _only(_addends(a, to), _addends(b, to))
        if self._matched_sums(left, right) or self._multiplied_out(to, left, right):
            return True
        step = common_step(self.terms, [*left, *right])
        if not step or not any(is_irregular(self.terms, x) for x in (*left, *right)):
            return False
        sides = [[y for x in side for y in self._parts(x, to, step)] for side in (left, right)]
        left, right = _only(*sides)
        return self._matched_sums(left, right) or self._multiplied_out(to, left, right)

    def _parts(self, term: object, to: Span, step: int) -> list[object]:
        """The addends of the parts of a term."""
        if not isinstance(term, Node) or term.kind != "sum" or total_range(term) is None:
            return [term]
        return [x for part in in_parts(self.terms, term, step) for x in _addends(part, to)]

    def _matched_sums(self, left: Sequence[object], right: Sequence[object]) -> bool:
        """Addends in their order: sums over the same variables are compared by what they sum."""
        return len(left) == len(right) and all(map(self._alike, left, right))

    def _alike(self, a: object, b: object) -> bool:
        if not isinstance(a, Node) or not isinstance(b, Node) or "sum" not in (a.kind, b.kind):
            return self.equal(a, b)
        return (
            a.kind == b.kind
            and a.args[:3] == b.args[:3]
            and len(a.args) == len(b.args)
            and (self._bound(a, b))
        )

    def _multiplied_out(self, to: Span, left: Sequence[object], right: Sequence[object]) -> bool:
        """Sums of products in other orders."""
        expansion = Expansion(self.terms, to, f"d{self.level}")
        self.level += 1
        try:
            sides = [
                [expansion.joined(y) for x in side for y in expansion.products(_term(x))]
                for side in (left, right)
            ]
            return self._same_products(*sides)
        except TooManyProductsError:
            return False
        finally:
            self.level -= 1

    def _same_products(self, left: list[SumOfProduct], right: list[SumOfProduct]) -> bool:
        if sorted(map(_form, left)) != sorted(map(_form, right)):
            return False
        rest = list(right)
        for product in left:
            place = next((n for n, x in enumerate(rest) if self._same_product(product, x)), None)
            if place is None:
                return False
            del rest[place]
        return True

    def _same_product(self, a: SumOfProduct, b: SumOfProduct) -> bool:
        if _form(a) != _form(b):
            return False
        ways: list[tuple[list[object], list[object]]] = []
        for names in islice(_pairings(a, b), _MOST_WAYS):
            factors = [renamed(self.terms, x, names) for x in b.factors]
            ways.append(_only(a.factors, factors))
        ways.sort(key=lambda way: len(way[0]))
        return any(self._matched(*way) for way in ways[:2])


def _leaves(terms: Terms, node: Node) -> frozenset[str]:
    """The names and constants that a term depends on; those of padding may be left out."""
    return frozenset(
        x for x in terms.leaves_of(node) if x != repr(0.0) and not x.startswith(PADDING)
    )


def _pairings(a: SumOfProduct, b: SumOfProduct) -> Iterator[dict[str, str]]:
    """The variables of one product by those of another one of the same sizes."""
    for order in permutations(b.ranges):
        if [size for _, size in order] == [size for _, size in a.ranges]:
            yield {old: new for (new, _), (old, _) in zip(a.ranges, order, strict=True)}


def _form(product: SumOfProduct) -> tuple[str, ...]:
    """Sizes and kinds of factors, which equal products have in common."""
    heads = sorted(_head(x) for x in product.factors)
    return (*sorted(str(size) for _, size in product.ranges), *heads)


def _head(factor: Term) -> str:
    if not isinstance(factor, Node):
        return "integer"
    return f"{factor.kind} {factor.args[0]}" if factor.kind in ("at", "fn", "sum") else factor.kind


def _addends(term: object, to: Span) -> list[object]:
    """The addends of a flat sum; a term itself if it is none."""
    if isinstance(term, Node) and term.kind == "fn" and term.args[:2] == ("add", to):
        return list(term.args[3:])
    return [term]


def _only(left: Sequence[object], right: Sequence[object]) -> tuple[list[object], list[object]]:
    """The items that each of two lists has more often than the other."""
    return (
        list((Counter(left) - Counter(right)).elements()),
        list((Counter(right) - Counter(left)).elements()),
    )


def _node(terms: Terms, term: object) -> object:
    """The node of an integer that is one atom."""
    if isinstance(term, Poly) and len(term.terms) == 1 and term.terms[0][1] == 1:
        (names, _) = term.terms[0]
        return terms.atoms.get(names[0], term) if len(names) == 1 else term
    return term


def _term(value: object) -> Term:
    assert isinstance(value, bool | int | Poly | Node)
    return value
