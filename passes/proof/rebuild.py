"""Terms with variables replaced, and terms where facts hold, in normal form again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import frexp

from graphgen.ir import Dim
from graphgen.ir.dims import Poly, symbol, symbols
from graphgen.ops import OPS
from graphgen.ops.traits import Trait
from graphgen.passes.proof.floats import CHOOSING, Range
from graphgen.passes.proof.integers import (
    at_most_zero,
    both,
    choose,
    conjuncts,
    div,
    is_zero,
    larger,
    negated,
    smaller,
)
from graphgen.passes.proof.terms import BINDING, Node, Term, Terms, bound_names, nodes_of

# Powers of two up to this one have an inverse in every float type of 32 bits.
_EXPONENT = 120
# (terms, node with its parts rebuilt as arguments) -> the term in normal form.
NodeRule = Callable[[Terms, tuple[object, ...]], Term]
NODE_RULES: dict[str, NodeRule] = {}
# Sums and products of floats, flat and in one order.
FLAT = ("add", "multiply")
# The attributes of a minimum or maximum of which the order of operands does not count: in real
# arithmetic both zeros are one.
ANY_ORDER = "any order"
# Integers that a condition may decide.
_DECIDED = ("if", "max", "min")


def node_rule(kind: str) -> Callable[[NodeRule], NodeRule]:
    """Register how a node of this kind is made again from changed parts."""

    def wrap(rule: NodeRule) -> NodeRule:
        def recorded(terms: Terms, args: tuple[object, ...]) -> Term:
            terms.rules.add(f"node {kind}")
            return rule(terms, args)

        NODE_RULES[kind] = recorded
        return rule

    return wrap


def replaced(
    terms: Terms, term: Term, values: Mapping[str, Dim], known: Mapping[Node, Term] | None = None
) -> Term:
    """A term with variables replaced by integers, which hold no variable that the term binds.

    Args:
        terms: of the proof.
        term: the term.
        values: integers by variable.
        known: what nodes with such variables are where these have these values.
    """
    return term if not values else _Rebuilder(terms, values, _known=dict(known or {})).term(term)


def renamed(terms: Terms, term: Term, names: Mapping[str, str]) -> Term:
    """A term with variables replaced by others of the same range: nothing is decided by that."""
    if not names:
        return term
    values: dict[str, Dim] = {old: symbol(new) for old, new in names.items()}
    return _Rebuilder(terms, values, alike=True).term(term)


def where(terms: Terms, term: Term, condition: bool | Node) -> Term:
    """A term that equals ``term`` wherever ``condition`` holds."""
    if isinstance(condition, bool) or isinstance(term, bool | int):
        return term
    key = (term, condition)
    if key not in terms.conditional:
        found = _Rebuilder(terms, {}, tuple(conjuncts(condition))).term(term)
        terms.conditional[key] = found
    found = terms.conditional[key]
    assert isinstance(found, bool | int | Poly | Node)
    return found


def by_each_other(terms: Terms, condition: bool | Node) -> bool | Node:
    """A conjunction with each equation as it is where the other parts hold."""
    if isinstance(condition, bool) or condition.kind != "and":
        return condition
    parts = conjuncts(condition)
    for part in parts:
        if part.kind != "eq0" or not any(
            node.kind in _DECIDED for node in nodes_of(terms, *part.args)
        ):
            continue
        others = reduce(lambda x, y: both(terms, x, y), [x for x in parts if x is not part], True)
        found = _truth(where(terms, part, others))
        if found is not part:
            return by_each_other(terms, both(terms, others, found))
    return condition


@dataclass(slots=True)
class _Rebuilder:
    terms: Terms
    values: Mapping[str, Dim]
    facts: tuple[Node, ...] = ()
    alike: bool = False
    _known: dict[Node, Term] = field(default_factory=dict[Node, Term])
    _integers: dict[str, Dim] = field(default_factory=dict[str, Dim])
    # A term with one of these names may change, and one with all names of a set.
    _names: frozenset[str] = frozenset()
    # Names that a bound variable must not have.
    _taken: frozenset[str] = frozenset()
    _whole: list[frozenset[str]] = field(default_factory=list[frozenset[str]])
    _same: Mapping[str, Dim] = field(default_factory=dict[str, Dim])

    def __post_init__(self) -> None:
        self._names = frozenset(self.values)
        for fact in self.facts:
            if fact.kind in ("le0", "eq0"):
                self._names |= self.terms.symbols_of(fact)
            else:
                self._whole.append(self.terms.symbols_of(fact))
        self._same = _equal_to(self.facts)
        # Renaming gives names that no term has that is renamed.
        if self.alike:
            return
        taken = set(self.values)
        for value in self.values.values():
            taken |= self.terms.symbols_of(value)
        for fact in self.facts:
            taken |= self.terms.symbols_of(fact)
        self._taken = frozenset(taken)

    def term(self, term: Term) -> Term:
        """The term, rebuilt."""
        if isinstance(term, bool | int):
            return term
        return self.integer(term) if isinstance(term, Poly) else self.node(term)

    def integer(self, value: Dim) -> Dim:
        """An integer, rebuilt."""
        if isinstance(value, int):
            return value
        changed = {name: self._symbol(name) for name in symbols([value])}
        if all(isinstance(x, Poly) and x == symbol(name) for name, x in changed.items()):
            return value
        out: Dim = 0
        for monomial, coefficient in value.terms:
            part: Dim = coefficient
            for name in monomial:
                part = part * changed[name]
            out = out + part
        return out

    def _symbol(self, name: str) -> Dim:
        if name not in self._integers:
            self._integers[name] = self._atom(name)
        return self._integers[name]

    def _atom(self, name: str) -> Dim:
        terms, node = self.terms, self.terms.atoms.get(name)
        if name in self._same:
            return self._same[name]
        if node is None:
            return self.values.get(name, symbol(name))
        if self._untouched(node):
            return symbol(name)
        made = self.node(node)
        if isinstance(made, int | Poly):
            return made
        assert isinstance(made, Node), (node, made)
        if made is node:
            return symbol(name)
        bounds = terms.bounds[name]
        ends = [None if end is None else self.integer(end) for end in (bounds.low, bounds.high)]
        return terms.atom(made, *ends)

    def _untouched(self, node: Node) -> bool:
        names = self.terms.symbols_of(node)
        return self._names.isdisjoint(names) and not any(x <= names for x in self._whole)

    def node(self, node: Node) -> Term:
        """A node, rebuilt."""
        if self._untouched(node):
            return node
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = self._made(node)
        return found

    def _made(self, node: Node) -> Term:
        if self.facts:
            known = self._by_fact(node)
            if known is not None:
                return known
            if node.kind == "if":
                return self._choice(node)
            if node.kind in ("min", "max"):
                return self._extreme(node)
        given = node
        if node.kind in BINDING:
            node = self._apart(node)
        args = tuple([self.term(x) if isinstance(x, Node | Poly) else x for x in node.args])
        if all(
            x is y or (x == y and type(x) is type(y)) for x, y in zip(args, node.args, strict=True)
        ):
            # Nothing is put into it, so that its variables may keep their names.
            return self._judged(given)
        made = self._again(node.kind, args)
        if isinstance(made, Node) and node in self.terms.makers:
            self.terms.makers.setdefault(made, self.terms.makers[node])
        if self.facts and node.kind in BINDING and made is not node:
            # A condition that a variable was replaced in may follow from a fact.
            return self.term(made)
        return self._judged(made) if isinstance(made, Node) else made

    def _again(self, kind: str, args: tuple[object, ...]) -> Term:
        """A node made again from changed parts; renamed ones only need the order of names."""
        if not self.alike or kind == "fn":
            rule = NODE_RULES.get(kind)
            return self.terms.node(kind, *args) if rule is None else rule(self.terms, args)
        if kind == "and":
            args = tuple(sorted(map(_term, args), key=self.terms.order))
        elif kind == "eq0" and isinstance(args[0], Poly):
            args = (args[0] * (1 if args[0].terms[0][1] > 0 else -1),)
        return self.terms.node(kind, *args)

    def _apart(self, node: Node) -> Node:
        """The node with other variables, where those it binds have names that are in use."""
        bound = bound_names(node)
        if self._taken.isdisjoint(bound):
            return node
        fresh: dict[str, Dim] = {}
        for name in bound:
            new = f"y_{name}"
            while new in self._taken or new in self.terms.symbols_of(node):
                new += "y"
            self.terms.bounds[new] = self.terms.bounds[name]
            fresh[name] = symbol(new)
        args = [
            _Rebuilder(self.terms, fresh, alike=True).term(x) if isinstance(x, Node | Poly) else x
            for x in node.args
        ]
        return self.terms.node(node.kind, *args)

    def _choice(self, node: Node) -> Term:
        """A choice of which only one branch may be left: the other is not looked at."""
        which, yes, no = node.args
        assert isinstance(which, Node)
        judged = self.node(which)
        if isinstance(judged, bool):
            return self.term(_term(yes if judged else no))
        return choose(self.terms, _truth(judged), self.term(_term(yes)), self.term(_term(no)))

    def _extreme(self, node: Node) -> Term:
        """The smaller or larger one, of which facts may say which it is."""
        a, b = [self.term(_term(x)) for x in node.args]
        assert isinstance(a, int | Poly)
        assert isinstance(b, int | Poly)
        for one, other in ((a, b), (b, a)):
            below = at_most_zero(self.terms, one + other * -1)
            if isinstance(below, Node):
                judged = self._judged(below)
                if isinstance(judged, bool):
                    return one if judged == (node.kind == "min") else other
        return NODE_RULES[node.kind](self.terms, (a, b))

    def _by_fact(self, node: Node) -> bool | None:
        if node in self.facts:
            return True
        opposite = negated(self.terms, node) if node.kind in ("truth", "le0", "eq0") else None
        return False if opposite is not None and opposite in self.facts else None

    def _judged(self, node: Node) -> Term:
        """A truth value that follows from a fact."""
        known = self._by_fact(node) if self.facts else None
        if known is not None:
            return known
        if not self.facts or node.kind not in ("le0", "eq0"):
            return node
        (value,) = node.args
        assert isinstance(value, int | Poly)
        for fact in self.facts:
            if fact.kind != "le0":
                continue
            (bound,) = fact.args
            assert isinstance(bound, int | Poly)
            # bound <= 0 holds.
            if node.kind == "le0" and self.terms.at_most(value + bound * -1, 0):
                return True
            below = value * -1 + bound * -1
            if self.terms.at_most(below, -1):
                # value >= 1.
                return False
            if node.kind == "eq0" and self.terms.at_most(value + bound * -1, -1):
                return False
        return node


def _equal_to(facts: Iterable[Node]) -> dict[str, Dim]:
    """Atoms and variables that facts make equal to something that does not hold them."""
    out: dict[str, Dim] = {}
    for fact in facts:
        if fact.kind != "eq0" or not isinstance(fact.args[0], Poly):
            continue
        value = fact.args[0]
        for monomial, coefficient in value.terms:
            if len(monomial) != 1 or abs(coefficient) != 1 or monomial[0] in out:
                continue
            rest = (value + symbol(monomial[0]) * -coefficient) * -coefficient
            held = symbols([rest])
            if isinstance(rest, int) or (monomial[0] not in held and held.isdisjoint(out)):
                if isinstance(rest, int):
                    out[monomial[0]] = rest
                break
    return out


def _term(value: object) -> Term:
    assert isinstance(value, bool | int | Poly | Node)
    return value


def _truth(value: object) -> bool | Node:
    assert isinstance(value, bool | Node), value
    return value


@node_rule("if")
def _if(terms: Terms, args: tuple[object, ...]) -> Term:
    which, yes, no = args
    return choose(terms, _truth(which), _term(yes), _term(no))


@node_rule("and")
def _and(terms: Terms, args: tuple[object, ...]) -> Term:
    return reduce(lambda a, b: both(terms, a, b), [_truth(x) for x in args])


@node_rule("not")
def _not(terms: Terms, args: tuple[object, ...]) -> Term:
    return negated(terms, _truth(args[0]))


@node_rule("le0")
def _le0(terms: Terms, args: tuple[object, ...]) -> Term:
    assert isinstance(args[0], int | Poly)
    return at_most_zero(terms, args[0])


@node_rule("eq0")
def _eq0(terms: Terms, args: tuple[object, ...]) -> Term:
    assert isinstance(args[0], int | Poly)
    return is_zero(terms, args[0])


@node_rule("min")
def _min(terms: Terms, args: tuple[object, ...]) -> Term:
    a, b = args
    assert isinstance(a, int | Poly)
    assert isinstance(b, int | Poly)
    return smaller(terms, a, b)


@node_rule("max")
def _max(terms: Terms, args: tuple[object, ...]) -> Term:
    a, b = args
    assert isinstance(a, int | Poly)
    assert isinstance(b, int | Poly)
    return larger(terms, a, b)


@node_rule("div")
def _div(terms: Terms, args: tuple[object, ...]) -> Term:
    value, by = args
    assert isinstance(value, int | Poly)
    assert isinstance(by, int)
    return div(terms, value, by)


@node_rule("truth")
def _truth_of(terms: Terms, args: tuple[object, ...]) -> Term:
    inner = args[0]
    return inner if isinstance(inner, bool) else terms.node("truth", inner)


@node_rule("fn")
def _fn(terms: Terms, args: tuple[object, ...]) -> Term:
    name, to, how, *parts = args
    assert isinstance(name, str)
    return function_term(terms, name, to, how, [_term(x) for x in parts])


def function_term(terms: Terms, name: str, to: object, how: object, parts: Sequence[Term]) -> Node:
    """An elementwise op on changed operands."""
    if name == "divide" and isinstance(to, Range):
        inverse = _reciprocal(terms, parts[1])
        if inverse is None and terms.quotients and not _is_const(parts[0]):
            # A quotient is a product: what is divided by is a factor of a sum as any other.
            one = terms.node("const", repr(1.0))
            inverse = terms.node("fn", "divide", to, how, one, parts[1])
        if inverse is not None:
            return flat_function(terms, "multiply", to, how, [inverse, parts[0]])
    if terms.narrow and name == "subtract" and isinstance(to, Range) and parts[0] is parts[1]:
        return terms.node("const", repr(0.0))
    if name in FLAT and isinstance(to, Range):
        return flat_function(terms, name, to, how, parts)
    definition = OPS.get(name)
    chosen = to is None and name in CHOOSING and how != ANY_ORDER
    if definition is not None and definition.has(Trait.COMMUTATIVE) and not chosen:
        parts = sorted(parts, key=terms.order)
    return terms.node("fn", name, to, how, *parts)


def _is_const(term: Term) -> bool:
    return isinstance(term, Node) and term.kind == "const"


def _reciprocal(terms: Terms, term: Term) -> Node | None:
    """One by a constant that is a power of two, which is exact."""
    if not isinstance(term, Node) or not _is_const(term):
        return None
    number = float(str(term.args[0]))
    mantissa, exponent = frexp(number)
    if abs(mantissa) != 0.5 or not -_EXPONENT < exponent <= _EXPONENT:
        return None
    return terms.node("const", repr(1 / number))


# (terms, name, range, attributes, flat operands) -> the term without what cancels, if any does.
Cancel = Callable[[Terms, str, object, object, list[Term]], Term | None]
_CANCEL: list[Cancel] = []


def cancelling(rule: Cancel) -> Cancel:
    """Register what cancels in sums and products where numbers are kept in narrow types."""
    _CANCEL.append(rule)
    return rule


def flat_function(terms: Terms, name: str, to: object, how: object, parts: Sequence[Term]) -> Node:
    """A sum or product of which the order of operands does not count."""
    flat: list[Term] = []
    for part in parts:
        if isinstance(part, Node) and part.kind == "fn" and part.args[:2] == (name, to):
            flat += [_term(x) for x in part.args[3:]]
        else:
            flat.append(part)
    for rule in _CANCEL if terms.narrow and isinstance(to, Range) else ():
        found = rule(terms, name, to, how, flat)
        if isinstance(found, Node):
            return found
    return terms.node("fn", name, to, how, *sorted(flat, key=terms.order))
