"""Sums that are compared part by part, where tables and quotients part the range of a variable.

A table says which head of the model each head of a rank is: with padded, repeated or exchanged
heads, sums over the heads of all ranks run over other indices than the sum of the model. Taken
head by head, the table is a number, and both are sums of the same terms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import gcd, prod

from graphgen.ir import Dim
from graphgen.ir.dims import Poly, symbols
from graphgen.passes.proof.floats import Range as Span
from graphgen.passes.proof.rebuild import FLAT, replaced
from graphgen.passes.proof.sums import Range, is_infinite, ranges_of, summed, zero_of
from graphgen.passes.proof.terms import Node, Term, Terms, nodes_of

# A sum of more parts is compared as a whole.
_MOST_PARTS = 256


def equal_by_parts(terms: Terms, a: Term, b: Term) -> bool:
    """True if two elements in real arithmetic are known to be equal, sums taken by their parts."""
    return _Comparison(terms).equal(a, b)


class _Comparison:
    """Pairs of terms that were compared, and found to be unknown."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.unknown: set[tuple[Node, Node]] = set()

    def equal(self, a: object, b: object) -> bool:
        """True if both are known to be equal."""
        if a is b or (a == b and type(a) is type(b)):
            return True
        first, second = _node(self.terms, a), _node(self.terms, b)
        if not isinstance(first, Node) or not isinstance(second, Node):
            return False
        if (first, second) in self.unknown:
            return False
        found = self._equal(first, second)
        if not found:
            self.unknown.add((first, second))
        return found

    def _equal(self, a: Node, b: Node) -> bool:
        to = _total(a) or _total(b)
        if to is not None:
            return self._totals(to, a, b)
        if (a.kind, len(a.args)) != (b.kind, len(b.args)):
            return False
        if a.kind == "fn" and a.args[0] in FLAT:
            # Operands of both are in an order of their own.
            left, right = _only(a.args[3:], b.args[3:])
            return a.args[:3] == b.args[:3] and self._all(left, right)
        # Variables that both bind have one name.
        return self._all(a.args, b.args)

    def _all(self, left: Sequence[object], right: Sequence[object]) -> bool:
        same = len(left) == len(right)
        return same and all(self.equal(x, y) for x, y in zip(left, right, strict=True))

    def _totals(self, to: object, a: Node, b: Node) -> bool:
        """Two sums: without addends that both have, whole or by their parts."""
        left, right = _only(_addends(a, to), _addends(b, to))
        step = common_step(self.terms, [*left, *right])
        if step and any(is_irregular(self.terms, x) for x in (*left, *right)):
            # Parts may be sums of several addends.
            left, right = [
                [y for x in side for y in self._parts(x, to, step)] for side in (left, right)
            ]
            left, right = _only(left, right)
        return len(left) == len(right) and all(map(self._alike, left, right))

    def _alike(self, a: object, b: object) -> bool:
        """Two addends: sums over the same variables are compared by what they sum."""
        if isinstance(a, Node) and isinstance(b, Node) and "sum" in (a.kind, b.kind):
            same = a.kind == b.kind and a.args[:-1] == b.args[:-1]
            return same and self.equal(a.args[-1], b.args[-1])
        return self.equal(a, b)

    def _parts(self, term: object, to: object, step: int) -> list[object]:
        """The addends of the parts of a term."""
        if not isinstance(term, Node) or _total(term) is None or term.kind != "sum":
            return [term]
        return [x for part in in_parts(self.terms, term, step) for x in _addends(part, to)]


def common_step(terms: Terms, addends: Sequence[object]) -> int:
    """The greatest number that divides all places at which sums part; 0 if none does."""
    steps = [
        step
        for x in addends
        if isinstance(x, Node) and x.kind == "sum"
        for _, step in parted(terms, x)
    ]
    return gcd(*steps)


def is_irregular(terms: Terms, addend: object) -> bool:
    """True for a sum in which a condition on a variable parts its range, as of tables."""
    if not isinstance(addend, Node) or addend.kind != "sum":
        return False
    ranges, body = ranges_of(addend)
    names = {name for name, _ in ranges}
    return any(
        node.kind in ("le0", "eq0")
        and isinstance(node.args[0], Poly)
        and (held := symbols([node.args[0]])) <= names
        and len(held) == 1
        for node in nodes_of(terms, body)
    )


def parted(terms: Terms, total: Node) -> list[tuple[Range, int]]:
    """The variables of a sum that are parted, each with a number that divides all such places."""
    ranges, body = ranges_of(total)
    found: list[tuple[Range, int]] = []
    for name, size in ranges:
        if not isinstance(size, int):
            continue
        step = gcd(size, *_places(terms, body, name, size))
        if step < size:
            found.append(((name, size), step))
    return found


def _places(terms: Terms, body: Term, name: str, size: int) -> Iterator[int]:
    """Multiples of these, and 0, are where quotients and conditions on one variable change."""
    for node in nodes_of(terms, body):
        if node.kind not in ("div", "le0", "eq0") or not isinstance(node.args[0], Poly):
            continue
        parts = dict(node.args[0].terms)
        constant, factor = parts.pop((), 0), parts.pop((name,), 0)
        if not factor or parts:
            continue
        if node.kind == "div":
            by = node.args[1]
            assert isinstance(by, int)
            yield by // gcd(by, factor)
            # The first place may be another one.
            yield -(constant // factor) if constant % factor == 0 else 1
        else:
            # factor * v + constant <= 0: up to a place, or from one.
            place = -constant // factor
            first = place + 1 if factor > 0 else -(constant // factor)
            yield from ((first,) if 0 < first < size else ())
            if node.kind == "eq0" and 0 <= place < size:
                yield from (place, place + 1)


def in_parts(terms: Terms, total: Node, step: int) -> list[Term]:
    """The sums over parts of so many values that are not zero; the whole if these are many."""
    kind, to, _ = total.args[:3]
    ranges, body = ranges_of(total)
    assert isinstance(kind, str)
    split = [pair for pair, own in parted(terms, total) if own % step == 0]
    counts = [size // step for _, size in split if isinstance(size, int)]
    if not split or prod(counts) > _MOST_PARTS:
        return [total]
    rest = [pair for pair in ranges if pair not in split]
    fresh = {name: f"{name}_by_{step}" for name, _ in split}
    inner = rest if step == 1 else [*rest, *[(fresh[name], step) for name, _ in split]]
    zero, out = zero_of(terms), list[Term]()
    for place in product(*map(range, counts)):
        values: dict[str, Dim] = {
            name: terms.variable(fresh[name], step) + number * step
            for (name, _), number in zip(split, place, strict=True)
        }
        made = replaced(terms, body, values, dict.fromkeys(_zeros(terms, body, values), zero))
        total = summed(terms, kind, to, inner, made)
        if total is not zero:
            out.append(total)
    return out


def _zeros(terms: Terms, body: Term, values: Mapping[str, Dim]) -> list[Node]:
    """The parts of a term that are zero for these values of variables: at padding.

    A product with a factor that a condition on these variables makes zero is zero, as in ``sums``.
    """
    zero, known = zero_of(terms), dict[Node, bool]()

    def is_zero(term: object) -> bool:
        if not isinstance(term, Node):
            return False
        if term not in known:
            known[term] = vanishes(term)
        return known[term]

    def vanishes(node: Node) -> bool:
        if node.kind == "if":
            which, yes, no = node.args
            assert isinstance(which, Node)
            judged = replaced(terms, which, values)
            left = [yes, no] if isinstance(judged, Node) else [yes if judged else no]
            return all(map(is_zero, left))
        if node.kind == "fn" and node.args[0] == "multiply" and isinstance(node.args[1], Span):
            finite = not any(is_infinite(x) for x in node.args[3:])
            return finite and any(map(is_zero, node.args[3:]))
        if node.kind == "fn" and node.args[0] in ("convert", "negate"):
            return is_zero(node.args[3])
        return node is zero or (_total(node) is not None and all(map(is_zero, _summands(node))))

    return [node for node in nodes_of(terms, body) if node is not zero and is_zero(node)]


def _summands(total: Node) -> Sequence[object]:
    """The addends of a sum, or what is summed."""
    return total.args[3:] if total.kind == "fn" else total.args[-1:]


def _total(node: Node) -> object:
    """What a sum in real arithmetic rounds to, which is a range; ``None`` for other terms."""
    plain = node.kind == "fn" or (node.kind == "sum" and node.args[2] is None)
    to = node.args[1] if plain and node.args[0] == "add" else None
    return to if isinstance(to, Span) else None


def _addends(term: Term, to: object) -> list[object]:
    """The addends of a flat sum; a term itself if it is none."""
    if isinstance(term, Node) and term.kind == "fn" and term.args[:2] == ("add", to):
        return list(term.args[3:])
    return [term]


def _only(left: Sequence[object], right: Sequence[object]) -> tuple[list[object], list[object]]:
    """What each of two lists has more often than the other."""
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
