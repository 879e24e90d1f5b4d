"""Sums of integers, and whole numbers that floats hold: both are integers in the normal form.

A sum of integers is split into the sums of its addends; where a condition leaves one value of a
variable, that value is taken. The sum left counts the values for which a condition holds. A float
of 32 bits is a whole number exactly where all that is added is, below 2^24: so prefix sums that are
products with a triangle of ones are counts, and a prefix within a block beside those of all blocks
before is one prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import permutations
from math import inf, prod

from graphgen.ir import Dim, DType
from graphgen.ir.dims import Poly, symbol
from graphgen.ir.dtype import float_digits, highest
from graphgen.ir.small_float import FORMATS
from graphgen.passes.proof.block_places import end_of, owner_of, some_value
from graphgen.passes.proof.floats import Range as Span
from graphgen.passes.proof.integers import at_most_zero, both, choose, conjuncts, range_of
from graphgen.passes.proof.rebuild import node_rule, renamed, replaced, where
from graphgen.passes.proof.sums import Range, merged, only_value, ranges_of, sum_names
from graphgen.passes.proof.terms import TOTAL, Node, Term, Terms


@node_rule(TOTAL)
def _total_again(terms: Terms, args: tuple[object, ...]) -> Term:
    ranges, body = ranges_of(Node(TOTAL, args))
    return whole_sum(terms, ranges, _dim(body))


def whole_sum(terms: Terms, ranges: Sequence[Range], body: Dim) -> Dim:
    """The sum of an integer over variables."""
    if not ranges:
        return body
    parts = body.terms if isinstance(body, Poly) else (((), body),)
    names = {name for name, _ in ranges}
    out: Dim = 0
    for monomial, coefficient in parts:
        inside = [x for x in monomial if names & terms.symbols_of(symbol(x))]
        apart: Dim = coefficient
        for name in monomial:
            apart = apart if name in inside else apart * symbol(name)
        out = out + apart * _part(terms, ranges, inside)
    return out


def _part(terms: Terms, ranges: Sequence[Range], factors: Sequence[str]) -> Dim:
    """The sum of a product of atoms and variables."""
    body: Dim = 1
    for name in factors:
        body = body * symbol(name)
    choice = terms.atoms.get(factors[0]) if len(factors) == 1 else None
    if choice is not None and choice.kind == "if":
        which, yes, no = choice.args
        assert isinstance(which, Node)
        if no != 0:
            gap = _dim(choose(terms, which, _dim(yes) + _dim(no) * -1, 0))
            return whole_sum(terms, ranges, _dim(no)) + whole_sum(terms, ranges, gap)
        chosen = _chosen(terms, ranges, which, _dim(yes))
        if chosen is not None:
            return chosen
    used = [pair for pair in ranges if pair[0] in terms.symbols_of(body)]
    count: Dim = 1
    for _, size in [pair for pair in ranges if pair not in used]:
        count = count * size
    if not used:
        return body * count
    joined, fewer = merged(terms, body, list(used))
    if len(fewer) < len(used):
        return whole_sum(terms, fewer, _dim(joined)) * count
    owner = owner_of(terms, used, body)
    return (_named(terms, used, body) if owner is None else owner) * count


def _chosen(terms: Terms, ranges: Sequence[Range], which: Node, yes: Dim) -> Dim | None:
    """The sum of ``yes`` where a condition holds; ``None`` for one that only counts."""
    for name, size in ranges:
        found = only_value(terms, which, name)
        if found is None:
            continue
        value, left = found
        low = at_most_zero(terms, value * -1)
        inside = both(terms, low, at_most_zero(terms, value + size * -1 + 1))
        condition = both(terms, inside, left)
        kept = where(terms, replaced(terms, yes, {name: value}), condition)
        rest = [pair for pair in ranges if pair[0] != name]
        return whole_sum(terms, rest, _dim(choose(terms, condition, kept, 0)))
    names = {name for name, _ in ranges}
    facts = conjuncts(which)
    outer = [fact for fact in facts if names.isdisjoint(terms.symbols_of(fact))]
    if outer:
        inner = _all(terms, [fact for fact in facts if fact not in outer])
        condition = _all(terms, outer)
        made = whole_sum(terms, ranges, _dim(choose(terms, inner, yes, 0)))
        return _dim(choose(terms, condition, where(terms, made, condition), 0))
    return None if yes == 1 else _weighted(terms, ranges, which, yes)


def _weighted(terms: Terms, ranges: Sequence[Range], which: Node, yes: Dim) -> Dim | None:
    """The sum of an integer where a condition holds, by its addends and what these are."""
    if isinstance(yes, int):
        return whole_sum(terms, ranges, _dim(choose(terms, which, 1, 0))) * yes
    (_, coefficient), *more = yes.terms
    if more or coefficient != 1:
        out: Dim = 0
        for monomial, coefficient in yes.terms:
            one: Dim = 1
            for name in monomial:
                one = one * symbol(name)
            addend = _dim(choose(terms, which, one, 0))
            out = out + whole_sum(terms, ranges, addend) * coefficient
        return out
    node = _atom(terms, yes)
    if node is not None and node.kind == "if" and node.args[2] == 0:
        inner = both(terms, which, _truth(node.args[0]))
        return whole_sum(terms, ranges, _dim(choose(terms, inner, _dim(node.args[1]), 0)))
    if node is not None and node.kind == TOTAL:
        over, summand = ranges_of(node)
        fresh = {name: f"x{terms.depth(node)}_{name}" for name, _ in over}
        others = [(fresh[name], size) for name, size in over]
        for name, size in others:
            terms.variable(name, size)
        made = choose(terms, which, renamed(terms, summand, fresh), 0)
        return whole_sum(terms, [*ranges, *others], _dim(made))
    return None


def _all(terms: Terms, facts: Sequence[Node]) -> bool | Node:
    out: bool | Node = True
    return reduce(lambda a, b: both(terms, a, b), facts, out)


def _named(terms: Terms, ranges: Sequence[Range], body: Dim) -> Dim:
    """The atom of a sum, with variables named by their depth, size and number."""
    ordered = sorted(ranges, key=lambda pair: str(pair[1]))
    names = sum_names(terms, ordered, body)
    variables = [terms.variable(names[name], size) for name, size in ordered]
    sizes = [size for _, size in ordered]
    changed = {old: new for old, new in names.items() if old != new}
    ends = terms.lowest(body), terms.highest(body)
    made = renamed(terms, body, changed)
    node = terms.node(TOTAL, "add", None, None, *variables, *sizes, made)
    count = prod(size for size in sizes if isinstance(size, int))
    whole = all(isinstance(size, int) for size in sizes)
    low, high = [x * count if whole and isinstance(x, int) else None for x in ends]
    if len(ranges) == 1:
        low, high = _count_ends(terms, ranges[0], body, (low, high))
    return terms.atom(node, low, high)


def _count_ends(
    terms: Terms, over: Range, body: Dim, ends: tuple[int | None, int | None]
) -> tuple[int | None, int | None]:
    """The bounds of a count: at least 1 of what some value is, at most those below an end."""
    low, high = ends
    found = below(terms, body, over[0])
    end = None if found is None else terms.highest(found[0])
    if isinstance(end, int) and isinstance(high, int):
        high = min(high, max(end, 0))
    node = _atom(terms, body)
    if low == 0 and node is not None and node.kind == "if" and node.args[1:] == (1, 0):
        low = int(some_value(terms, _truth(node.args[0]), over) is not None)
    return low, high


# ---- whole numbers in floats ---------------------------------------------------------------------


def as_whole(terms: Terms, term: Term, target: DType) -> Dim | None:
    """The integer that an element is, if an integer type has it; else ``None``."""
    found = whole_value(terms, term)
    return found if found is not None and terms.within(found, *range_of(target)) else None


def whole_value(terms: Terms, term: Term) -> Dim | None:
    """The integer that a float element is exactly; ``None`` if none is known."""
    if not isinstance(term, Node):
        return None
    name, args = term.args[0], term.args
    match term.kind, name:
        case "const", _:
            number = float(str(name))
            return int(number) if number.is_integer() else None
        case "if", _:
            which, *branches = args
            parts = [whole_value(terms, _term(x)) for x in branches]
            known = [part for part in parts if part is not None]
            return _dim(choose(terms, _truth(which), *known)) if len(known) == 2 else None
        case "fn", "float":
            return _dim(args[3])
        case "fn", "convert":
            value = whole_value(terms, _term(args[3]))
            kept = value is not None and _fits(_most(terms, value), args[1])
            return value if kept else None
        case "fn", "add" | "multiply" | "product":
            return _of_flat(terms, term)
        case "sum", "add":
            # In an order of its own a sum has its place in the result beside its variables.
            return _of_sum(terms, term) if args[2] is None else None
        case _:
            return None


def _of_flat(terms: Terms, term: Node) -> Dim | None:
    """The sum or product of whole numbers."""
    parts = [whole_value(terms, _term(x)) for x in term.args[3:]]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    if term.args[0] == "add":
        # Every partial sum has to be exact, in whatever order.
        most = reduce(lambda a, b: a + b, [_most(terms, part) for part in known])
        made = _joined(terms, reduce(lambda a, b: a + b, known))
        return made if _fits(most, term.args[1]) else None
    out: Dim = 1
    for part in known:
        out = _times(terms, out, part)
        if not _fits(_most(terms, out), term.args[1]):
            return None
    return out


def _of_sum(terms: Terms, term: Node) -> Dim | None:
    """The sum of whole numbers over variables."""
    ranges, body = ranges_of(term)
    addend = whole_value(terms, body)
    if addend is None or not all(isinstance(size, int) for _, size in ranges):
        return None
    count = prod(size for _, size in ranges if isinstance(size, int))
    fits = _fits(_most(terms, addend) * count, term.args[1])
    return whole_sum(terms, ranges, addend) if fits else None


def _most(terms: Terms, value: Dim) -> float:
    """The largest magnitude of an integer, as far as is known."""
    ends = terms.lowest(value), terms.highest(value)
    return max([abs(end) if isinstance(end, int) else inf for end in ends])


def _fits(most: float, to: object) -> bool:
    """True if a float type has all integers up to a magnitude; products alone have no type."""
    dtype = to.dtype if isinstance(to, Span) else to
    if not isinstance(dtype, DType):
        return dtype is None
    form = FORMATS.get(dtype.name)
    # A narrow type may end before its digits do, or have neither zero nor negative numbers.
    return most <= min(1 << float_digits(dtype), highest(dtype)) and (form is None or form.signed)


def _times(terms: Terms, a: Dim, b: Dim) -> Dim:
    """A product; a choice between something and 0 is one of products."""
    for one, other in ((a, b), (b, a)):
        node = _atom(terms, one)
        if node is not None and node.kind == "if" and node.args[2] == 0:
            return _dim(choose(terms, _truth(node.args[0]), _dim(node.args[1]) * other, 0))
    return a * b


def _atom(terms: Terms, value: Dim) -> Node | None:
    """The node of an integer that is one atom."""
    if not isinstance(value, Poly) or len(value.terms) != 1:
        return None
    ((names, coefficient),) = value.terms
    if coefficient != 1:
        return None
    return terms.atoms.get(names[0]) if len(names) == 1 else None


def _joined(terms: Terms, value: Dim) -> Dim:
    """Counts below a place, and from there to another one, as one count below that."""
    if not isinstance(value, Poly):
        return value
    counts = [
        (m[0], c)
        for m, c in value.terms
        if len(m) == 1 and (node := terms.atoms.get(m[0])) is not None and node.kind == TOTAL
    ]
    for (first, a), (second, b) in permutations(counts, 2):
        found = _prefix(terms, terms.atoms[first], terms.atoms[second]) if a == b else None
        if found is not None:
            rest = value + (symbol(first) + symbol(second)) * -a
            return _joined(terms, rest + found * a)
    return value


def _prefix(terms: Terms, before: Node, within: Node) -> Dim | None:
    """The count below ``t`` of counts below ``start`` and in ``start`` to ``t``."""
    ranges, body = ranges_of(before)
    others, inner = ranges_of(within)
    if len(ranges) != 1 or len(others) != 1:
        return None
    ((name, size),), ((place, width),) = ranges, others
    first, second = below(terms, body, name), below(terms, inner, place)
    if first is None or second is None or not isinstance(size, int) or not isinstance(width, int):
        return None
    (start, rest), (length, more) = first, second
    end = start + length
    fits = terms.at_least(start, 0) and terms.at_most(length, width) and terms.at_most(end, size)
    if not fits or place in terms.symbols_of(rest) or terms.symbols_of(start) & {name, place}:
        return None
    if replaced(terms, rest, {name: start + symbol(place)}) is not more:
        return None
    under = at_most_zero(terms, symbol(name) + end * -1 + 1)
    body = _dim(choose(terms, both(terms, under, rest), 1, 0))
    return whole_sum(terms, ranges, body)


def below(terms: Terms, body: Term, name: str) -> tuple[Dim, bool | Node] | None:
    """``(end, rest)`` of a count of a variable below ``end`` for which ``rest`` holds, too."""
    node = _atom(terms, body) if isinstance(body, Poly) else None
    if node is None or node.kind != "if" or node.args[1:] != (1, 0):
        return None
    which = node.args[0]
    assert isinstance(which, Node)
    for fact in conjuncts(which):
        end = end_of(terms, fact, name)
        if end is not None:
            others = [other for other in conjuncts(which) if other is not fact]
            return end, _all(terms, others)
    return None


def _dim(value: object) -> Dim:
    assert isinstance(value, int | Poly), value
    return value


def _term(value: object) -> Term:
    assert isinstance(value, bool | int | Poly | Node)
    return value


def _truth(value: object) -> bool | Node:
    assert isinstance(value, bool | Node)
    return value
