"""Tables of integers of which no two are equal, such as the blocks of rows in a paged cache.

Two elements are equal where their places are, which ``is_zero`` knows. A number is one element of
such a table, or none: an element of a value at an index is known where it is known in both cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from graphgen.ir import Dim, TensorType
from graphgen.ir.dims import Poly
from graphgen.passes.proof.rebuild import replaced
from graphgen.passes.proof.terms import ABSENT, Term, Terms, nodes_of, size_name

Same = Callable[[Term, Term], bool]


def in_images(terms: Terms, a: Term, b: Term, same: Same) -> tuple[Term, Term]:
    """Two elements where indices that are compared with elements of a table are such elements.

    Args:
        terms: of the proof.
        a: an element at index variables.
        b: another one, at the same variables.
        same: whether two elements are known to be equal.

    Returns:
        Both, unchanged if they may differ where such an index is another number.
    """
    for name, atom in list(_compared(terms, a, b)):
        absent = terms.atom(terms.node(ABSENT, *terms.atoms[atom].args[:2]))
        if not same(*[replaced(terms, x, {name: absent}) for x in (a, b)]):
            return a, b
        place = _entry(terms, name, atom)
        a, b = replaced(terms, a, {name: place}), replaced(terms, b, {name: place})
        terms.rules.add("elements of a table, and all others")
    return a, b


def _compared(terms: Terms, *roots: Term) -> Iterator[tuple[str, str]]:
    """The free variables that are compared with an element of a table, each with its atom."""
    found: dict[str, str] = {}
    for node in nodes_of(terms, *roots):
        value = node.args[0] if node.kind == "eq0" else None
        if not isinstance(value, Poly) or sorted(c for _, c in value.terms) != [-1, 1]:
            continue
        names = [m[0] for m, _ in value.terms if len(m) == 1]
        entries = [n for n in names if n in terms.atoms]
        free = [n for n in names if n not in terms.atoms]
        if len(entries) != 1 or len(free) != 1:
            continue
        entry = terms.atoms[entries[0]]
        if entry.kind == "at" and entry.args[0] in terms.distinct:
            found.setdefault(free[0], entries[0])
    yield from found.items()


def _entry(terms: Terms, name: str, atom: str) -> Dim:
    """The element of a table at variables of its own, in the range of an element that is known."""
    title, type_ = terms.atoms[atom].args[:2]
    assert isinstance(type_, TensorType)
    places = [
        terms.variable(f"{name}_in_{axis}_{size_name(size)}", size)
        for axis, size in enumerate(type_.shape)
    ]
    bounds = terms.bounds[atom]
    return terms.atom(terms.node("at", title, type_, *places), bounds.low, bounds.high)
