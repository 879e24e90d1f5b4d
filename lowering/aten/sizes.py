"""Symbolic sizes of torch as symbols of the IR."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn, Protocol, cast

from graphgen.errors import GraphgenError
from graphgen.ir import Dim, symbol
from graphgen.ir.dims import product


class _Expression(Protocol):
    """The part of a SymPy expression that is used."""

    @property
    def args(self) -> Sequence[_Expression]: ...

    def __int__(self) -> int: ...


Names = Mapping[str, str]


def named_sizes(shapes: Iterable[Sequence[object]]) -> Names:
    """Name torch's symbols: B and S for the first two dimensions of inputs, as passes expect.

    The first dimension of an input counts rows, the second one tokens; a symbol of any other size
    keeps torch's name.
    """
    found: dict[str, str] = {}
    for shape in shapes:
        for size, name in zip(shape, ("B", "S"), strict=False):
            text = str(size)
            if not isinstance(size, int) and text.isidentifier() and name not in found.values():
                found.setdefault(text, name)
    return found


def dim_of(size: object, names: Names) -> Dim:
    """Convert a size of torch: an int, or a SymInt, an expression of symbols.

    Args:
        size: what torch has.
        names: of its symbols, see :func:`named_sizes`.

    Raises:
        GraphgenError: GG0102 for an expression that is not a polynomial of sizes.
    """
    if isinstance(size, int):
        return size
    node = getattr(size, "node", None)
    return _dim(cast("_Expression", getattr(node, "expr", size)), names)


def _dim(expression: _Expression, names: Names) -> Dim:
    kind = type(expression).__name__
    if kind == "Symbol":
        return symbol(names.get(str(expression), str(expression)))
    parts = expression.args
    if not parts:
        return _whole(expression)
    if kind == "Pow":
        base, count = _dim(parts[0], names), _whole(parts[1])
        return product([base] * count) if count > 0 else _unknown(expression)
    if kind == "Add":
        total: Dim = 0
        for part in parts:
            total = total + _dim(part, names)
        return total
    if kind == "Mul":
        return product([_dim(part, names) for part in parts])
    return _unknown(expression)


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
        f"the size {expression} is not a sum of products of sizes",
        help="export with this dimension static",
    )
