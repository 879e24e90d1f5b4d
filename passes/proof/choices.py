"""Choices and writes at one condition: functions of them, and comparison case by case.

A write is its new element, for the last value of its variables for which the condition holds, or
the old one. So a function of writes at one condition is the write of the function, and two terms
are equal if they are with all these writes taken for the new elements, and for the old ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from graphgen.ir import Dim
from graphgen.ir.dims import Poly, symbol
from graphgen.passes.proof.rebuild import NODE_RULES, renamed, replaced
from graphgen.passes.proof.terms import (
    BINDING,
    Node,
    Term,
    Terms,
    bound_names,
    free_depth,
    nodes_of,
    size_name,
)

# Conditions that two terms are compared by, within each other.
_MOST_CASES = 4
# A function of two terms that says whether they are known to be equal.
Equal = Callable[[Term, Term], bool]


def equal_in_cases(terms: Terms, a: Term, b: Term, equal: Equal, most: int = _MOST_CASES) -> bool:
    """True if two terms are known to be equal in each case of the conditions of their choices."""
    if equal(a, b):
        return True
    choice = _first_choice(terms, a, b) if most else None
    if choice is None:
        return False
    sides = _in_both_cases(terms, choice, (a, b))
    return all(equal_in_cases(terms, *pair, equal, most - 1) for pair in sides)


def _first_choice(terms: Terms, *roots: Term) -> Node | None:
    """A choice or write whose condition no variable is bound in, but for its own."""
    found = [node for node in nodes_of(terms, *roots) if node.kind in ("if", "write")]
    bound: dict[str, None] = {}
    for node in nodes_of(terms, *roots):
        bound |= dict.fromkeys(bound_names(node) if node.kind in BINDING else ())
    for node in found:
        held = terms.symbols_of(node.args[-3]) - frozenset(bound_names(node))
        if held.isdisjoint(bound):
            return node
    return None


def _in_both_cases(
    terms: Terms, choice: Node, pair: tuple[Term, Term]
) -> Iterator[tuple[Term, Term]]:
    """Two terms where the condition of a choice or write holds, and where it does not."""
    alike = [node for node in nodes_of(terms, *pair) if node.kind == choice.kind]
    cases = cases_of(terms, choice, [choice, *alike])
    if cases is None:
        return
    _, *sides = cases
    names = terms.symbols_of(choice.args[-3]) - frozenset(bound_names(choice))
    for side in sides:
        # Of the others each side is what it was.
        known = {old: new for old, new in zip(alike, side[1:], strict=True) if old is not new}
        same: dict[str, Dim] = {name: symbol(name) for name in names}
        yield replaced(terms, pair[0], same, known), replaced(terms, pair[1], same, known)


def within_choice(
    terms: Terms, parts: Sequence[Node], made: Callable[[list[Term]], Term]
) -> Node | None:
    """A function of choices, or of writes, at one condition, as the choice between functions.

    Args:
        terms: of the proof.
        parts: the first is a choice or a write; others of that kind have its condition.
        made: the function.
    """
    cases = cases_of(terms, parts[0], parts)
    if cases is None:
        return None
    which, yes, no = cases
    if any(x is y for x, y in zip(parts, yes, strict=True) if x.kind == parts[0].kind):
        return None
    if parts[0].kind == "if":
        found = NODE_RULES["if"](terms, (which, made(yes), made(no)))
    else:
        count = parts[0].args[0]
        assert isinstance(count, int)
        names = _fresh(terms, parts[0], parts)
        head = [terms.variable(name, size) for name, size in names]
        sizes = [size for _, size in names]
        args = (count, *head, *sizes, which, made(yes), made(no))
        found = NODE_RULES["write"](terms, args)
    same = isinstance(found, Node) and found.kind == parts[0].kind
    return found if same and isinstance(found, Node) else None


def cases_of(
    terms: Terms, choice: Node, parts: Iterable[Term]
) -> tuple[Node, list[Term], list[Term]] | None:
    """The condition of a choice or write, with what each of some terms is where it holds or not.

    Variables of a write have names there that none of the terms has.
    """
    parts = list(parts)
    names = _fresh(terms, choice, [x for x in parts if isinstance(x, Node)])
    which, _, _ = _opened(terms, choice, names)
    sides: tuple[list[Term], list[Term]] = ([], [])
    for part in parts:
        yes: Term = part
        no: Term = part
        if isinstance(part, Node) and part.kind == choice.kind:
            found = _opened(terms, part, names)
            if found[0] is which:
                _, yes, no = found
        sides[0].append(yes)
        sides[1].append(no)
    return (which, *sides) if isinstance(which, Node) else None


def _fresh(terms: Terms, choice: Node, parts: Sequence[Node]) -> list[tuple[str, Dim]]:
    """Names of the variables of a write, with their sizes, that no term has."""
    if choice.kind == "if":
        return []
    count = choice.args[0]
    assert isinstance(count, int)
    sizes = [_dim(x) for x in choice.args[1 + count : 1 + 2 * count]]
    suffixes = [f"{n}_{size_name(size)}" for n, size in enumerate(sizes)]
    depth = free_depth(terms, "l", suffixes, choice, *parts)
    names = [f"l{depth}_{suffix}" for suffix in suffixes]
    for name, size in zip(names, sizes, strict=True):
        terms.variable(name, size)
    return list(zip(names, sizes, strict=True))


def _opened(terms: Terms, node: Node, names: list[tuple[str, Dim]]) -> tuple[object, Term, Term]:
    """The condition of a choice or write and its branches, with these variables."""
    which, yes, no = node.args[-3:]
    if node.kind == "if":
        return which, _term(yes), _term(no)
    count = node.args[0]
    assert isinstance(count, int)
    olds, sizes = node.args[1 : 1 + count], node.args[1 + count : 1 + 2 * count]
    if list(sizes) != [size for _, size in names]:
        return None, node, node
    to = {str(old): new for old, (new, _) in zip(olds, names, strict=True)}
    return renamed(terms, _term(which), to), renamed(terms, _term(yes), to), _term(no)


def _dim(value: object) -> Dim:
    assert isinstance(value, int | Poly)
    return value


def _term(value: object) -> Term:
    assert isinstance(value, bool | int | Poly | Node)
    return value
