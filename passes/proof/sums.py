"""Sums and maxima over index sets, in a normal form.

Sums within sums are one sum. Two variables that occur as ``r * n + k`` are one, which is how the
partial sums of ranks become the sum of the model. A variable of which a condition leaves one value
is replaced by that value. The names of the variables that are left follow from the depth of the
term, so that equal sums are one node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from math import inf, isfinite

from graphgen.ir import Attrs, Dim
from graphgen.ir.attrs import EMPTY
from graphgen.ir.dims import Poly, symbol
from graphgen.passes.proof.floats import Range as Span
from graphgen.passes.proof.integers import at_most_zero, both, choose, conjuncts, div
from graphgen.passes.proof.rebuild import flat_function, node_rule, renamed, replaced, where
from graphgen.passes.proof.terms import Node, Term, Terms, free_depth, nodes_of, size_name

# Ops of which an infinite operand gives an infinite result.
_KEEP_INFINITY = ("abs", "add", "convert", "multiply", "negate", "subtract")
# A variable with its size.
Range = tuple[str, Dim]


def variable_name(term: Dim) -> str:
    """The name of an index variable."""
    assert isinstance(term, Poly), term
    ((monomial, coefficient),) = term.terms
    assert coefficient == 1
    (name,) = monomial
    return name


def ranges_of(node: Node) -> tuple[list[Range], Term]:
    """The variables of a sum with their sizes, and what is summed."""
    rest = node.args[3:-1]
    half = len(rest) // 2
    pairs = zip(rest[:half], rest[half:], strict=True)
    body = node.args[-1]
    assert isinstance(body, bool | int | Poly | Node)
    return [(variable_name(_dim(v)), _dim(n)) for v, n in pairs], body


def _dim(value: object) -> Dim:
    assert isinstance(value, int | Poly)
    return value


@node_rule("sum")
def _sum_again(terms: Terms, args: tuple[object, ...]) -> Term:
    kind, to, how = args[:3]
    if how is not None:
        return terms.node("sum", *args)
    ranges, body = ranges_of(Node("sum", args))
    assert isinstance(kind, str)
    return summed(terms, kind, to, ranges, body)


def in_place_of(
    terms: Terms, down: bool, over: tuple[Dim, Dim], key: Term, moved: Term, place: Dim
) -> Node:
    """``moved`` at the value of a variable that comes at ``place`` in the order of ``key``."""
    variable, size = over
    if isinstance(variable, Poly):
        depth = free_depth(terms, "o", [size_name(size)], key, moved)
        name = f"o{depth}_{size_name(size)}"
        names = {variable_name(variable): name}
        variable = terms.variable(name, size)
        key, moved = renamed(terms, key, names), renamed(terms, moved, names)
    return terms.node("sort", down, variable, size, key, moved, place)


def without_padding(
    terms: Terms, over: tuple[Dim, Dim], key: Term, moved: Term, place: Dim
) -> tuple[Dim, Dim, Term, Term]:
    """A descending order without elements at the end whose keys are -inf, for a place before these.

    No number comes after -inf, and of equal ones the first comes first. Where NaN comes is a
    question of special values, which real arithmetic has not.

    Returns:
        The variable and its size, the key and what is moved: as given where nothing is left out.
    """
    name, size = over
    if not isinstance(key, Node) or key.kind != "if" or not isinstance(name, Poly):
        return name, size, key, moved
    which, low = key.args[0], key.args[2]
    if not isinstance(which, Node) or which.kind != "le0" or not isinstance(low, Node):
        return name, size, key, moved
    last = name + _dim(which.args[0]) * -1
    known = isinstance(last, int) and isinstance(size, int) and 0 <= last < size
    if low is not terms.node("const", repr(-inf)) or not known or not isinstance(last, int):
        return name, size, key, moved
    if not terms.within(place, 0, last):
        return name, size, key, moved
    fresh = terms.variable(f"{variable_name(name)}_to_{last}", last + 1)
    values = {variable_name(name): fresh}
    parts = [replaced(terms, part, values) for part in (key, moved)]
    return fresh, last + 1, parts[0], parts[1]


def truth_of_sum(terms: Terms, found: Term) -> Term:
    """The truth value that something holds for one value, or for all."""
    return terms.node("truth", found) if isinstance(found, Node) and found.kind == "sum" else found


def integer_of_sum(terms: Terms, found: Term, body: Term) -> Dim:
    """The maximum or minimum of an integer as an integer, within the bounds of the integer."""
    if not isinstance(found, Node):
        return _dim(found)
    return terms.atom(found, terms.lowest(_dim(body)), terms.highest(_dim(body)))


def in_order(
    terms: Terms, kind: str, to: object, how: object, ranges: list[Range], body: Term
) -> Node:
    """A sum that is taken in an order of its own, ``how``; its variables are named by its depth."""
    names = sum_names(terms, ranges, body)
    variables = [terms.variable(names[old], size) for old, size in ranges]
    body = renamed(terms, body, {old: new for old, new in names.items() if old != new})
    return terms.node("sum", kind, to, how, *variables, *[size for _, size in ranges], body)


def sum_names(terms: Terms, ranges: Sequence[Range], body: Term) -> dict[str, str]:
    """The names of the variables of a sum by their present ones."""
    suffixes = [f"{n}_{size_name(size)}" for n, (_, size) in enumerate(ranges)]
    depth = terms.depth(body)
    names = [f"s{depth}_{suffix}" for suffix in suffixes]
    if names != [name for name, _ in ranges]:
        depth = free_depth(terms, "s", suffixes, body)
        names = [f"s{depth}_{suffix}" for suffix in suffixes]
    return {old: new for (old, _), new in zip(ranges, names, strict=True)}


def summed(terms: Terms, kind: str, to: object, ranges: list[Range], body: Term) -> Term:
    """The sum (or maximum, ...) of ``body`` over variables, in real arithmetic."""
    if not ranges:
        return body
    if isinstance(body, Node) and body.kind == "sum" and body.args[:3] == (kind, to, None):
        inner, body = ranges_of(body)
        ranges = [*ranges, *inner]
    if kind == "add" and body is zero_of(terms):
        return body
    if kind == "add":
        body = _guarded(terms, to, ranges, body)
        single = _single(terms, to, ranges, body)
        if single is not None:
            return single
    chosen = _chosen(terms, kind, ranges, body)
    if chosen is not None:
        return chosen
    body, ranges = merged(terms, body, ranges)
    pushed = _pushed(terms, to, ranges, body) if kind == "add" and isinstance(to, Span) else None
    if pushed is not None:
        return pushed
    shorter = _shortened(terms, ranges, body) if kind == "add" else None
    if shorter is not None:
        return summed(terms, kind, to, *shorter)
    return _over_used(terms, kind, to, ranges, body)


def _chosen(terms: Terms, kind: str, ranges: list[Range], body: Term) -> Term | None:
    """A maximum or minimum that depends on which elements are the largest ones.

    Some element is equal to the largest. The first such one is the first in descending order.
    """
    if kind == "or":
        largest = _largest(terms, body)
        return True if largest is not None and [largest[0]] == ranges else None
    node = _atom_of(terms, body)
    if kind not in ("maximum", "minimum") or node is None or node.kind != "if":
        return None
    which, yes, no = node.args
    if isinstance(yes, int) and isinstance(no, int):
        some = (yes > no) == (kind == "maximum")
        assert isinstance(which, Node)
        found = truth_of_sum(terms, summed(terms, "or" if some else "and", None, ranges, which))
        assert isinstance(found, bool | Node)
        return choose(terms, found, yes, no)
    largest = _largest(terms, which)
    if kind == "maximum" or largest is None or [largest[0]] != ranges:
        return None
    (name, size), key = largest
    if yes != symbol(name) or not isinstance(no, int) or not terms.at_most(size + -1, no):
        return None
    kept = without_padding(terms, (symbol(name), size), key, symbol(name), 0)
    return terms.atom(in_place_of(terms, True, kept[:2], *kept[2:], 0), 0, size + -1)


def _atom_of(terms: Terms, term: Term) -> Node | None:
    """The node of an integer that is one atom."""
    if not isinstance(term, Poly) or len(term.terms) != 1 or term.terms[0][1] != 1:
        return None
    names = term.terms[0][0]
    return terms.atoms.get(names[0]) if len(names) == 1 else None


def _largest(terms: Terms, which: object) -> tuple[Range, Term] | None:
    """The variable and element of a condition that the element is the largest over the variable."""
    inner = which.args[0] if isinstance(which, Node) and which.kind == "truth" else None
    if not isinstance(inner, Node) or inner.kind != "fn" or inner.args[0] != "compare":
        return None
    how, key, top = inner.args[2:]
    if not isinstance(top, Node) or top.kind != "sum" or top.args[0] != "maximum":
        return None
    if top.args[2] is not None or not isinstance(how, Attrs) or how.get("direction") != "EQ":
        return None
    ranges, element = ranges_of(top)
    if len(ranges) != 1:
        return None
    ((name, size),) = ranges
    for other in sorted(terms.symbols_of(key) - terms.symbols_of(top)):
        if other in terms.bounds and renamed(terms, element, {name: other}) is key:
            return (other, size), _term(key)
    return None


def _over_used(terms: Terms, kind: str, to: object, ranges: list[Range], body: Term) -> Term:
    """A sum of which some variables may not be used."""
    free = [(name, size) for name, size in ranges if name not in terms.symbols_of(body)]
    used = [pair for pair in ranges if pair not in free]
    if kind in ("maximum", "minimum", "or", "and"):
        if not used:
            return body
        return _named(terms, kind, to, used, body)
    if kind == "add" and free and all(isinstance(size, int) for _, size in free):
        count = 1
        for _, size in free:
            assert isinstance(size, int)
            count *= size
        made = summed(terms, kind, to, used, body)
        times = terms.node("const", repr(float(count)))
        return flat_function(terms, "multiply", to, EMPTY, [times, made])
    return _named(terms, kind, to, ranges, body)


def _guarded(terms: Terms, to: object, ranges: list[Range], body: Term) -> Term:
    """A product with a factor that is zero at padding, as a choice.

    Padding is what a condition on a variable of the sum leaves out, as for padded heads. Where
    another condition makes a factor zero, the other factors count: they may be infinite.
    """
    if not isinstance(body, Node) or body.kind != "fn" or body.args[:2] != ("multiply", to):
        return body
    zero = zero_of(terms)
    if not isinstance(to, Span):
        return body
    factors = [_term(x) for x in body.args[3:]]
    condition: bool | Node = True
    names = {name for name, _ in ranges}
    for place, factor in enumerate(factors):
        if isinstance(factor, Node) and factor.kind == "if" and factor.args[2] is zero:
            which, yes = factor.args[:2]
            assert isinstance(which, Node)
            if not all(names & terms.symbols_of(fact) for fact in conjuncts(which)):
                continue
            condition, factors[place] = both(terms, condition, which), _term(yes)
    if condition is True or any(is_infinite(factor) for factor in factors):
        return body
    kept = [where(terms, factor, condition) for factor in factors]
    return choose(terms, condition, flat_function(terms, "multiply", to, EMPTY, kept), zero)


def is_infinite(factor: Term) -> bool:
    """True where a factor may be an infinite constant, which times zero is not zero."""
    if not isinstance(factor, Node):
        return False
    if factor.kind == "const":
        return not isfinite(float(str(factor.args[0])))
    if factor.kind == "if" or (factor.kind == "fn" and factor.args[0] in _KEEP_INFINITY):
        return any(is_infinite(_term(x)) for x in factor.args[3 if factor.kind == "fn" else 1 :])
    return False


def _shortened(terms: Terms, ranges: list[Range], body: Term) -> tuple[list[Range], Term] | None:
    """A sum over the first values of a variable, of which a condition leaves no others."""
    if not isinstance(body, Node) or body.kind != "if" or body.args[2] is not zero_of(terms):
        return None
    which, yes = body.args[:2]
    assert isinstance(which, Node)
    for place, (name, size) in enumerate(ranges):
        for fact in conjuncts(which):
            parts = linear(_dim(fact.args[0]), name) if fact.kind == "le0" else None
            if parts is None or parts[0] < 1 or not isinstance(parts[1], int):
                continue
            count = max(0, parts[1] * -1 // parts[0] + 1)
            if not isinstance(size, int) or not 0 < count < size:
                continue
            fresh = f"{name}_of_{count}"
            left = choose(terms, which, _term(yes), zero_of(terms))
            made = replaced(terms, left, {name: terms.variable(fresh, count)})
            rest = [*ranges[:place], *ranges[place + 1 :]]
            return ([*rest, (fresh, count)] if count > 1 else rest), made
    return None


def _pushed(terms: Terms, to: object, ranges: list[Range], body: Term) -> Term | None:
    """A sum of which a variable is not in a condition, or not in a factor, taken within these."""
    if not isinstance(body, Node):
        return None
    zero = zero_of(terms)
    if body.kind == "fn" and body.args[:2] == ("add", to):
        parts = [summed(terms, "add", to, ranges, _term(x)) for x in body.args[3:]]
        return flat_function(terms, "add", to, EMPTY, parts)
    exchanged = _exchanged(terms, to, ranges, body)
    if exchanged is not None:
        return exchanged
    for pair in ranges:
        rest = [other for other in ranges if other is not pair]
        if body.kind == "if" and body.args[2] is zero:
            which, yes = body.args[:2]
            assert isinstance(which, Node)
            if pair[0] not in terms.symbols_of(which):
                inner = summed(terms, "add", to, [pair], _term(yes))
                return summed(terms, "add", to, rest, choose(terms, which, inner, zero))
        if body.kind == "fn" and body.args[:2] == ("multiply", to):
            factors = [_term(x) for x in body.args[3:]]
            apart = [x for x in factors if pair[0] not in terms.symbols_of(x)]
            inside = [x for x in factors if pair[0] in terms.symbols_of(x)]
            if apart and inside and not any(map(is_infinite, apart)):
                product = flat_function(terms, "multiply", to, EMPTY, inside)
                inner = summed(terms, "add", to, [pair], inside[0] if len(inside) == 1 else product)
                made = flat_function(terms, "multiply", to, EMPTY, [*apart, inner])
                return summed(terms, "add", to, rest, made)
    return None


def _exchanged(terms: Terms, to: object, ranges: list[Range], body: Node) -> Term | None:
    """A sum of products with a sum of which a variable selects the addends, the other way around.

    So do the experts of a token: the sum over e of ``f(e) * (sum over k of w(k) where i(k) = e)``
    is the sum over k of ``w(k) * f(i(k))``.
    """
    zero = zero_of(terms)
    chosen = None
    if body.kind == "if" and body.args[2] is zero:
        chosen, inner = body.args[:2]
        if not isinstance(inner, Node):
            return None
        body = inner
    if body.kind != "fn" or body.args[:2] != ("multiply", to):
        return None
    factors = [_term(x) for x in body.args[3:]]
    for place, factor in enumerate(factors):
        if not isinstance(factor, Node) or factor.kind != "sum" or factor.args[0] != "add":
            continue
        inner_ranges, choice = ranges_of(factor)
        if not isinstance(choice, Node) or choice.kind != "if" or choice.args[2] is not zero:
            continue
        which, weight = choice.args[:2]
        assert isinstance(which, Node)
        if not any(only_value(terms, which, name) for name, _ in ranges):
            continue
        if chosen is not None and not _any_of(terms, chosen, inner_ranges, which):
            continue
        fresh = {name: f"x{terms.depth(body)}_{name}" for name, _ in inner_ranges}
        for name, size in inner_ranges:
            terms.variable(fresh[name], size)
        parts = [*factors[:place], *factors[place + 1 :], renamed(terms, _term(weight), fresh)]
        product = flat_function(terms, "multiply", to, EMPTY, parts)
        condition = renamed(terms, which, fresh)
        assert isinstance(condition, bool | Node)
        made = choose(terms, condition, product, zero)
        over = [*ranges, *[(fresh[name], size) for name, size in inner_ranges]]
        return summed(terms, "add", to, over, made)
    return None


def _any_of(terms: Terms, chosen: object, ranges: list[Range], which: Node) -> bool:
    """True if a condition says that another one holds for some values of its variables."""
    inner = chosen.args[0] if isinstance(chosen, Node) and chosen.kind == "truth" else None
    if not isinstance(inner, Node) or inner.kind != "sum" or inner.args[0] != "or":
        return False
    others, condition = ranges_of(inner)
    if [size for _, size in others] != [size for _, size in ranges]:
        return False
    names = {old: new for (old, _), (new, _) in zip(others, ranges, strict=True) if old != new}
    return renamed(terms, condition, names) is which


def _term(value: object) -> Term:
    assert isinstance(value, bool | int | Poly | Node)
    return value


# ---- a single value that counts ------------------------------------------------------------------


def zero_of(terms: Terms) -> Node:
    """The zero that is added where nothing counts."""
    return terms.node("const", repr(0.0))


def _single(terms: Terms, to: object, ranges: list[Range], body: Term) -> Term | None:
    """A sum over choices between something and zero, of which one value of a variable counts."""
    if not isinstance(body, Node) or body.kind != "if":
        return None
    which, yes, no = body.args
    zero = zero_of(terms)
    assert isinstance(which, Node)
    assert isinstance(yes, bool | int | Poly | Node)
    if no is not zero:
        return None
    for name, size in ranges:
        found = only_value(terms, which, name)
        if found is None:
            continue
        value, condition = found
        rest = [pair for pair in ranges if pair[0] != name]
        inside = both(
            terms, at_most_zero(terms, value * -1), at_most_zero(terms, value + size * -1 + 1)
        )
        condition = both(terms, inside, condition)
        kept = where(terms, replaced(terms, yes, {name: value}), condition)
        made = choose(terms, condition, kept, zero)
        return summed(terms, "add", to, rest, made)
    block = _single_block(terms, to, ranges, body)
    if block is not None:
        return block
    outer = [x for x in conjuncts(which) if not terms.symbols_of(x) & {n for n, _ in ranges}]
    if outer:
        # A condition that does not depend on what is summed over.
        left: bool | Node = True
        for part in conjuncts(which):
            left = left if part in outer else both(terms, left, part)
        condition = True
        for part in outer:
            condition = both(terms, condition, part)
        made = summed(terms, "add", to, ranges, choose(terms, left, yes, zero))
        return choose(terms, condition, where(terms, made, condition), zero)
    return None


def _single_block(terms: Terms, to: object, ranges: list[Range], body: Node) -> Term | None:
    """A sum of which a condition leaves one block of a variable, ``v div by = number``."""
    which, yes = body.args[:2]
    assert isinstance(which, Node)
    for name, size in ranges:
        found = only_block(terms, which, name)
        if found is None or not isinstance(size, int) or size % found[1]:
            continue
        number, by = found
        fresh = f"{name}_of_{by}"
        value = number * by + terms.variable(fresh, by)
        inside = both(
            terms,
            at_most_zero(terms, number * -1),
            at_most_zero(terms, number + (1 - size // by)),
        )
        condition = both(terms, inside, replaced_truth(terms, which, {name: value}))
        kept = where(terms, replaced(terms, _term(yes), {name: value}), condition)
        rest = [pair for pair in ranges if pair[0] != name]
        over = [*rest, (fresh, by)] if by > 1 else rest
        return summed(terms, "add", to, over, choose(terms, condition, kept, zero_of(terms)))
    return None


def only_block(terms: Terms, which: Node, name: str) -> tuple[Dim, int] | None:
    """``(number, by)`` of a condition that holds for one ``v div by`` of a variable alone."""
    for fact in conjuncts(which):
        value = fact.args[0]
        if fact.kind != "eq0" or not isinstance(value, Poly):
            continue
        for monomial, factor in value.terms:
            node = terms.atoms.get(monomial[0]) if len(monomial) == 1 else None
            if node is None or node.kind != "div" or node.args[0] != symbol(name):
                continue
            number = (value + symbol(monomial[0]) * -factor) * -factor
            if abs(factor) == 1 and name not in terms.symbols_of(number):
                assert isinstance(node.args[1], int)
                return number, node.args[1]
    return None


def only_value(terms: Terms, which: Node, name: str) -> tuple[Dim, bool | Node] | None:
    """The only value of a variable for which a condition can hold, and what is left of it."""
    facts = conjuncts(which)
    for fact in facts:
        if fact.kind == "eq0":
            value = fact.args[0]
            parts = linear(_dim(value), name)
            if parts is None or abs(parts[0]) != 1:
                continue
            found = parts[1] * -parts[0]
            if name not in terms.symbols_of(found):
                return found, replaced_truth(terms, which, {name: found})
    for low in facts:
        for high in facts:
            if low is high or low.kind != "le0" or high.kind != "le0":
                continue
            below, above = linear(_dim(low.args[0]), name), linear(_dim(high.args[0]), name)
            if below is None or above is None or below[0] <= 0 or above[0] != -below[0]:
                continue
            # by * v + rest <= 0 and -by * v - rest - width <= 0, so v = -rest div by.
            by, rest = below
            width = rest * -1 + above[1] * -1
            if not isinstance(width, int) or not 0 <= width < by or name in terms.symbols_of(rest):
                continue
            value = div(terms, rest * -1, by)
            return value, replaced_truth(terms, which, {name: value})
    return None


def replaced_truth(terms: Terms, which: Node, values: dict[str, Dim]) -> bool | Node:
    """A condition with variables replaced."""
    found = replaced(terms, which, values)
    assert isinstance(found, bool | Node)
    return found


def linear(value: Dim, name: str) -> tuple[int, Dim] | None:
    """``(a, rest)`` with value = a * name + rest; ``None`` for products with the variable."""
    if not isinstance(value, Poly):
        return None
    factor = 0
    for monomial, coefficient in value.terms:
        if name in monomial:
            if len(monomial) != 1:
                return None
            factor = coefficient
    return (factor, value + symbol(name) * -factor) if factor else None


# ---- variables that are one ----------------------------------------------------------------------


def merged(terms: Terms, body: Term, ranges: list[Range]) -> tuple[Term, list[Range]]:
    """Variables that occur as ``outer * size + inner``, as one: as its quotient and its rest."""
    changed = True
    while changed and len(ranges) > 1:
        changed = False
        held = _factors(terms, body, [name for name, _ in ranges])
        for (outer, many), (inner, size) in permutations(ranges, 2):
            if not isinstance(many, int) or not isinstance(size, int):
                continue
            if not _side_by_side(terms, held, outer, inner, size):
                continue
            both_name = f"m{many}x{size}_{outer}_{inner}"
            joined = terms.variable(both_name, many * size)
            quotient = terms.atom(terms.node("div", joined, size), 0, many - 1)
            made = replaced(terms, body, {outer: quotient, inner: joined + quotient * -size})
            rest = [pair for pair in ranges if pair[0] not in (outer, inner)]
            body, ranges, changed = made, [*rest, (both_name, many * size)], True
            break
    return body, ranges


def _factors(terms: Terms, body: Term, names: Sequence[str]) -> list[dict[str, int]]:
    """The factors of the summands of each integer in a term that has one of some variables."""
    found = ({m[0]: c for m, c in x.terms if len(m) == 1} for x in polynomials(terms, body))
    return [parts for parts in found if not parts.keys().isdisjoint(names)]


def _side_by_side(
    terms: Terms, held: Sequence[Mapping[str, int]], outer: str, inner: str, size: int
) -> bool:
    """True if some integer of a term has ``outer * size + inner`` in it, or a quotient of that.

    Its quotient by a number that divides the size is ``outer * (size / by) + inner div by``.
    """
    for parts in held:
        if outer not in parts:
            continue
        if parts.get(inner, 0) * size == parts[outer]:
            return True
        for name, factor in parts.items():
            node = terms.atoms.get(name)
            if node is None or node.kind != "div" or node.args[0] != symbol(inner):
                continue
            by = node.args[1]
            assert isinstance(by, int)
            if size % by == 0 and factor * (size // by) == parts[outer]:
                return True
    return False


def polynomials(terms: Terms, root: Term) -> Iterator[Poly]:
    """Every integer that is not a number in a term, those within atoms included."""
    seen: set[object] = set()
    work: list[object] = [root]
    while work:
        item = work.pop()
        if item in seen:
            continue
        if isinstance(item, Poly):
            seen.add(item)
            yield item
            names = {name for monomial, _ in item.terms for name in monomial}
            work += [terms.atoms[name] for name in names if name in terms.atoms]
        elif isinstance(item, Node):
            seen.add(item)
            work += [x for x in item.args if isinstance(x, Node | Poly)]


def _named(terms: Terms, kind: str, to: object, ranges: list[Range], body: Term) -> Term:
    """The node, with variables named by their depth, size and number."""
    if not ranges:
        return body
    sizes = [str(size) for _, size in ranges]
    alike = len(set(sizes)) < len(sizes)
    ordered = sorted(
        ranges, key=lambda pair: (str(pair[1]), _first(terms, body, pair[0]) if alike else "")
    )
    names = sum_names(terms, ordered, body)
    variables = [terms.variable(names[name], size) for name, size in ordered]
    changed = {old: new for old, new in names.items() if old != new}
    body = renamed(terms, body, changed)
    return terms.node("sum", kind, to, None, *variables, *[n for _, n in ordered], body)


def _first(terms: Terms, body: Term, name: str) -> str:
    """The place of the first use of a variable in a term, which no name of a variable changes."""
    uses = (
        f"{node.args[0]} {axis}"
        for node in nodes_of(terms, body)
        if node.kind == "at"
        for axis, index in enumerate(node.args[2:])
        if name in terms.symbols_of(index)
    )
    return min(uses, default="")
