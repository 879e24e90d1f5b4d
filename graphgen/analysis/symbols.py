"""The free symbols of a function."""

from __future__ import annotations

from collections.abc import Iterable

from graphgen.ir import Attrs, Dim, Function, TensorType
from graphgen.ir.dims import Poly, symbols


def free_symbols(functions: Iterable[Function]) -> set[str]:
    """The symbols in the types and attributes of ``functions``."""
    types: set[TensorType] = set()
    attrs: set[Attrs] = set()
    for function in functions:
        types.update([value.type for value in function.args])
        for op in function.block:
            attrs.add(op.attrs)
            types.update([result.type for result in op.results])
    # Types and attribute sets are interned, so layers that repeat are looked at once.
    dims: list[Dim] = [dim for type_ in types if not type_.static for dim in type_.shape]
    for item in attrs:
        for value in item.values():
            parts = value if isinstance(value, tuple) else (value,)
            dims += [part for part in parts if isinstance(part, Poly)]
    return symbols(dims)
