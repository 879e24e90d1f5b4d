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

from collections.abc import Sequence
from dataclasses import dataclass

from graphgen.ir import Dim
from graphgen.ir.dims import Poly, symbol, symbols
from graphgen.passes.proof.integers import conjuncts, div
from graphgen.passes.proof.rebuild import node_rule, replaced
from graphgen.passes.proof.sums import Range, linear, ranges_of
from graphgen.passes.proof.terms import PLACE, TOTAL, Node, Term, Terms


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


def _candidates(terms: Terms, value: Dim, size: Dim) -> list[Dim]:
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


def _atom(terms: Terms, value: Term) -> Node | None:
    """The node of an integer that is one atom."""
    if not isinstance(value, Poly) or len(value.terms) != 1 or value.terms[0][1] != 1:
        return None
    names = value.terms[0][0]
    return terms.atoms.get(names[0]) if len(names) == 1 else None


def _dim(value: object) -> Dim:
    assert isinstance(value, int | Poly), value
    return value
