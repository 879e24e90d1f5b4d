"""Checks of the normal form: what functions make of terms has their value at all variables.

Terms are drawn from a grammar over four variables and three arguments, and evaluated at every value
of the variables that are in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from itertools import product
from math import isclose, prod
from random import Random

import numpy as np

from graphgen.ir import Dim, TensorType
from graphgen.ir.attrs import EMPTY, attrs_of
from graphgen.ir.dims import Poly, symbol, symbols
from graphgen.ir.dtype import f32, pred, s8, s32, u8
from graphgen.ir.types import tensor
from graphgen.passes.proof import integers, rebuild, sums, whole_numbers
from graphgen.passes.proof.floats import span, whole_number
from graphgen.passes.proof.indexing_rules import written
from graphgen.passes.proof.integers import range_of
from graphgen.passes.proof.rebuild import NODE_RULES
from graphgen.passes.proof.terms import Node, Term, Terms
from tests.passes.proof.rule_checks import Number, TermValues

SIZES = {"a": 3, "c": 3, "b": 4, "d": 4}
_RANDOM = np.random.default_rng(0)
ARRAYS = {
    "x": _RANDOM.integers(-2, 4, (3, 4)).astype(np.int32),
    "p": _RANDOM.integers(0, 2, (3, 4)).astype(np.bool_),
    "y": _RANDOM.integers(-3, 4, (3, 4)).astype(np.float64),
}
_KINDS = {"x": s32, "p": pred, "y": f32}
TO = span(f32)


class Drawn:
    """Terms drawn at random.

    Args:
        number: of the draw.
    """

    def __init__(self, number: int) -> None:
        self.random = Random(number)
        self.terms = Terms()
        for name, size in SIZES.items():
            self.terms.variable(name, size)
        self.values = TermValues(self.terms, ARRAYS)

    def pick(self, *choices: Callable[[], Term]) -> Term:
        """One of several ways to make a term."""
        return self.random.choice(choices)()

    def read(self, name: str) -> Node:
        """An element of an argument at variables."""
        kind: TensorType = tensor(_KINDS[name], (3, 4))
        place = symbol(self.random.choice("ac")), symbol(self.random.choice("bd"))
        return self.terms.node("at", name, kind, *place)

    def integer(self, depth: int = 2) -> Dim:
        """An integer: a sum of products of variables, elements, quotients and choices."""
        terms, random = self.terms, self.random
        out: Dim = random.randint(-5, 5)
        for _ in range(random.randint(1, 3)):
            factor = random.choice((-4, -3, -1, 1, 1, 2, 4))
            part: Dim = symbol(random.choice([*SIZES]))
            if depth and random.random() < 0.4:
                made = self.pick(
                    lambda: terms.atom(self.read("x"), -2, 3),
                    lambda: integers.div(terms, self.integer(depth - 1), random.randint(1, 5)),
                    lambda: integers.mod(terms, self.integer(depth - 1), random.randint(1, 5)),
                    lambda: integers.smaller(terms, self.integer(depth - 1), self.integer(0)),
                    lambda: integers.choose(
                        terms, self.truth(depth - 1), self.integer(depth - 1), self.integer(0)
                    ),
                )
                assert isinstance(made, int | Poly)
                part = made
            out = out + part * factor
        return out

    def truth(self, depth: int = 2) -> bool | Node:
        """A truth value."""
        terms = self.terms
        makers: list[Callable[[], Term]] = [
            lambda: integers.at_most_zero(terms, self.integer(depth)),
            lambda: integers.is_zero(terms, self.integer(depth)),
            lambda: terms.node("truth", self.read("p")),
        ]
        if depth:
            makers += [
                lambda: integers.negated(terms, self.truth(depth - 1)),
                lambda: integers.both(terms, self.truth(depth - 1), self.truth(depth - 1)),
                lambda: integers.either(terms, self.truth(depth - 1), self.truth(depth - 1)),
            ]
        found = self.pick(*makers)
        assert isinstance(found, bool | Node)
        return found

    def fact(self) -> Node:
        """A truth value that is not known."""
        while True:
            found = self.truth()
            if isinstance(found, Node):
                return found

    def real(self, depth: int = 2) -> Term:
        """An element of a float type."""
        terms = self.terms
        makers: list[Callable[[], Term]] = [lambda: self.read("y")]
        if depth:
            zero = sums.zero_of(terms)
            makers += [
                lambda: self.flat("add", depth),
                lambda: self.flat("multiply", depth),
                lambda: integers.choose(terms, self.truth(1), self.real(depth - 1), zero),
                lambda: integers.choose(
                    terms, self.truth(1), self.real(depth - 1), self.real(depth - 1)
                ),
                lambda: self.total(depth - 1),
            ]
        return self.pick(*makers)

    def flat(self, name: str, depth: int) -> Term:
        """A sum or product of two elements."""
        parts = [self.real(depth - 1), self.real(depth - 1)]
        return rebuild.flat_function(self.terms, name, TO, EMPTY, parts)

    def total(self, depth: int) -> Term:
        """A sum over a variable."""
        name = self.random.choice([*SIZES])
        return sums.summed(self.terms, "add", TO, [(name, SIZES[name])], self.real(depth))

    def of(self, term: Term, at: dict[str, int]) -> Number:
        """The value of a term."""
        return self.values.of(term, at)

    def places(self, *held: object) -> Iterator[dict[str, int]]:
        """All values of the variables in terms."""
        names: set[str] = set()
        for term in held:
            names |= self.terms.symbols_of(term) & SIZES.keys()
            if isinstance(term, Poly):
                names |= symbols([term]) & SIZES.keys()
        ordered = sorted(names)
        for values in product(*[range(SIZES[name]) for name in ordered]):
            yield {**dict.fromkeys(SIZES, 0), **dict(zip(ordered, values, strict=True))}

    def differ(self, made: Term, wanted: Callable[[dict[str, int]], Number], *held: object) -> str:
        """The first place at which a term has another value than is wanted."""
        for at in self.places(made, *held):
            a, b = self.of(made, at), wanted(at)
            if not isclose(a, b, rel_tol=1e-9, abs_tol=1e-9):
                return f"{made} is {a} for {b} at {at}"
        return ""


Check = Callable[[Drawn], str]


def _fit(d: Drawn) -> str:
    value, dtype = d.integer() * d.random.choice((1, 60)), d.random.choice((s8, u8))
    low, _ = range_of(dtype)
    made = integers.fit(d.terms, value, dtype)
    return d.differ(made, lambda at: (int(d.of(value, at)) - low) % 256 + low, value)


def _quotient(d: Drawn) -> str:
    value, by = d.integer(), d.random.randint(1, 6)
    made = integers.div(d.terms, value, by)
    return d.differ(made, lambda at: int(d.of(value, at)) // by, value)


def _rest(d: Drawn) -> str:
    value, by = d.integer(), d.random.randint(1, 6)
    made = integers.mod(d.terms, value, by)
    return d.differ(made, lambda at: int(d.of(value, at)) % by, value)


def _quotient_by_size(d: Drawn) -> str:
    """Of ``i + k * N + c`` by a size N, for several N."""
    size, shift = symbol("N"), d.random.choice((-1, 0, 0, 0, 1))
    inner = d.terms.variable("i", size)
    value = inner + size * d.random.choice((0, 1, symbol("a"))) + shift
    made = integers.div_by_size(d.terms, value, size)
    if made is None:
        return "" if shift else f"{value} is covered"
    for n in range(1, 5):
        for i, a in product(range(n), range(3)):
            at = {"N": n, "i": i, "a": a}
            if d.of(made, at) != int(d.of(value, at)) // n:
                return f"{made} for {value} at {at}"
    return ""


def _two(name: str, of: Callable[[Number, Number], Number]) -> Check:
    def check(d: Drawn) -> str:
        a, b = d.integer(), d.random.choice((d.integer(), d.random.randint(-3, 3)))
        made = getattr(integers, name)(d.terms, a, b)
        return d.differ(made, lambda at: of(d.of(a, at), d.of(b, at)), a, b)

    return check


def _one(name: str, of: Callable[[Number], Number]) -> Check:
    def check(d: Drawn) -> str:
        value = d.integer()
        return d.differ(
            getattr(integers, name)(d.terms, value), lambda at: of(d.of(value, at)), value
        )

    return check


def _negated(d: Drawn) -> str:
    value = d.truth()
    return d.differ(integers.negated(d.terms, value), lambda at: not d.of(value, at), value)


def _logic(name: str, of: Callable[[Number, Number], Number]) -> Check:
    def check(d: Drawn) -> str:
        a, b = d.truth(), d.truth()
        made = getattr(integers, name)(d.terms, a, b)
        return d.differ(made, lambda at: of(d.of(a, at), d.of(b, at)), a, b)

    return check


def _choice(d: Drawn) -> str:
    which = d.truth()
    pair = d.random.choice((d.integer, d.truth, d.real))
    yes, no = pair(), pair()
    made = integers.choose(d.terms, which, yes, no)
    return d.differ(made, lambda at: d.of(yes if d.of(which, at) else no, at), which, yes, no)


def _sum_of(d: Drawn, make: Callable[[str, object, list[tuple[str, Dim]], Term], Term]) -> str:
    kind = d.random.choice(("add", "add", "add", "maximum", "minimum", "or", "and"))
    truth = kind in ("or", "and")
    body: Term = d.truth() if truth else d.real()
    names = d.random.sample([*SIZES], d.random.randint(1, 2))
    made = make(kind, None if truth else TO, [(n, SIZES[n]) for n in names], body)
    made = sums.truth_of_sum(d.terms, made) if truth else made
    combine: Callable[[list[Number]], Number] = {
        "add": sum,
        "maximum": max,
        "minimum": min,
        "or": any,
        "and": all,
    }[kind]

    def wanted(at: dict[str, int]) -> Number:
        places = product(*[range(SIZES[name]) for name in names])
        return combine([d.of(body, {**at, **dict(zip(names, p, strict=True))}) for p in places])

    return d.differ(made, wanted)


def _summed(d: Drawn) -> str:
    return _sum_of(d, lambda kind, to, ranges, body: sums.summed(d.terms, kind, to, ranges, body))


def _whole_sum(d: Drawn) -> str:
    body = d.integer()
    raw = d.terms.node("total", "add", None, None, symbol("a"), symbol("b"), 3, 4, body)
    made = whole_numbers.whole_sum(d.terms, [("a", 3), ("b", 4)], body)
    return d.differ(made, lambda at: d.of(raw, at), body)


def _whole(d: Drawn, depth: int = 2) -> Term:
    """A float that is a whole number."""
    terms = d.terms

    def flat(name: str) -> Term:
        return rebuild.flat_function(terms, name, f32, EMPTY, [_whole(d, depth - 1) for _ in "ab"])

    def total() -> Term:
        name = d.random.choice([*SIZES])
        return sums.summed(terms, "add", f32, [(name, SIZES[name])], _whole(d, depth - 1))

    def one() -> Term:
        numbers = [terms.node("const", repr(float(d.random.randint(-1, 1)))) for _ in "ab"]
        return integers.choose(terms, d.truth(1), numbers[0], numbers[1])

    makers: list[Callable[[], Term]] = [
        one,
        lambda: whole_number(terms, d.integer(1), f32),
    ]
    if depth:
        makers += [lambda: flat("add"), lambda: flat("multiply"), total]
    return d.pick(*makers)


def _whole_value(d: Drawn) -> str:
    term = _whole(d)
    made = whole_numbers.whole_value(d.terms, term)
    return "" if made is None else d.differ(made, lambda at: d.of(term, at), term)


def _as_whole(d: Drawn) -> str:
    term = _whole(d)
    made = whole_numbers.as_whole(d.terms, term, s8)
    if made is None:
        return ""
    return d.differ(made, lambda at: d.of(term, at), term) or d.differ(
        d.terms.within(made, -128, 127), lambda at: True, term
    )


def _below(d: Drawn) -> str:
    which = d.fact()
    body = integers.choose(d.terms, which, 1, 0)
    found = whole_numbers.below(d.terms, body, "a")
    if found is None:
        return ""
    end, rest = found
    under = integers.at_most_zero(d.terms, symbol("a") + end * -1 + 1)
    made = integers.both(d.terms, under, rest)
    return d.differ(made, lambda at: d.of(which, at), which)


def _in_order(d: Drawn) -> str:
    return _sum_of(
        d, lambda kind, to, ranges, body: sums.in_order(d.terms, kind, to, "how", ranges, body)
    )


def _only_value(d: Drawn) -> str:
    which, name = d.fact(), d.random.choice([*SIZES])
    found = sums.only_value(d.terms, which, name)
    if found is None:
        return ""
    value, rest = found
    for at in d.places(which, value, rest):
        holds = at[name] == d.of(value, at) and bool(d.of(rest, at))
        if holds != bool(d.of(which, at)):
            return f"{which}: {name} is {value} where {rest} at {at}"
    return ""


def _any(d: Drawn) -> Term:
    return d.random.choice((d.integer, d.truth, d.real))()


def _replaced(d: Drawn) -> str:
    term, name = _any(d), d.random.choice([*SIZES])
    others = [other for other in SIZES if SIZES[other] == SIZES[name]]
    value: Dim = d.random.choice((0, SIZES[name] - 1, symbol(d.random.choice(others))))
    made = rebuild.replaced(d.terms, term, {name: value})
    return d.differ(made, lambda at: d.of(term, {**at, name: int(d.of(value, at))}), term, value)


def _replaced_truth(d: Drawn) -> str:
    term, name = d.fact(), d.random.choice([*SIZES])
    value = d.random.randrange(SIZES[name])
    made = sums.replaced_truth(d.terms, term, {name: value})
    return d.differ(made, lambda at: d.of(term, {**at, name: value}), term)


def _renamed(d: Drawn) -> str:
    term = _any(d)
    new = d.terms.variable("new", 3)
    made = rebuild.renamed(d.terms, term, {"a": "new"})
    assert isinstance(new, Poly)
    for at in d.places(term):
        if not isclose(d.of(made, {**at, "a": 0, "new": at["a"]}), d.of(term, at)):
            return f"{made} for {term} at {at}"
    return ""


def _where(d: Drawn) -> str:
    term, which = _any(d), d.fact()
    made = rebuild.where(d.terms, term, which)
    for at in d.places(term, which, made):
        if d.of(which, at) and not isclose(d.of(made, at), d.of(term, at), abs_tol=1e-9):
            return f"{made} for {term} where {which} at {at}"
    return ""


def _by_each_other(d: Drawn) -> str:
    parts = [d.truth() for _ in range(3)]
    which = reduce(lambda x, y: integers.both(d.terms, x, y), parts)
    made = rebuild.by_each_other(d.terms, which)
    return d.differ(made, lambda at: d.of(which, at), which)


def _function(make: Callable[..., Term]) -> Check:
    def check(d: Drawn) -> str:
        name = d.random.choice(("add", "multiply"))
        parts = [d.real() for _ in range(d.random.randint(2, 3))]
        made = make(d.terms, name, TO, EMPTY, parts)
        combine = sum if name == "add" else prod
        return d.differ(made, lambda at: combine(d.of(part, at) for part in parts), *parts)

    return check


def _written(d: Drawn) -> str:
    names = d.random.sample([*SIZES], d.random.randint(1, 2))
    here, new = d.truth(), d.real()
    old = d.real()
    # The old element does not depend on which update is written.
    for name in names:
        old = rebuild.replaced(d.terms, old, {name: 0})
    made = written(d.terms, [(name, SIZES[name]) for name in names], here, new, old)

    def wanted(at: dict[str, int]) -> Number:
        found = d.of(old, at)
        for place in product(*[range(SIZES[name]) for name in names]):
            inner = {**at, **dict(zip(names, place, strict=True))}
            found = d.of(new, inner) if d.of(here, inner) else found
        return found

    return d.differ(made, wanted)


def _in_place_of(d: Drawn) -> str:
    name = d.random.choice([*SIZES])
    size, key, moved = SIZES[name], d.real(), d.random.choice((symbol(name), d.real()))
    down, place = d.random.choice((True, False)), d.random.randrange(size)
    made = sums.in_place_of(d.terms, down, (symbol(name), size), key, moved, place)

    def wanted(at: dict[str, int]) -> Number:
        places = [{**at, name: n} for n in range(size)]
        ordered = sorted(places, key=lambda at: d.of(key, at), reverse=down)
        return d.of(moved, ordered[place])

    return d.differ(made, wanted, key, moved)


def _extreme_integer(d: Drawn) -> str:
    """The largest or smallest of integers, among them two numbers of which a condition chooses."""
    kind, name = d.random.choice(("maximum", "minimum")), d.random.choice([*SIZES])
    numbers = d.random.sample(range(-2, 3), 2)
    body = d.random.choice((d.integer(), integers.choose(d.terms, d.fact(), *numbers)))
    assert isinstance(body, int | Poly)
    found = sums.summed(d.terms, kind, None, [(name, SIZES[name])], body)
    made = sums.integer_of_sum(d.terms, found, body)
    low, high = d.terms.lowest(made), d.terms.highest(made)
    combine = max if kind == "maximum" else min

    def wanted(at: dict[str, int]) -> Number:
        return combine(d.of(body, {**at, name: n}) for n in range(SIZES[name]))

    for at in d.places(made, body):
        value = wanted(at)
        if (isinstance(low, int) and value < low) or (isinstance(high, int) and value > high):
            return f"{value} is not within {low} and {high}"
    return d.differ(made, wanted, body)


def _first_of_largest(d: Drawn) -> str:
    """The least place whose element is the largest, or another one; and whether there is one."""
    name = d.random.choice([*SIZES])
    size, key = SIZES[name], d.real()
    over = d.random.choice((key, key, d.real()))
    top = sums.summed(d.terms, "maximum", None, [(name, size)], over)
    equal = attrs_of({"direction": d.random.choice(("EQ", "EQ", "LT"))})
    which = d.terms.node("truth", d.terms.node("fn", "compare", None, equal, key, top))
    last = d.random.choice((size - 2, size - 1, 100))
    chosen = integers.choose(d.terms, which, symbol(name), last)
    body = d.random.choice((which, chosen))
    kind = "or" if body is which else "minimum"
    made = sums.summed(d.terms, kind, None, [(name, size)], body)
    made = sums.truth_of_sum(d.terms, made) if kind == "or" else made
    combine: Callable[[list[Number]], Number] = any if kind == "or" else min

    def wanted(at: dict[str, int]) -> Number:
        return combine([d.of(body, {**at, name: n}) for n in range(size)])

    return d.differ(made, wanted, body)


def _divided(d: Drawn) -> str:
    number = d.random.choice((1.0, 2.0, -0.25, 1024.0, 3.0, 0.1, 2.0**130, 2.0**-130))
    part = d.real()
    made = rebuild.function_term(
        d.terms, "divide", TO, EMPTY, [part, d.terms.node("const", repr(number))]
    )
    return d.differ(made, lambda at: d.of(part, at) / number, part)


NORMAL_FORMS: dict[str, Check] = {
    "integers.fit": _fit,
    "integers.div": _quotient,
    "integers.mod": _rest,
    "integers.div_by_size": _quotient_by_size,
    "integers.smaller": _two("smaller", min),
    "integers.larger": _two("larger", max),
    "integers.at_most_zero": _one("at_most_zero", lambda x: x <= 0),
    "integers.is_zero": _one("is_zero", lambda x: x == 0),
    "integers.negated": _negated,
    "integers.both": _logic("both", lambda a, b: bool(a and b)),
    "integers.either": _logic("either", lambda a, b: bool(a or b)),
    "integers.choose": _choice,
    "sums.summed": _summed,
    "sums.in_order": _in_order,
    "whole_numbers.whole_sum": _whole_sum,
    "whole_numbers.whole_value": _whole_value,
    "whole_numbers.as_whole": _as_whole,
    "whole_numbers.below": _below,
    "sums.only_value": _only_value,
    "sums.in_place_of": _in_place_of,
    "sums.integer_of_sum": _extreme_integer,
    "sums.summed, of the largest": _first_of_largest,
    "rebuild.function_term, of a quotient": _divided,
    "sums.replaced_truth": _replaced_truth,
    "rebuild.replaced": _replaced,
    "rebuild.renamed": _renamed,
    "rebuild.where": _where,
    "rebuild.by_each_other": _by_each_other,
    "rebuild.function_term": _function(rebuild.function_term),
    "rebuild.flat_function": _function(rebuild.flat_function),
}


ARGUMENTS: dict[str, Callable[[Drawn], tuple[object, ...]]] = {
    "if": lambda d: (d.fact(), d.real(), d.real()),
    "and": lambda d: (d.truth(), d.truth(), d.truth()),
    "not": lambda d: (d.truth(),),
    "le0": lambda d: (d.integer(),),
    "eq0": lambda d: (d.integer(),),
    "min": lambda d: (d.integer(), d.random.choice((d.integer(), d.random.randint(-3, 3)))),
    "max": lambda d: (d.integer(), d.random.choice((d.integer(), d.random.randint(-3, 3)))),
    "div": lambda d: (d.integer(), d.random.randint(1, 6)),
    "truth": lambda d: (d.random.choice((d.read("p"), True, False)),),
    "fn": lambda d: (d.random.choice(("add", "multiply")), TO, EMPTY, d.real(), d.real()),
    "sum": lambda d: ("add", TO, None, symbol("a"), symbol("b"), 3, 4, d.real()),
    "total": lambda d: ("add", None, None, symbol("a"), symbol("b"), 3, 4, d.integer()),
    "place": lambda d: (d.integer(),),
    "write": lambda d: (1, symbol("a"), 3, d.fact(), d.real(), d.read("y")),
}


def check_node(kind: str, d: Drawn) -> str:
    """Compare what a node's rule makes with the node itself."""
    args = ARGUMENTS[kind](d)
    if kind == "write":
        old = rebuild.replaced(d.terms, args[-1], {"a": 0})  # pyright: ignore[reportArgumentType]
        args = (*args[:-1], old)
    raw, made = d.terms.node(kind, *args), NODE_RULES[kind](d.terms, args)
    return d.differ(made, lambda at: d.of(raw, at), *args)
