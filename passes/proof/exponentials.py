"""Exponentials of differences as quotients, so that any number may be subtracted in a softmax.

``exp(x - m)`` is ``exp(x) / exp(m)``, and no exponential is zero: what is subtracted from scores
of a softmax cancels. So one whose parts have their own maxima, as those of the ranks of a
ring have, is the softmax of all: each part is multiplied by ``exp(own - new)`` before it is added.

A floating-point type has a range, which real arithmetic has not. So ``exp(x - m)`` is taken apart
only where it neither overflows nor makes all terms of a sum vanish: ``m`` is the maximum of all
``x`` of that softmax, and no infinite constant is in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite

from graphgen.ir import RANK, Dim
from graphgen.ir.attrs import EMPTY
from graphgen.passes.proof.floats import Range as Span
from graphgen.passes.proof.integers import choose
from graphgen.passes.proof.rebuild import flat_function, function_term, renamed, replaced
from graphgen.passes.proof.sums import ranges_of, summed
from graphgen.passes.proof.terms import Node, Term, Terms, walked

# More ranks are not compared one by one.
_MOST_RANKS = 16
# A function of two terms that says whether they are known to be equal.
Equal = Callable[[Terms, Term, Term], bool]


def equal_on_each_rank(terms: Terms, a: Term, b: Term, ranks: int, equal: Equal) -> bool:
    """True if two elements are known to be equal on each rank, but for what softmaxes subtract.

    Args:
        terms: of the proof.
        a: an element of the model, in real arithmetic.
        b: of a program of ranks, which divide a sum of the model.
        ranks: their number.
        equal: whether two terms are known to be equal.
    """
    if ranks > _MOST_RANKS or not any(_is_exponential(node) for node in walked(terms, b)):
        return False
    for rank in range(ranks):
        pair = [replaced(terms, x, {RANK: rank}) for x in (a, b)]
        if not _equal_in_parts(terms, pair[0], pair[1], ranks, equal):
            return False
    terms.rules.add("exponentials on each rank")
    return True


def _equal_in_parts(terms: Terms, a: Term, b: Term, parts: int, equal: Equal) -> bool:
    """The same on one rank: sums of the first over variables of a size are taken in parts."""
    left, right = without_shifts(terms, a), without_shifts(terms, b)
    theirs = _sizes(terms, right)
    sizes = [n for n in sorted(_sizes(terms, left)) if n % parts == 0 and n // parts in theirs]
    if left is right or equal(terms, left, right):
        return True
    for size in sizes:
        split = [in_equal_parts(terms, x, size, parts) for x in (left, right)]
        # Factors that a sum had may be those of its parts.
        made = [without_shifts(terms, x) for x in split]
        if made[0] is made[1] or equal(terms, made[0], made[1]):
            return True
    return False


def _sizes(terms: Terms, term: Term) -> set[int]:
    """The sizes of sums in a term."""
    found: set[int] = set()
    for node in walked(terms, term):
        if _total(node) is not None:
            found.update(size for _, size in ranges_of(node)[0] if isinstance(size, int))
    return found


def in_equal_parts(terms: Terms, term: Term, size: int, parts: int) -> Term:
    """A term whose sums over variables of a size are the sums of parts of these.

    Args:
        terms: of the proof.
        term: in real arithmetic.
        size: of the variables, which ``parts`` divides.
        parts: at least 1.
    """
    return _Parted(terms, size, parts).term(term)


def without_shifts(terms: Terms, term: Term) -> Term:
    """A term in real arithmetic without numbers that are subtracted in exponentials and cancel."""
    return _Shifts(terms, shifts_of(terms, term)).term(term)


def shifts_of(terms: Terms, term: Term) -> frozenset[tuple[Node, Node]]:
    """The pairs ``(x, m)`` of exponentials ``exp(x - m)`` in a term that may be taken apart.

    ``m`` is the maximum over one variable of terms that ``x`` is one of, or of some terms that are
    all the ``x`` of such an exponential; and no infinite constant is in either.
    """
    taken: dict[Node, set[Node]] = {}
    for node in walked(terms, term):
        if _is_exponential(node):
            to, inner = node.args[1], node.args[3]
            assert isinstance(to, Span)
            parts = inner.args[3:] if isinstance(inner, Node) and _is_difference(inner, to) else ()
            if len(parts) == 2 and all(isinstance(x, Node) for x in parts):
                x, shift = parts
                assert isinstance(x, Node)
                assert isinstance(shift, Node)
                taken.setdefault(shift, set()).add(x)
    return frozenset(
        (x, shift)
        for shift, every in taken.items()
        if not _has_infinity(terms, shift)
        for x in every
        if _is_one_of(terms, x, shift) or every == _largest_of(shift)
    )


def _largest_of(shift: Node) -> set[object]:
    """The terms that a term is the largest of; none for other terms."""
    if shift.kind == "fn" and shift.args[0] == "maximum" and shift.args[1] is None:
        return set(shift.args[3:])
    return set()


def _is_one_of(terms: Terms, x: Node, shift: Node) -> bool:
    """True if a term is one of those that another one is the maximum of, over one variable."""
    if shift.kind != "sum" or shift.args[:3] != ("maximum", None, None):
        return False
    ranges, body = ranges_of(shift)
    if len(ranges) != 1:
        return False
    ((name, size),) = ranges
    last = terms.bounds[name].high
    for other in sorted(terms.symbols_of(x) - terms.symbols_of(shift)):
        known = terms.bounds.get(other)
        same = known is not None and (known.low, known.high) == (0, last) and last == size + -1
        if same and renamed(terms, body, {name: other}) is x:
            return True
    return False


def _has_infinity(terms: Terms, term: Node) -> bool:
    """True if a constant in a term is infinite or NaN."""
    return any(
        node.kind == "const" and not isfinite(float(str(node.args[0])))
        for node in walked(terms, term)
    )


@dataclass(slots=True)
class _Rewriter:
    """Terms made again from the leaves on: sums, choices and functions of floats."""

    terms: Terms
    _known: dict[Node, Term] = field(default_factory=dict[Node, Term])

    def term(self, term: object) -> Term:
        """The term made again."""
        assert isinstance(term, bool | int | Node) or term is not None
        if not isinstance(term, Node):
            return term  # pyright: ignore[reportReturnType]
        found = self._known.get(term)
        if found is None:
            self.terms.count(1)
            found = self._known[term] = self.node(term)
        return found

    def node(self, node: Node) -> Term:
        """A node made again."""
        if node.kind == "if":
            which, yes, no = node.args
            assert isinstance(which, bool | Node)
            return choose(self.terms, which, self.term(yes), self.term(no))
        if node.kind == "fn" and isinstance(node.args[1], Span):
            parts = [self.term(x) for x in node.args[3:]]
            return self.function(str(node.args[0]), node.args[1], node.args[2], parts)
        to = _total(node)
        return node if to is None else self.total(to, node)

    def function(self, name: str, to: Span, how: object, parts: list[Term]) -> Term:
        """A function of terms that are made again."""
        return function_term(self.terms, name, to, how, parts)

    def total(self, to: Span, node: Node) -> Term:
        """A sum of what is made again."""
        ranges, body = ranges_of(node)
        return summed(self.terms, "add", to, ranges, self.term(body))


@dataclass(slots=True)
class _Parted(_Rewriter):
    """Sums over variables of a size, as the sums of parts."""

    size: int = 0
    parts: int = 1

    def __init__(self, terms: Terms, size: int, parts: int) -> None:
        self.terms, self._known = terms, {}
        self.size, self.parts = size, parts

    def total(self, to: Span, node: Node) -> Term:
        """The sum of the sums over each part of one variable."""
        ranges, body = ranges_of(node)
        place = next((n for n, (_, size) in enumerate(ranges) if size == self.size), None)
        made = self.term(body)
        if place is None:
            return summed(self.terms, "add", to, ranges, made)
        (name, _), step = ranges[place], self.size // self.parts
        rest = [*ranges[:place], *ranges[place + 1 :]]
        fresh = f"{name}_by_{step}"
        over = [*rest, (fresh, step)] if step > 1 else rest
        found: list[Term] = []
        for number in range(self.parts):
            at: Dim = self.terms.variable(fresh, step) + number * step
            found.append(
                summed(self.terms, "add", to, list(over), replaced(self.terms, made, {name: at}))
            )
        return found[0] if len(found) == 1 else flat_function(self.terms, "add", to, EMPTY, found)


@dataclass(slots=True)
class _Shifts(_Rewriter):
    """Exponentials of differences as products, without what cancels."""

    shifts: frozenset[tuple[Node, Node]] = frozenset()

    def __init__(self, terms: Terms, shifts: frozenset[tuple[Node, Node]]) -> None:
        self.terms, self._known, self.shifts = terms, {}, shifts

    def node(self, node: Node) -> Term:
        """A node made again, an exponential of a difference as a product."""
        if not _is_exponential(node):
            return _Rewriter.node(self, node)
        to, inner = node.args[1], node.args[3]
        assert isinstance(to, Span)
        parts = inner.args[3:] if isinstance(inner, Node) and _is_difference(inner, to) else ()
        if parts not in self.shifts:
            return node
        powers = [
            function_term(self.terms, "exponential", to, node.args[2], [_term(x)]) for x in parts
        ]
        return self._product(to, [powers[0], self._inverse(to, powers[1])])

    def function(self, name: str, to: Span, how: object, parts: list[Term]) -> Term:
        """A function, as a product where it is one."""
        if name == "divide":
            return self._product(to, [parts[0], self._inverse(to, parts[1])])
        if name == "multiply":
            return self._product(to, parts)
        if name == "add":
            return self._sum(to, parts)
        return function_term(self.terms, name, to, how, parts)

    def total(self, to: Span, node: Node) -> Term:
        """A sum, whose factors that do not depend on its variables are out of it."""
        ranges, body = ranges_of(node)
        made = summed(self.terms, "add", to, ranges, self.term(body))
        return self._product(to, [made])

    def _inverse(self, to: Span, term: Term) -> Term:
        """One by a term, factor by factor."""
        factors = _operands(term, "multiply", to)
        if len(factors) > 1:
            return self._product(to, [self._inverse(to, x) for x in factors])
        held = _inverted(term, to)
        if held is not None and _is_exponential(held):
            return held
        if isinstance(term, Node) and term.kind == "const":
            return function_term(self.terms, "divide", to, EMPTY, [self._one(), term])
        return self.terms.node("fn", "divide", to, EMPTY, self._one(), term)

    def _one(self) -> Node:
        return self.terms.node("const", repr(1.0))

    def _product(self, to: Span, parts: Sequence[Term]) -> Term:
        """A product without an exponential and its inverse."""
        factors = Counter(x for part in parts for x in _operands(part, "multiply", to))
        factors.pop(self._one(), None)
        for factor in list(factors):
            held = _inverted(factor, to)
            if held is not None and _is_exponential(held):
                both = min(factors[factor], factors[held])
                factors[factor] -= both
                factors[held] -= both
        left = list(factors.elements())
        if len(left) < 2:
            return left[0] if left else self._one()
        return flat_function(self.terms, "multiply", to, EMPTY, left)

    def _sum(self, to: Span, parts: Sequence[Term]) -> Term:
        """A sum, with the inverses of exponentials that all addends have as factors of it."""
        addends = [x for part in parts for x in _operands(part, "add", to)]
        factors = [Counter(_operands(x, "multiply", to)) for x in addends]
        common = factors[0]
        for each in factors[1:]:
            common = common & each
        shared = Counter(
            {x: n for x, n in common.items() if _is_exponential(_inverted(x, to) or x)}
        )
        if not shared:
            return flat_function(self.terms, "add", to, EMPTY, addends)
        rest = [self._product(to, list((each - shared).elements())) for each in factors]
        made = flat_function(self.terms, "add", to, EMPTY, rest)
        return self._product(to, [made, *shared.elements()])


def _operands(term: Term, name: str, to: Span) -> list[Term]:
    """The operands of a flat sum or product; a term itself if it is none."""
    if isinstance(term, Node) and term.kind == "fn" and term.args[:2] == (name, to):
        return [_term(x) for x in term.args[3:]]
    return [term]


def _inverted(term: Term, to: Span) -> Node | None:
    """The term that one is divided by."""
    if not isinstance(term, Node) or term.kind != "fn" or term.args[:2] != ("divide", to):
        return None
    one, held = term.args[3:]
    is_one = isinstance(one, Node) and one.kind == "const" and float(str(one.args[0])) == 1.0
    return held if is_one and isinstance(held, Node) else None


def _is_exponential(term: object) -> bool:
    """True for an exponential in real arithmetic, which is not zero."""
    if not isinstance(term, Node) or term.kind != "fn" or term.args[0] != "exponential":
        return False
    return isinstance(term.args[1], Span)


def _is_difference(term: Node, to: Span) -> bool:
    return term.kind == "fn" and term.args[:2] == ("subtract", to)


def _total(node: Node) -> Span | None:
    """The range of a sum over variables in real arithmetic; ``None`` for other terms."""
    if node.kind != "sum" or node.args[0] != "add" or node.args[2] is not None:
        return None
    return node.args[1] if isinstance(node.args[1], Span) else None


def _term(value: object) -> Term:
    assert isinstance(value, bool | int | Node) or value is not None
    return value  # pyright: ignore[reportReturnType]
