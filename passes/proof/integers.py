"""Integer terms: sums that wrap around, quotients, choices and comparisons."""

from __future__ import annotations

from collections.abc import Callable, Set
from functools import reduce

from graphgen.ir import Dim, DType
from graphgen.ir.dims import Poly, symbol
from graphgen.ir.dtype import Kind
from graphgen.passes.proof.terms import Node, Term, Terms


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
    inside, rest = _split(value, by)
    if by == 1 or terms.within(rest, 0, by - 1):
        return inside
    if isinstance(rest, int):
        return inside + rest // by
    low, high = terms.lowest(rest), terms.highest(rest)
    return inside + terms.atom(
        terms.node("div", rest, by),
        low // by if isinstance(low, int) else None,
        high // by if isinstance(high, int) else high if terms.at_least(rest, 0) else None,
    )


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


# ---- truth values and choices --------------------------------------------------------------------


def at_most_zero(terms: Terms, value: Dim) -> bool | Node:
    """``value <= 0``."""
    if terms.at_most(value, 0):
        return True
    if terms.at_least(value, 1):
        return False
    chosen = _of_choice(terms, value, at_most_zero)
    return terms.node("le0", value) if chosen is None else chosen


def is_zero(terms: Terms, value: Dim) -> bool | Node:
    """``value == 0``."""
    if value == 0:
        return True
    if terms.at_most(value, -1) or terms.at_least(value, 1):
        return False
    chosen = _of_choice(terms, value, is_zero)
    if chosen is not None:
        return chosen
    first = value.terms[0][1] if isinstance(value, Poly) else 1
    return terms.node("eq0", value if first > 0 else value * -1)


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
    parts = {*_conjuncts(a), *_conjuncts(b)}
    facts = {part for part in parts if part.kind not in ("not", "if")}
    if any(negated(terms, fact) in facts for fact in facts):
        return False
    for part in sorted(parts - facts, key=terms.order):
        known = _assuming(terms, part, facts)
        if known is not part:
            others = [other for other in parts if other is not part]
            return reduce(lambda x, y: both(terms, x, y), others, known)
    ordered = sorted(parts, key=terms.order)
    return ordered[0] if len(ordered) == 1 else terms.node("and", *ordered)


def _assuming(terms: Terms, value: Node, facts: Set[Node]) -> bool | Node:
    """``value`` where all of ``facts`` hold."""
    if value in facts:
        return True
    if negated(terms, value) in facts:
        return False
    if value.kind == "not":
        return negated(terms, _assuming(terms, _node(value.args[0]), facts))
    if value.kind == "and":
        parts = [_assuming(terms, part, facts) for part in _conjuncts(value)]
        return reduce(lambda x, y: both(terms, x, y), parts)
    if value.kind == "if":
        which, *branches = (_assuming(terms, _node(x), facts) for x in value.args)
        return _truth(choose(terms, which, *branches))
    return value


def _conjuncts(value: Node) -> list[Node]:
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
    node = terms.node("if", which, yes, no)
    if not isinstance(yes, int | Poly) or not isinstance(no, int | Poly):
        return node
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
