"""The place of the first difference of two terms: the ops of both, and the reason in words."""

from __future__ import annotations

from graphgen.ir.dims import Poly
from graphgen.passes.proof.terms import Node, Term, Terms

_OPS = ("fn", "sum", "op")


def parting_pair(terms: Terms, a: Term, b: Term) -> tuple[str, tuple[str, str]]:
    """The reason why two terms differ, and the ops that made the first parts that differ."""
    first, second = "", ""
    for _ in range(10_000):
        first = terms.makers.get(a, first) if isinstance(a, Node) else first
        second = terms.makers.get(b, second) if isinstance(b, Node) else second
        a, b = _node(terms, a), _node(terms, b)
        if not isinstance(a, Node) or not isinstance(b, Node):
            return f"{_kind(a)} takes the place of {_kind(b)}", (first, second)
        if _head(a) != _head(b):
            return f"{_kind(b)} takes the place of {_kind(a)}", (first, second)
        left, right = _parts(a), _parts(b)
        only = [x for x in left if x not in right]
        other = [x for x in right if x not in left]
        if not only or not other:
            return f"{_kind(a)} has other operands", (first, second)
        a, b = only[0], other[0]
    return "the terms differ", (first, second)


def _node(terms: Terms, term: Term) -> Term:
    """The node of an integer that is one atom."""
    if isinstance(term, Poly) and len(term.terms) == 1 and term.terms[0][1] == 1:
        return terms.atoms.get(term.terms[0][0][0], term)
    return term


def _head(node: Node) -> tuple[object, ...]:
    if node.kind in _OPS:
        return node.kind, *node.args[:3], len(node.args)
    if node.kind == "at":
        return node.kind, node.args[0], len(node.args)
    return node.kind, len(node.args)


def _parts(node: Node) -> list[Term]:
    return [x for x in node.args if isinstance(x, Node | Poly | int)]


def _kind(term: Term) -> str:
    if isinstance(term, Node):
        if term.kind in _OPS:
            return f"{term.args[0]}"
        if term.kind == "at":
            return (
                "an element"
                if str(term.args[0]).startswith(("value", "literal"))
                else f"{term.args[0]}"
            )
        return {"if": "a choice", "const": f"the constant {term.args[0]}"}.get(term.kind, term.kind)
    if isinstance(term, Poly):
        return "an integer"
    return f"the number {term}"
