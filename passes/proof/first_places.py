"""The first element of a descending order that is taken part by part, as ranks take a token.

Each part has its largest element, and where that is first found in it. The first part with the
largest of these has the first of all elements that are largest, so the place found there is the
place in the whole, where the parts stand one after another.
"""

from __future__ import annotations

from graphgen.ir import Dim
from graphgen.ir.dims import Poly, bind, symbol
from graphgen.passes.proof.rebuild import renamed, replaced
from graphgen.passes.proof.sums import ranges_of, variable_name
from graphgen.passes.proof.terms import Node, Term, Terms


def first_of_parts(
    terms: Terms, over: tuple[Dim, Dim], key: Term, moved: Term
) -> tuple[tuple[Dim, Dim], Term, Term] | None:
    """The order of the elements of all parts, of which the first is that of the largest parts.

    Args:
        terms: of the proof.
        over: the variable that counts parts, with their number.
        key: the largest element of a part.
        moved: what is taken of the first part whose key is the largest: an integer that depends on
            the place of that element in its part.

    Returns:
        A variable that counts the elements of all parts with its size, the key of an element, and
        what is taken of the first largest one. ``None`` for any other order.
    """
    (variable, count), inner = over, _largest(key)
    if inner is None or not isinstance(variable, Poly) or not isinstance(moved, Poly):
        return None
    (name, size), body = inner
    if not isinstance(count, int) or not isinstance(size, int):
        return None
    part, both = variable_name(variable), f"p{count}x{size}_{variable_name(variable)}"
    found = _first_place(terms, moved, (name, size), body)
    if found is None or both in terms.symbols_of(body) | terms.symbols_of(moved):
        return None
    atom, place = found
    joined = terms.variable(both, count * size)
    quotient = terms.atom(terms.node("div", joined, size), 0, count - 1)
    where: dict[str, Dim] = {part: quotient, name: joined + quotient * -size}
    terms.rules.add("the first of parts in order")
    taken = replaced(terms, bind(moved, {atom: place}), where)
    return (joined, count * size), replaced(terms, body, where), taken


def _largest(key: Term) -> tuple[tuple[str, Dim], Term] | None:
    """The variable and the elements of a maximum over one variable."""
    if not isinstance(key, Node) or key.kind != "sum" or key.args[0] != "maximum":
        return None
    if key.args[1] is not None or key.args[2] is not None:
        return None
    ranges, body = ranges_of(key)
    return (ranges[0], body) if len(ranges) == 1 else None


def _first_place(
    terms: Terms, moved: Poly, over: tuple[str, Dim], body: Term
) -> tuple[str, Dim] | None:
    """The atom of the place of the largest element in its part, and that place as a variable."""
    name, size = over
    for atom in sorted({factor for monomial, _ in moved.terms for factor in monomial}):
        node = terms.atoms.get(atom)
        if node is None or node.kind != "sort" or node.args[0] is not True or node.args[5] != 0:
            continue
        variable, many, key, place = node.args[1:5]
        if many != size or place != variable or not isinstance(variable, Poly):
            continue
        own = variable_name(variable)
        if name in terms.symbols_of(key) or not isinstance(key, Node):
            continue
        if renamed(terms, key, {own: name}) is body:
            return atom, symbol(name)
    return None
