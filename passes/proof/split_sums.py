"""Sums as the sums of their parts, where tables and quotients part the range of a variable.

A table says which head of the model each head of a rank is: with padded, repeated or exchanged
heads, sums over the heads of all ranks run over other indices than the sum of the model. Taken
head by head, the table is a number, and both are sums of the same terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import gcd, prod

from graphgen.ir import Dim
from graphgen.ir.dims import Poly, symbols
from graphgen.passes.proof.floats import Range as Span
from graphgen.passes.proof.rebuild import replaced
from graphgen.passes.proof.sums import Range, is_infinite, ranges_of, summed, zero_of
from graphgen.passes.proof.terms import Node, Term, Terms, walked

# A sum of more parts is compared as a whole.
_MOST_PARTS = 256


def common_step(terms: Terms, addends: Sequence[object]) -> int:
    """The greatest number that divides all places at which sums part; 0 if none does."""
    steps = [
        step
        for x in addends
        if isinstance(x, Node) and x.kind == "sum"
        for _, step in parted(terms, x)
    ]
    return gcd(*steps)


def is_irregular(terms: Terms, addend: object) -> bool:
    """True for a sum in which a condition on a variable parts its range, as of tables."""
    if not isinstance(addend, Node) or addend.kind != "sum":
        return False
    ranges, body = ranges_of(addend)
    names = {name for name, _ in ranges}
    return any(
        node.kind in ("le0", "eq0")
        and isinstance(node.args[0], Poly)
        and (held := symbols([node.args[0]])) <= names
        and len(held) == 1
        for node in walked(terms, body)
    )


def parted(terms: Terms, total: Node) -> list[tuple[Range, int]]:
    """The variables of a sum that are parted, each with a number that divides all such places."""
    ranges, body = ranges_of(total)
    found: list[tuple[Range, int]] = []
    for name, size in ranges:
        if not isinstance(size, int):
            continue
        step = gcd(size, *_places(terms, body, name, size))
        if step < size:
            found.append(((name, size), step))
    return found


def _places(terms: Terms, body: Term, name: str, size: int) -> Iterator[int]:
    """Multiples of these, and 0, are where quotients and conditions on one variable change."""
    for node in walked(terms, body):
        if node.kind not in ("div", "le0", "eq0") or not isinstance(node.args[0], Poly):
            continue
        parts = dict(node.args[0].terms)
        constant, factor = parts.pop((), 0), parts.pop((name,), 0)
        if not factor or parts:
            continue
        if node.kind == "div":
            by = node.args[1]
            assert isinstance(by, int)
            yield by // gcd(by, factor)
            # The first place may be another one.
            yield -(constant // factor) if constant % factor == 0 else 1
        else:
            # factor * v + constant <= 0: up to a place, or from one.
            place = -constant // factor
            first = place + 1 if factor > 0 else -(constant // factor)
            yield from ((first,) if 0 < first < size else ())
            if node.kind == "eq0" and 0 <= place < size:
                yield from (place, place + 1)


def in_parts(terms: Terms, total: Node, step: int) -> list[Term]:
    """The sums over parts of ``step`` values that are not zero; the whole if these are many."""
    kind, to, _ = total.args[:3]
    ranges, body = ranges_of(total)
    assert isinstance(kind, str)
    split = [pair for pair, own in parted(terms, total) if own % step == 0]
    counts = [size // step for _, size in split if isinstance(size, int)]
    if not split or prod(counts) > _MOST_PARTS:
        return [total]
    rest = [pair for pair in ranges if pair not in split]
    fresh = {name: f"{name}_by_{step}" for name, _ in split}
    inner = rest if step == 1 else [*rest, *[(fresh[name], step) for name, _ in split]]
    zero: Term = zero_of(terms)
    out: list[Term] = []
    for place in product(*map(range, counts)):
        values: dict[str, Dim] = {
            name: terms.variable(fresh[name], step) + number * step
            for (name, _), number in zip(split, place, strict=True)
        }
        made = replaced(terms, body, values, dict.fromkeys(_zeros(terms, body, values), zero))
        part = summed(terms, kind, to, inner, made)
        if part is not zero:
            out.append(part)
    return out


def _zeros(terms: Terms, body: Term, values: Mapping[str, Dim]) -> list[Node]:
    """The parts of a term that are zero for these values of variables: at padding.

    A product with a factor that a condition on these variables makes zero is zero, as in ``sums``.
    """
    zero, known = zero_of(terms), dict[Node, bool]()

    def is_zero(term: object) -> bool:
        if not isinstance(term, Node):
            return False
        if term not in known:
            known[term] = vanishes(term)
        return known[term]

    def vanishes(node: Node) -> bool:
        if node.kind == "if":
            which, yes, no = node.args
            assert isinstance(which, Node)
            judged = replaced(terms, which, values)
            left = [yes, no] if isinstance(judged, Node) else [yes if judged else no]
            return all(map(is_zero, left))
        if node.kind == "fn" and node.args[0] == "multiply" and isinstance(node.args[1], Span):
            finite = not any(isinstance(x, Node) and is_infinite(x) for x in node.args[3:])
            return finite and any(map(is_zero, node.args[3:]))
        if node.kind == "fn" and node.args[0] in ("convert", "negate"):
            return is_zero(node.args[3])
        return node is zero or (
            total_range(node) is not None and all(map(is_zero, _summands(node)))
        )

    return [node for node in walked(terms, body) if node is not zero and is_zero(node)]


def _summands(total: Node) -> Sequence[object]:
    """The addends of a sum, or what is summed."""
    return total.args[3:] if total.kind == "fn" else total.args[-1:]


def total_range(node: Node) -> Span | None:
    """The range of a sum in real arithmetic; ``None`` for other terms."""
    plain = node.kind == "fn" or (node.kind == "sum" and node.args[2] is None)
    to = node.args[1] if plain and node.args[0] == "add" else None
    return to if isinstance(to, Span) else None
