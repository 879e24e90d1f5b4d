"""Integer terms: sums that wrap around, quotients, choices and comparisons."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from functools import reduce

from graphgen.ir import Dim, DType
from graphgen.ir.dims import Poly, symbol, symbols
from graphgen.ir.dtype import Kind
from graphgen.passes.proof.terms import ABSENT, Node, Term, Terms


def range_of(dtype: DType) -> tuple[int, int]:
    """The lowest and highest number of an integer type."""
    if dtype.kind is Kind.SIGNED:
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def fit(terms: Terms, value: Dim, dtype: DType) -> Dim:
    """``value`` modulo 2^bits, in the range of an integer type; itself where that is known."""
    low, high = range_of(dtype)
    if terms.within(value, low, high):
        return value
    return mod(terms, value + -low, 1 << dtype.bits) + low


def div(terms: Terms, value: Dim, by: int) -> Dim:
    """The quotient by a positive number, rounded down."""
    nested = _quotient_of(terms, value) if by != 1 else None
    if nested is not None:
        # (a div n + c) div m is (a + n * c) div (n * m).
        dividend, inner = nested
        return div(terms, dividend, by * inner)
    inside, rest = _split(value, by)
    if by == 1 or terms.within(rest, 0, by - 1):
        return inside
    if isinstance(rest, int):
        return inside + rest // by
    for step, multiple, less in _by_digits(rest):
        if by % step == 0 and terms.within(less, 0, step - 1):
            # (step * a + c) div by is a div (by / step), for c below the step.
            return inside + div(terms, multiple, by // step)
    low, high = terms.lowest(rest), terms.highest(rest)
    return inside + terms.atom(
        terms.node("div", rest, by),
        low // by if isinstance(low, int) else None,
        high // by if isinstance(high, int) else high if terms.at_least(rest, 0) else None,
    )


def _quotient_of(terms: Terms, value: Dim) -> tuple[Dim, int] | None:
    """``(a + n * c, n)`` for a value ``a div n + c`` with a number c."""
    if not isinstance(value, Poly):
        return None
    parts = dict(value.terms)
    constant = parts.pop((), 0)
    if len(parts) != 1:
        return None
    ((monomial, factor),) = parts.items()
    node = terms.atoms.get(monomial[0]) if len(monomial) == 1 and factor == 1 else None
    if node is None or node.kind != "div":
        return None
    dividend, inner = node.args
    assert isinstance(inner, int)
    return _integer(dividend) + inner * constant, inner


def mod(terms: Terms, value: Dim, by: int) -> Dim:
    """The rest of a quotient by a positive number, rounded down; at least 0."""
    return value + div(terms, value, by) * -by


def div_by_size(terms: Terms, value: Dim, by: Dim) -> Dim | None:
    """The quotient by a size, rounded down; ``None`` where the normal form has none."""
    if isinstance(by, int):
        return div(terms, value, by)
    if len(by.terms) != 1 or by.terms[0][1] != 1:
        return None
    factors = by.terms[0][0]
    inside: Dim = 0
    if isinstance(value, Poly):
        for monomial, coefficient in value.terms:
            left = _without(monomial, factors)
            if left is not None:
                inside = inside + _monomial(left, coefficient)
    rest = value + inside * by * -1
    return inside if terms.at_least(rest, 0) and terms.at_most(rest, by + -1) else None


def _monomial(names: tuple[str, ...], coefficient: int) -> Dim:
    out: Dim = coefficient
    for name in names:
        out = out * symbol(name)
    return out


def _without(monomial: tuple[str, ...], factors: tuple[str, ...]) -> tuple[str, ...] | None:
    """A product without some of its factors; ``None`` if it lacks one."""
    left = list(monomial)
    for factor in factors:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


def _split(value: Dim, by: int) -> tuple[Dim, Dim]:
    """``(inside, rest)`` with value = by * inside + rest; the rest has small coefficients."""
    if isinstance(value, int):
        return value // by, value % by
    inside: Dim = 0
    for monomial, coefficient in value.terms:
        inside = inside + _monomial(monomial, coefficient // by)
    return inside, value + inside * -by


# ---- the smaller and the larger one --------------------------------------------------------------


def smaller(terms: Terms, a: Dim, b: Dim) -> Dim:
    """The smaller one of two integers."""
    return _extreme(terms, a, b, "min")


def larger(terms: Terms, a: Dim, b: Dim) -> Dim:
    """The larger one of two integers."""
    return _extreme(terms, a, b, "max")


def _extreme(terms: Terms, a: Dim, b: Dim, kind: str) -> Dim:
    if terms.at_most(a, b):
        return a if kind == "min" else b
    if terms.at_most(b, a):
        return b if kind == "min" else a
    if isinstance(a, int):
        a, b = b, a
    inner = _extreme_of(terms, a) if isinstance(b, int) else None
    if inner is not None and isinstance(b, int):
        # Limits of limits: the lower limit is taken first.
        within, limit = inner.args
        assert isinstance(limit, int)
        value = _integer(within)
        if inner.kind == kind:
            return _extreme(terms, value, (min if kind == "min" else max)(limit, b), kind)
        if kind == "max" and limit >= b:
            return smaller(terms, larger(terms, value, b), limit)
    ordered = (a, b) if isinstance(b, int) else tuple(sorted((a, b), key=str))
    lows, highs = ([end(x) for x in ordered] for end in (terms.lowest, terms.highest))
    low, high = _both_ends(lows, kind), _both_ends(highs, kind)
    return terms.atom(terms.node(kind, *ordered), low, high)


def _both_ends(ends: list[Dim | None], kind: str) -> Dim | None:
    """A bound of the smaller or larger one, from bounds of both, if they are numbers."""
    numbers = [end for end in ends if isinstance(end, int)]
    if len(numbers) == len(ends):
        return min(numbers) if kind == "min" else max(numbers)
    return None


def _extreme_of(terms: Terms, value: Dim) -> Node | None:
    """The node of an integer that is the smaller or larger one of one and a number."""
    if not isinstance(value, Poly) or len(value.terms) != 1 or value.terms[0][1] != 1:
        return None
    node = terms.atoms.get(value.terms[0][0][0]) if len(value.terms[0][0]) == 1 else None
    limited = node is not None and node.kind in ("min", "max") and isinstance(node.args[1], int)
    return node if limited else None


def _integer(value: object) -> Dim:
    assert isinstance(value, int | Poly)
    return value


# ---- truth values and choices --------------------------------------------------------------------


def at_most_zero(terms: Terms, value: Dim) -> bool | Node:
    """``value <= 0``."""
    if terms.at_most(value, 0):
        return True
    if terms.at_least(value, 1):
        return False
    chosen = _of_choice(terms, value, at_most_zero)
    if chosen is not None:
        return chosen
    dividend = _of_quotient(terms, value)
    if dividend is not None:
        return at_most_zero(terms, dividend)
    for by, multiple, rest in _by_digits(value):
        # by * multiple <= -rest
        if terms.within(rest, 1 - by, 0):
            return at_most_zero(terms, multiple)
        if terms.within(rest, 1, by):
            return at_most_zero(terms, multiple + 1)
    return terms.node("le0", value)


def _of_quotient(terms: Terms, value: Dim) -> Dim | None:
    """An integer that is at most 0 where a value with one quotient in it is, without this."""
    if not isinstance(value, Poly):
        return None
    quotients = [
        (name, coefficient, node)
        for (name, *more), coefficient in [(m, c) for m, c in value.terms if m]
        if not more and (node := terms.atoms.get(name)) is not None and node.kind == "div"
    ]
    if len(quotients) != 1 or abs(quotients[0][1]) != 1:
        return None
    name, sign, node = quotients[0]
    dividend, by = _integer(node.args[0]), node.args[1]
    assert isinstance(by, int)
    rest = value + symbol(name) * -sign
    if symbols([rest]) & (symbols([dividend]) | {name}):
        return None
    # a div n <= -rest is a <= n - 1 - n * rest; rest <= a div n is n * rest <= a.
    return dividend + rest * by + (1 - by) if sign > 0 else rest * by + dividend * -1


def is_zero(terms: Terms, value: Dim) -> bool | Node:
    """``value == 0``."""
    if value == 0:
        return True
    if terms.at_most(value, -1) or terms.at_least(value, 1):
        return False
    chosen = _of_choice(terms, value, is_zero)
    if chosen is not None:
        return chosen
    entries = _of_entries(terms, value) if terms.distinct else None
    if entries is not None:
        return entries
    for by, multiple, rest in _by_digits(value):
        # Of the multiples of a number only 0 is in the range of the rest.
        if terms.within(rest, 1 - by, by - 1):
            return both(terms, is_zero(terms, multiple), is_zero(terms, rest))
    first = value.terms[0][1] if isinstance(value, Poly) else 1
    return terms.node("eq0", value if first > 0 else value * -1)


def _of_entries(terms: Terms, value: Dim) -> bool | Node | None:
    """Equality of two elements of a table without equal ones: that of their places.

    ``None`` for an integer that is not the difference of such elements.
    """
    if not isinstance(value, Poly) or len(value.terms) != 2:
        return None
    nodes = [terms.atoms.get(m[0]) for m, _ in value.terms if len(m) == 1]
    found = sorted((x for x in nodes if x is not None), key=lambda x: x.kind, reverse=True)
    if sorted(factor for _, factor in value.terms) != [-1, 1] or len(found) != 2:
        return None
    one, other = found
    if one.kind != "at" or one.args[0] not in terms.distinct or other.args[:2] != one.args[:2]:
        return None
    terms.rules.add("elements of a table are distinct")
    if other.kind == ABSENT:
        return False
    if other.kind != "at":
        return None
    out: bool | Node = True
    for i, j in zip(one.args[2:], other.args[2:], strict=True):
        out = both(terms, out, is_zero(terms, _integer(i) + _integer(j) * -1))
    return out


def _by_digits(value: Dim) -> Iterator[tuple[int, Dim, Dim]]:
    """``(by, multiple, rest)`` with value = by * multiple + rest, as the digits of a number are."""
    if not isinstance(value, Poly):
        return
    for by in sorted({abs(c) for m, c in value.terms if m and abs(c) > 1}):
        multiple: Dim = 0
        for monomial, coefficient in value.terms:
            if monomial and coefficient % by == 0:
                multiple = multiple + _monomial(monomial, coefficient // by)
        rest = value + multiple * -by
        if multiple == 0:
            continue
        # A constant may belong to either: the rest has its lowest or its highest multiple.
        constant = dict(rest.terms).get((), 0) if isinstance(rest, Poly) else rest
        for moved in sorted({0, constant // by, -(-constant // by)}):
            yield by, multiple + moved, rest + moved * -by


def _of_choice(
    terms: Terms, value: Dim, judge: Callable[[Terms, Dim], bool | Node]
) -> bool | Node | None:
    """``judge`` of either branch of a choice between an integer and a constant.

    Such a choice marks what is missing, as -1 does among the positions of slots. Other choices stay
    one atom: nested ones have exponentially many branches.

    Args:
        value: an integer that may have such a choice as a summand.
        judge: :func:`at_most_zero` or :func:`is_zero`.

    Returns:
        ``None`` where there is no such choice.
    """
    if not isinstance(value, Poly):
        return None
    for monomial, coefficient in value.terms:
        node = terms.atoms.get(monomial[0]) if len(monomial) == 1 else None
        if node is None or node.kind != "if" or not any(isinstance(x, int) for x in node.args[1:]):
            continue
        which, yes, no = node.args
        if not isinstance(yes, int | Poly) or not isinstance(no, int | Poly):
            continue
        rest = value + symbol(monomial[0]) * -coefficient
        parts = [judge(terms, rest + branch * coefficient) for branch in (yes, no)]
        return _truth(choose(terms, _truth(which), *parts))
    return None


def _truth(value: object) -> bool | Node:
    assert isinstance(value, bool | Node)
    return value


def negated(terms: Terms, value: bool | Node) -> bool | Node:
    """Logical not."""
    if isinstance(value, bool):
        return not value
    if value.kind == "not":
        return _node(value.args[0])
    if value.kind == "le0":
        integer = value.args[0]
        assert isinstance(integer, int | Poly)
        return terms.node("le0", integer * -1 + 1)
    return terms.node("not", value)


def both(terms: Terms, a: bool | Node, b: bool | Node) -> bool | Node:
    """Logical and."""
    if isinstance(a, bool) or isinstance(b, bool):
        return (b if a is True else False) if isinstance(a, bool) else (a if b else False)
    parts = {*conjuncts(a), *conjuncts(b)}
    facts = {part for part in parts if part.kind not in ("not", "if")}
    if any(negated(terms, fact) in facts for fact in facts):
        return False
    joined = _joined_digits(terms, facts)
    if joined is not None:
        left, made = joined
        rest = sorted(parts - left, key=terms.order)
        return reduce(lambda x, y: both(terms, x, y), rest, made)
    implied = [fact for fact in facts if fact.kind == "le0" and _implied(terms, fact, facts)]
    parts.difference_update(implied)
    facts.difference_update(implied)
    for part in sorted(parts - facts, key=terms.order):
        known = _assuming(terms, part, facts)
        if known is not part:
            others = [other for other in parts if other is not part]
            return reduce(lambda x, y: both(terms, x, y), others, known)
    ordered = sorted(parts, key=terms.order)
    return ordered[0] if len(ordered) == 1 else terms.node("and", *ordered)


def _joined_digits(terms: Terms, facts: Set[Node]) -> tuple[Set[Node], bool | Node] | None:
    """Two facts, and the one that says the same of a quotient and its rest.

    ``x div n = c`` and ``x - n * (x div n) = r`` are ``x = n * c + r``, for 0 <= r < n.
    """
    zeros = [(fact, _integer(fact.args[0])) for fact in facts if fact.kind == "eq0"]
    if len(zeros) < 2:
        return None
    for fact, value in sorted(zeros, key=lambda x: terms.order(x[0])):
        for name, sign, node in _quotients(terms, value):
            dividend, by = _integer(node.args[0]), node.args[1]
            assert isinstance(by, int)
            quotient = (value + symbol(name) * -sign) * -sign
            for other, whole in zeros:
                if other is fact or name not in symbols([whole]):
                    continue
                for rest in (dividend + symbol(name) * -by + whole * way for way in (-1, 1)):
                    if name not in symbols([quotient]) and terms.within(rest, 0, by - 1):
                        made = is_zero(terms, dividend + quotient * -by + rest * -1)
                        return {fact, other}, made
    return None


def _quotients(terms: Terms, value: Dim) -> Iterator[tuple[str, int, Node]]:
    """The quotients that are summands of an integer with a sign alone."""
    for monomial, coefficient in value.terms if isinstance(value, Poly) else ():
        node = terms.atoms.get(monomial[0]) if len(monomial) == 1 else None
        if node is not None and node.kind == "div" and abs(coefficient) == 1:
            yield monomial[0], coefficient, node


def _implied(terms: Terms, fact: Node, facts: Set[Node]) -> bool:
    """True if ``value <= 0`` follows from an integer that is zero."""
    value = fact.args[0]
    assert isinstance(value, int | Poly)
    for other in facts:
        zero = other.args[0]
        if other.kind != "eq0" or not isinstance(zero, Poly):
            continue
        if symbols([zero]).isdisjoint(symbols([value])):
            continue
        if terms.at_most(value + zero, 0) or terms.at_most(value + zero * -1, 0):
            return True
    return False


def _assuming(terms: Terms, value: Node, facts: Set[Node]) -> bool | Node:
    """``value`` where all of ``facts`` hold."""
    if value in facts:
        return True
    if negated(terms, value) in facts:
        return False
    if value.kind == "not":
        return negated(terms, _assuming(terms, _node(value.args[0]), facts))
    if value.kind == "and":
        parts = [_assuming(terms, part, facts) for part in conjuncts(value)]
        return reduce(lambda x, y: both(terms, x, y), parts)
    if value.kind == "if":
        which, *branches = (_assuming(terms, _node(x), facts) for x in value.args)
        return _truth(choose(terms, which, *branches))
    return value


def conjuncts(value: Node) -> list[Node]:
    """The truth values that a conjunction is made of."""
    return [x for x in value.args if isinstance(x, Node)] if value.kind == "and" else [value]


def either(terms: Terms, a: bool | Node, b: bool | Node) -> bool | Node:
    """Logical or."""
    return negated(terms, both(terms, negated(terms, a), negated(terms, b)))


def choose(terms: Terms, which: bool | Node, yes: Term, no: Term) -> Term:
    """``yes`` where ``which`` holds, ``no`` elsewhere."""
    if isinstance(which, bool):
        return yes if which else no
    if yes is no or (yes == no and type(yes) is type(no)):
        return yes
    if which.kind == "not":
        which, yes, no = _node(which.args[0]), no, yes
    truth = isinstance(yes, bool) or isinstance(no, bool)
    if truth and isinstance(yes, bool | Node) and isinstance(no, bool | Node):
        return either(terms, both(terms, which, yes), both(terms, negated(terms, which), no))
    if not isinstance(yes, int | Poly) or not isinstance(no, int | Poly):
        return terms.node("if", which, yes, no)
    if which.kind == "le0":
        gap, less = _integer(which.args[0]), yes + no * -1
        if gap in (less, less + 1):
            return smaller(terms, yes, no)
        if gap in (less * -1, less * -1 + 1):
            return larger(terms, yes, no)
    node = terms.node("if", which, yes, no)
    lows, highs = ([end(x) for x in (yes, no)] for end in (terms.lowest, terms.highest))
    return terms.atom(node, _end(terms, lows, low=True), _end(terms, highs, low=False))


def _node(value: object) -> Node:
    assert isinstance(value, Node)
    return value


def _end(terms: Terms, ends: list[Dim | None], *, low: bool) -> Dim | None:
    """The lower or upper one of two bounds, if it is known which."""
    a, b = ends
    if a is None or b is None:
        return None
    if terms.at_most(a, b):
        return a if low else b
    if terms.at_most(b, a):
        return b if low else a
    return None
