"""Which sizes the symbols of a function have, going by the arrays it is given."""

from __future__ import annotations

from collections.abc import Mapping

from graphgen.errors import GraphgenError
from graphgen.eval.arithmetic import Array
from graphgen.ir import Dim, Function, Value
from graphgen.ir.clone import Cloner
from graphgen.ir.dims import Poly


def bound_by(function: Function, arrays: Mapping[Value, Array]) -> Function:
    """``function`` with its symbols bound; itself where it has none.

    Args:
        function: any.
        arrays: what its arguments are, as far as known.

    Raises:
        GraphgenError: GG0402 two arrays that give a symbol two sizes.
    """
    sizes = _sizes(function, arrays)
    if not sizes:
        return function
    made = Function(function.name, function.phase, {**function.dims, **sizes})
    Cloner(symbols=sizes).function(function, made)
    return made


def _sizes(function: Function, arrays: Mapping[Value, Array]) -> dict[str, Dim]:
    """The size of each symbol that is a whole dimension of an input."""
    sizes: dict[str, Dim] = {}
    first: dict[str, str] = {}
    for value in function.args:
        array = arrays.get(value)
        if value.type.static or array is None or len(array.shape) != value.type.rank:
            continue
        for dim, size in zip(value.shape, array.shape, strict=True):
            name = str(dim)
            if not isinstance(dim, Poly) or not name.isidentifier():
                continue
            if sizes.setdefault(name, size) != size:
                what = f"{name} is {sizes[name]} in %{first[name]} and {size} in %{value.name}"
                raise GraphgenError("GG0402", f"@{function.name}: {what}")
            first.setdefault(name, value.name or "")
    return sizes
