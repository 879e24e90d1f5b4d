"""Places of tokens in blocks of experts, and facts about them.

Tokens t < T choose among E experts, each at most K. The tokens of an expert are in blocks of B
places, expert after expert, in the order of the tokens; C(e) tokens choose expert e::

    needed(e) = ceil(C(e) / B)    ends(e) = sum of needed(i) for i <= e
    place(t, e) = B * (ends(e) - needed(e)) + tokens before t that choose e

Of a token and an expert that it chooses: the place is one of the first ``B * N``, where N blocks
are enough for any choice; no other token and no other expert have it; and as many experts end at or
before its block as come before its expert.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from graphgen.ir import Dim
from graphgen.ir.dims import Poly, symbol, symbols
from graphgen.passes.proof.integers import both, conjuncts, div, is_zero
from graphgen.passes.proof.rebuild import node_rule, renamed, replaced
from graphgen.passes.proof.sums import Range, linear, only_value, ranges_of
from graphgen.passes.proof.terms import PLACE, TOTAL, Node, Term, Terms, nodes_of

# Names of the variables of two conditions that are compared.
_TOKEN, _OF_TOKEN = "token_of_both", "choice_of_both"


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """The place of a token in the blocks of an expert that it chooses.

    Attributes:
        block: B.
        experts: E.
        tokens: T.
        chosen: K.
        expert: of the place.
        token: of the place.
        ends: the atom ends(e).
        choice: the variable of the token's choices at which the expert is, or 0.
    """

    block: int
    experts: int
    tokens: int
    chosen: int
    expert: Dim
    token: Dim
    ends: str
    choice: Dim

    @property
    def highest(self) -> int:
        """The last place that any choice may need."""
        pairs = self.tokens * self.chosen
        # One place in each block but the last ones may hold a token of its own expert.
        first = min(self.experts, pairs)
        return self.block * (first + (pairs - first) // self.block) - 1


@node_rule(PLACE)
def _place_again(terms: Terms, args: tuple[object, ...]) -> Term:
    return place_atom(terms, _dim(args[0]))


def place_atom(terms: Terms, value: Dim) -> Dim:
    """An integer as the place of a token in a block, if it is one."""
    found = _recognized(terms, value)
    if found is None:
        return value
    node = terms.node(PLACE, value)
    terms.rules.add("place in a block")
    return terms.atom(node, 0, found.highest)


def place_of(terms: Terms, name: str) -> BlockPlace | None:
    """Facts about an atom that is a place; ``None`` for other atoms."""
    node = terms.atoms.get(name)
    return _recognized(terms, _dim(node.args[0])) if node and node.kind == PLACE else None


def _recognized(terms: Terms, value: Dim) -> BlockPlace | None:
    if not isinstance(value, Poly) or len(value.terms) != 3:
        return None
    parts: dict[int, str] = {c: m[0] for m, c in value.terms if len(m) == 1}
    block = max(parts, default=0)
    if sorted(parts) != [-block, 1, block] or block < 2:
        return None
    ends, needed, before = [terms.atoms.get(parts[c]) for c in (block, -block, 1)]
    if ends is None or needed is None or before is None:
        return None
    if (ends.kind, needed.kind, before.kind) != (TOTAL, "div", TOTAL):
        return None
    return _of_parts(terms, block, (ends, parts[block]), parts[-block], before)


def _of_parts(
    terms: Terms, block: int, ends: tuple[Node, str], needed: str, before: Node
) -> BlockPlace | None:
    """The place whose parts these are, if they fit together."""
    over = _single(ends[0])
    choice = None if over is None else _choice(terms, over[1])
    if over is None or choice is None:
        return None
    (e, experts), (which, of_expert) = over[0], choice
    parts = linear(_dim(which.args[0]), e) if which.kind == "le0" else None
    # e - expert <= 0
    if parts is None or parts[0] != 1 or not isinstance(experts, int):
        return None
    expert = parts[1] * -1
    own = replaced(terms, of_expert, {e: expert})
    if own != symbol(needed) or not terms.within(expert, 0, experts - 1):
        return None
    asked = _needed(terms, of_expert, block)
    held = _needed(terms, symbol(needed), block)
    earlier = _single(before)
    if asked is None or held is None or earlier is None:
        return None
    chosen = _choices(terms, asked, e)
    ((later, count), counted), ((name, tokens), chooses) = earlier, held
    found = _choice(terms, counted)
    if found is None or found[1] != 1 or chosen is None or count != tokens:
        return None
    token = _token(terms, found[0], later, replaced(terms, chooses, {name: symbol(later)}))
    if token is None or not isinstance(tokens, int):
        return None
    if not terms.within(token, 0, tokens - 1):
        return None
    witness = _witness(terms, replaced(terms, chooses, {name: token}), expert)
    if witness is None:
        return None
    return BlockPlace(block, experts, tokens, chosen, expert, token, ends[1], witness)


def _single(total: Node) -> tuple[Range, Term] | None:
    """The variable of a sum over one, and what is summed."""
    ranges, body = ranges_of(total)
    return (ranges[0], body) if len(ranges) == 1 else None


def _choice(terms: Terms, value: Term) -> tuple[Node, Term] | None:
    """``(which, yes)`` of a choice between an integer and 0."""
    node = _atom(terms, value)
    if node is None or node.kind != "if" or node.args[2] != 0:
        return None
    which, yes = node.args[:2]
    assert isinstance(which, Node)
    return which, _dim(yes)


def _needed(terms: Terms, value: Term, block: int) -> tuple[Range, Node] | None:
    """The variable, and the condition, of a count that is divided by a block, rounded up."""
    node = _atom(terms, value)
    if node is None or node.kind != "div" or node.args[1] != block:
        return None
    count = _atom(terms, _dim(node.args[0]) + (1 - block))
    over = _single(count) if count is not None and count.kind == TOTAL else None
    found = None if over is None else _choice(terms, over[1])
    return (over[0], found[0]) if over is not None and found is not None and found[1] == 1 else None


def _choices(terms: Terms, asked: tuple[Range, Node], expert: str) -> int | None:
    """The most experts that one token chooses: the choices that are compared with an expert."""
    (token, _), which = asked
    over = _any(which)
    condition, count = (which, 1) if over is None else (over[1], over[0][1])
    if not isinstance(condition, Node) or condition.kind != "eq0" or not isinstance(count, int):
        return None
    parts = linear(_dim(condition.args[0]), expert)
    # A token's choice is an expert, which names one.
    if parts is None or abs(parts[0]) != 1 or expert in terms.symbols_of(parts[1]):
        return None
    return count if token in terms.symbols_of(parts[1]) else None


def _any(which: Node) -> tuple[Range, Term] | None:
    """The variable of a condition that another one holds for some value, and that one."""
    inner = which.args[0] if which.kind == "truth" else None
    if not isinstance(inner, Node) or inner.kind != "sum" or inner.args[0] != "or":
        return None
    return _single(inner)


def _token(terms: Terms, which: Node, name: str, chooses: Term) -> Dim | None:
    """The token before which others are counted that choose an expert."""
    if not isinstance(chooses, Node):
        return None
    for fact in conjuncts(which):
        end = end_of(terms, fact, name)
        rest = {other for other in conjuncts(which) if other is not fact}
        if end is not None and rest == set(conjuncts(chooses)):
            return end
    return None


def end_of(terms: Terms, fact: Node, name: str) -> Dim | None:
    """The place below which a variable, or its quotient, is by a condition; else ``None``."""
    if fact.kind != "le0" or not isinstance(fact.args[0], Poly):
        return None
    value, size = fact.args[0], 1
    place = name
    for atom in symbols([value]):
        node = terms.atoms.get(atom)
        if node is not None and node.kind == "div" and node.args[0] == symbol(name):
            place, size = atom, node.args[1]
    parts = linear(value, place)
    # by * place + rest <= 0, so place <= -rest div by.
    if parts is None or parts[0] < 1 or name in terms.symbols_of(parts[1]):
        return None
    assert isinstance(size, int)
    return (div(terms, parts[1] * -1, parts[0]) + 1) * size


def _witness(terms: Terms, chooses: Term, expert: Dim) -> Dim | None:
    """The choice at which a token has an expert; 0 where it has one choice."""
    if chooses is True:
        return 0
    over = _any(chooses) if isinstance(chooses, Node) else None
    if over is None:
        return None
    (name, size), condition = over
    for candidate in _candidates(terms, expert, size):
        if replaced(terms, condition, {name: candidate}) is True:
            return candidate
    return None


def some_value(terms: Terms, which: bool | Node, over: Range) -> Dim | None:
    """A value of a variable for which a condition holds; ``None`` if none is found."""
    name, size = over
    if isinstance(which, bool) or not isinstance(size, int):
        return None
    for value in (*_candidates(terms, which, size), *_alike(terms, which, name, size)):
        if name not in terms.symbols_of(value) and _holds(terms, which, {name: value}):
            return value
    return None


def _alike(terms: Terms, which: Node, name: str, size: int) -> Iterator[Dim]:
    """Values of a variable at which an element in a condition is another element there."""
    read = [node for node in nodes_of(terms, which) if node.kind == "at"]
    for one, other in product(read, repeat=2):
        moves = [name in terms.symbols_of(node) for node in (one, other)]
        if one.args[:2] != other.args[:2] or moves != [True, False]:
            continue
        places: bool | Node = True
        for i, j in zip(one.args[2:], other.args[2:], strict=True):
            places = both(terms, places, is_zero(terms, _dim(i) + _dim(j) * -1))
        found = only_value(terms, places, name) if isinstance(places, Node) else None
        if found is not None and terms.within(found[0], 0, size - 1):
            yield found[0]


def _holds(terms: Terms, which: Node, values: dict[str, Dim]) -> bool:
    """True if a condition is known to hold for these values, also if for some of a variable."""
    found = replaced(terms, which, values)
    if isinstance(found, bool):
        return found
    assert isinstance(found, Node)
    for part in conjuncts(found):
        over = _any(part)
        if over is None or not isinstance(over[1], Node):
            return False
        if some_value(terms, over[1], over[0]) is None:
            return False
    return True


def _candidates(terms: Terms, value: Term, size: Dim) -> list[Dim]:
    """Variables of a term that are in a range, and quotients' rests by its size."""
    found: list[Dim] = [0]
    for name in sorted(terms.symbols_of(value)):
        variable = symbol(name)
        if name in terms.bounds and isinstance(size, int) and terms.within(variable, 0, size - 1):
            found.append(variable)
    for name in sorted(terms.symbols_of(value)):
        node = terms.atoms.get(name)
        if node is not None and node.kind == "div" and node.args[1] == size:
            found.append(_dim(node.args[0]) + symbol(name) * (size * -1))
    return found


# ---- what follows --------------------------------------------------------------------------------


def owner_of(terms: Terms, ranges: Sequence[Range], body: Dim) -> Dim | None:
    """The expert of a place, as the number of experts that end at or before its block."""
    if len(ranges) != 1:
        return None
    ((name, size),) = ranges
    found = _choice(terms, body)
    if found is None or found[1] != 1 or found[0].kind != "le0":
        return None
    value = _dim(found[0].args[0])
    if not isinstance(value, Poly) or len(value.terms) != 2:
        return None
    parts = {c: m[0] for m, c in value.terms if len(m) == 1}
    # B * ends(e) - place <= 0
    place = place_of(terms, parts.get(-1, ""))
    if place is None or size != place.experts or place.block not in parts:
        return None
    if replaced(terms, symbol(parts[place.block]), {name: place.expert}) != symbol(place.ends):
        return None
    terms.rules.add("owner of a block")
    return place.expert


def written_in_block(
    terms: Terms, ranges: Sequence[Range], here: bool | Node, new: Term
) -> Term | None:
    """The update at a place in a block, where it depends on the token alone.

    Args:
        terms: of the proof.
        ranges: the variable of the update.
        here: the condition that its place is this one.
        new: the update.
    """
    if len(ranges) != 1 or not isinstance(here, Node) or here.kind != "eq0":
        return None
    ((name, size),) = ranges
    value = _dim(here.args[0])
    if not isinstance(value, Poly) or len(value.terms) != 2:
        return None
    parts = {m[0]: c for m, c in value.terms if len(m) == 1}
    if sorted(parts.values()) != [-1, 1]:
        return None
    moving = [atom for atom in parts if name in terms.symbols_of(symbol(atom))]
    fixed = [atom for atom in parts if atom not in moving]
    if len(moving) != 1 or len(fixed) != 1:
        return None
    one, other = place_of(terms, moving[0]), place_of(terms, fixed[0])
    if one is None or other is None or size != one.tokens * one.chosen or new != one.token:
        return None
    # Some value of the variable has this place; all that have are of one token.
    at = other.token * one.chosen + other.choice
    if replaced(terms, symbol(moving[0]), {name: at}) != symbol(fixed[0]):
        return None
    terms.rules.add("token at a place")
    return replaced(terms, new, {name: at})


@dataclass(frozen=True, slots=True)
class _Earlier:
    """The number of tokens before one that choose an expert.

    Attributes:
        tokens: of all.
        token: before which they are.
        over: the variable that they are.
        chooses: the condition on it that a token chooses the expert.
    """

    tokens: int
    token: Dim
    over: str
    chooses: Node


def _earlier(terms: Terms, atom: str) -> _Earlier | None:
    """The count of earlier tokens that an atom is; ``None`` for other atoms."""
    node = terms.atoms.get(atom)
    over = _single(node) if node is not None and node.kind == TOTAL else None
    found = None if over is None else _choice(terms, over[1])
    if over is None or found is None or found[1] != 1:
        return None
    (name, tokens), (which, _) = over[0], found
    for fact in conjuncts(which):
        end = end_of(terms, fact, name)
        rest = [other for other in conjuncts(which) if other is not fact]
        if end is not None and len(rest) == 1 and isinstance(tokens, int):
            return _Earlier(tokens, end, name, rest[0])
    return None


def written_in_buffer(
    terms: Terms, ranges: Sequence[Range], here: bool | Node, new: Term
) -> tuple[bool | Node, Term] | None:
    """The token that is written where as many earlier ones choose its expert as choose another's.

    Of the tokens that choose an expert, each has another number of such tokens before it.

    Args:
        terms: of the proof.
        ranges: the variable of the update.
        here: a condition: that both experts are one, and both counts.
        new: the update, the token of the variable.

    Returns:
        A condition, and the update that is written where it holds.
    """
    if len(ranges) != 1 or not isinstance(here, Node) or here.kind != "and":
        return None
    ((name, size),) = ranges
    for fact in conjuncts(here):
        value = fact.args[0]
        parts = {m[0]: c for m, c in value.terms if len(m) == 1} if isinstance(value, Poly) else {}
        if fact.kind != "eq0" or sorted(parts.values()) != [-1, 1] or len(parts) != 2:
            continue
        moving, fixed = sorted(parts, key=lambda x: name not in terms.symbols_of(symbol(x)))
        if name in terms.symbols_of(symbol(fixed)):
            continue
        one, other = _earlier(terms, moving), _earlier(terms, fixed)
        if one is None or other is None or one.token != new or not isinstance(size, int):
            continue
        if one.tokens != other.tokens or not _same_expert(terms, here, one, other):
            continue
        if not (_chooses(terms, one) and _chooses(terms, other)):
            continue
        found = _update_of(terms, (name, size), here, other)
        if found is not None:
            terms.rules.add("token in a buffer")
            place, left = found
            return left, replaced(terms, new, {name: place})
    return None


def _chooses(terms: Terms, earlier: _Earlier) -> bool:
    """True if the token itself is known to choose the expert."""
    within = terms.within(earlier.token, 0, earlier.tokens - 1)
    return within and _holds(terms, earlier.chooses, {earlier.over: earlier.token})


def _same_expert(terms: Terms, here: Node, one: _Earlier, other: _Earlier) -> bool:
    """True if a condition says that two experts are one, by what the tokens' choices are."""
    sides: list[tuple[Dim, object]] = []
    for x in (one, other):
        over = _any(x.chooses)
        names, inner = {x.over: _TOKEN}, x.chooses
        if over is not None and isinstance(over[1], Node):
            inner = over[1]
            names[over[0][0]] = _OF_TOKEN
        if inner.kind != "eq0":
            return False
        made = renamed(terms, _dim(inner.args[0]), names)
        sides.append((_dim(made), None if over is None else over[0][1]))
    (a, count), (b, others) = sides
    for gap in (a + b * -1, a + b):
        if count == others and not {_TOKEN, _OF_TOKEN} & terms.symbols_of(gap):
            known = is_zero(terms, gap)
            if known is True or (isinstance(known, Node) and known in conjuncts(here)):
                return True
    return False


def _update_of(
    terms: Terms, over: tuple[str, int], here: Node, other: _Earlier
) -> tuple[Dim, bool | Node] | None:
    """The update of a token at which a condition holds, and what is left of it."""
    name, size = over
    chosen = size // other.tokens
    if size % other.tokens:
        return None
    for choice in _candidates(terms, other.chooses, chosen):
        found = other.token * chosen + choice
        if name in terms.symbols_of(found) or not terms.within(found, 0, size - 1):
            continue
        left = replaced(terms, here, {name: found})
        assert isinstance(left, bool | Node)
        # Equations say that it is another choice of the token.
        if left is True or (left and all(part.kind == "le0" for part in conjuncts(left))):
            return found, left
    return None


def _atom(terms: Terms, value: Term) -> Node | None:
    """The node of an integer that is one atom."""
    if not isinstance(value, Poly) or len(value.terms) != 1 or value.terms[0][1] != 1:
        return None
    names = value.terms[0][0]
    return terms.atoms.get(names[0]) if len(names) == 1 else None


def _dim(value: object) -> Dim:
    assert isinstance(value, int | Poly), value
    return value
