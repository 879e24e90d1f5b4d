"""Sizes that torch left open, as symbols of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Protocol, cast

from graphgen.errors import GraphgenError
from graphgen.ir import Dim, symbol


class _Expression(Protocol):
    """What is used of a SymPy expression."""

    @property
    def args(self) -> Sequence[_Expression]: ...

    def __int__(self) -> int: ...


def dim_of(size: object) -> Dim:
    """A size of torch's: an int, or a SymInt that stands for an expression of symbols.

    Raises:
        GraphgenError: GG0102 for an expression that is no polynomial of sizes.
    """
    if isinstance(size, int):
        return size
    node = getattr(size, "node", None)
    return _dim(cast("_Expression", getattr(node, "expr", size)))


def _dim(expression: _Expression) -> Dim:
    kind = type(expression).__name__
    if kind == "Symbol":
        return symbol(str(expression))
    parts = expression.args
    if not parts:
        return _whole(expression)
    if kind == "Pow":
        base, count = _dim(parts[0]), _whole(parts[1])
        return _product([base] * count) if count > 0 else _unknown(expression)
    if kind == "Add":
        total: Dim = 0
        for part in parts:
            total = total + _dim(part)
        return total
    return _product([_dim(part) for part in parts]) if kind == "Mul" else _unknown(expression)


def _product(dims: Sequence[Dim]) -> Dim:
    result: Dim = 1
    for dim in dims:
        result = result * dim
    return result


def _whole(expression: _Expression) -> int:
    try:
        number = int(expression)
    except (TypeError, ValueError):
        _unknown(expression)
    if str(number) != str(expression):
        _unknown(expression)
    return number


def _unknown(expression: object) -> NoReturn:
    raise GraphgenError(
        "GG0102",
        f"the size {expression} is no sum of products of sizes",
        help="export with this dimension static",
    )
