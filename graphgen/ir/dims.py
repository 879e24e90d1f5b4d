"""Dimensions: an int, or an interned integer polynomial of symbols such as ``B*S`` or ``C+S``.

A symbol stands for a size that is bound later by the ``specialize`` pass. Only equality is ever
asked of two dimensions, and interning makes it identity, so shape rules read the same for ints and
for symbols.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from graphgen.errors import GraphgenError
from graphgen.limits import DIM_PARTS
from graphgen.numbers import signed_number

# Symbols and numbers of one dimension; a program has a handful.
_MOST_TERMS = 4096
# A monomial is its symbols in order, repeated for powers: B*B*S is ("B", "B", "S").
Monomial = tuple[str, ...]


class Poly:
    """An integer polynomial with at least one symbol; compare with ``is`` or ``==``.

    Attributes:
        terms: ``((monomial, coefficient), ...)`` sorted by monomial, no coefficient zero.
        text: the printed form, which :func:`parse_dim` reads back.
    """

    __slots__ = ("terms", "text")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...], text: str) -> None:
        self.terms = terms
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[Callable[[str], Dim], tuple[str]]:
        return parse_dim, (self.text,)

    def __add__(self, other: Dim) -> Dim:
        return _combine(self, other, 1)

    def __radd__(self, other: int) -> Dim:
        return _combine(self, other, 1)

    def __sub__(self, other: Dim) -> Dim:
        return _combine(self, other, -1)

    def __rsub__(self, other: int) -> Dim:
        return _combine(self * -1, other, 1)

    def __mul__(self, other: Dim) -> Dim:
        return _multiply(self, other)

    def __rmul__(self, other: int) -> Dim:
        return _multiply(self, other)


Dim = int | Poly
Shape = tuple[Dim, ...]

_interned: dict[tuple[tuple[Monomial, int], ...], Poly] = {}


def _terms(dim: Dim) -> tuple[tuple[Monomial, int], ...]:
    return dim.terms if isinstance(dim, Poly) else (((), dim),)


def _make(terms: Mapping[Monomial, int]) -> Dim:
    kept = tuple(sorted((m, c) for m, c in terms.items() if c))
    if not kept:
        return 0
    if len(kept) == 1 and kept[0][0] == ():
        return kept[0][1]
    found = _interned.get(kept)
    if found is None:
        found = _interned[kept] = Poly(kept, _text(kept))
    return found


def _text(terms: Iterable[tuple[Monomial, int]]) -> str:
    out = ""
    # Symbols before the constant, as people write it: S+1, not 1+S.
    for monomial, coefficient in sorted(terms, key=lambda term: (term[0] == (), term[0])):
        sign = "-" if coefficient < 0 else "+" if out else ""
        factors = list(monomial)
        if abs(coefficient) != 1 or not monomial:
            factors.insert(0, str(abs(coefficient)))
        out += sign + "*".join(factors)
    return out


@lru_cache(maxsize=4096)
def _combine(a: Dim, b: Dim, sign: int) -> Dim:
    total = dict(_terms(a))
    for monomial, coefficient in _terms(b):
        total[monomial] = total.get(monomial, 0) + sign * coefficient
    return _make(total)


@lru_cache(maxsize=4096)
def _multiply(a: Dim, b: Dim) -> Dim:
    total: dict[Monomial, int] = {}
    if len(_terms(a)) * len(_terms(b)) > _MOST_TERMS:
        raise GraphgenError("GG0102", f"a dimension of more than {_MOST_TERMS} terms")
    for left, p in _terms(a):
        for right, q in _terms(b):
            monomial = tuple(sorted(left + right))
            total[monomial] = total.get(monomial, 0) + p * q
    return _make(total)


@lru_cache(maxsize=1 << 16)
def symbol(name: str) -> Poly:
    """The symbol ``name`` as a dimension, e.g. ``symbol("B")``.

    Raises:
        GraphgenError: GG0102 when the name is not a letter followed by letters, digits or ``_``.
    """
    if not re.fullmatch(r"[A-Za-z]\w*", name):
        raise GraphgenError("GG0102", f"'{name}' is not a symbol name")
    made = _make({(name,): 1})
    assert isinstance(made, Poly)
    return made


@lru_cache(maxsize=4096)
def parse_dim(text: str) -> Dim:
    """Read a dimension back from its text: ``576``, ``B``, ``2*B*S+1``, ``C-S``.

    Raises:
        GraphgenError: GG0102 for anything else.
    """
    if re.fullmatch(r"-?[0-9]+", text):
        return _number(text)
    if not re.fullmatch(r"-?\w+(?:\*\w+)*(?:[+-]\w+(?:\*\w+)*)*", text):
        what = f"'{text[:80]}' is not a dimension"
        raise GraphgenError("GG0102", what, help="write e.g. 2*B*S+1")
    if len(re.findall(r"\w+", text)) > DIM_PARTS.most:
        what = f"'{text[:40]}...' has many symbols and numbers: {DIM_PARTS} are read"
        raise GraphgenError("GG0102", what)
    total: Dim = 0
    for sign, product in re.findall(r"([+-]?)([\w*]+)", text):
        term: Dim = -1 if sign == "-" else 1
        for factor in product.split("*"):
            term = term * (_number(factor) if factor.isdecimal() else symbol(factor))
        total = total + term
    return total


def _number(text: str) -> int:
    try:
        return signed_number(text)
    except ValueError as error:
        raise GraphgenError("GG0102", f"'{text[:40]}' is not a size: {error}") from error


def bind(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """Replace the symbols named in ``values``; others stay."""
    if isinstance(dim, int):
        return dim
    total: Dim = 0
    for monomial, coefficient in dim.terms:
        term: Dim = coefficient
        for name in monomial:
            term = term * (values[name] if name in values else symbol(name))
        total = total + term
    return total


def product(dims: Iterable[Dim]) -> Dim:
    """The product of dimensions, 1 for none: the element count of a shape."""
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return total


def symbols(dims: Iterable[Dim]) -> set[str]:
    """The names of all symbols in ``dims``."""
    return {
        name
        for dim in dims
        if isinstance(dim, Poly)
        for monomial, _ in dim.terms
        for name in monomial
    }
