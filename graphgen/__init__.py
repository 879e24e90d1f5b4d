"""The graph a user builds: IR, op table, text, builder, layers, models and the command line.

Read ``ir/module.py`` first, then ``ops/opdef.py``.

The names below are the stable ones (docs/building-graphs.md says what each is for); they are looked
up when first used, so importing this package loads nothing third-party, and hardly anything else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphgen.analysis.networkx_view import to_networkx
    from graphgen.build import Builder
    from graphgen.errors import GraphgenError
    from graphgen.eval import evaluate, evaluate_ranks
    from graphgen.ir import (
        Dim,
        Domain,
        DType,
        Entry,
        Function,
        Literal,
        Loc,
        Module,
        Op,
        Role,
        Sharding,
        TensorType,
        Value,
        dtype,
        sharding,
        symbol,
        tensor,
    )
    from graphgen.ops import verify
    from graphgen.text import parse, print_function, print_module

_HOMES = {
    "graphgen.analysis.networkx_view": ("to_networkx",),
    "graphgen.build": ("Builder",),
    "graphgen.errors": ("GraphgenError",),
    "graphgen.eval": ("evaluate", "evaluate_ranks"),
    "graphgen.ir": (
        *("Dim", "Domain", "DType", "Entry", "Function", "Literal", "Loc", "Module", "Op", "Role"),
        *("Sharding", "TensorType", "Value", "dtype", "sharding", "symbol", "tensor"),
    ),
    "graphgen.ops": ("verify",),
    "graphgen.text": ("parse", "print_function", "print_module"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Builder",
    "DType",
    "Dim",
    "Domain",
    "Entry",
    "Function",
    "GraphgenError",
    "Literal",
    "Loc",
    "Module",
    "Op",
    "Role",
    "Sharding",
    "TensorType",
    "Value",
    "dtype",
    "evaluate",
    "evaluate_ranks",
    "parse",
    "print_function",
    "print_module",
    "sharding",
    "symbol",
    "tensor",
    "to_networkx",
    "verify",
]


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'graphgen' has no attribute '{name}'")
    found = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
