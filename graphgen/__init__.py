"""The graph a user builds: IR, op table, text, builder, layers, models and the command line.

Read ``ir/module.py`` first, then ``ops/opdef.py``.

``load`` opens a model and ``compile`` compiles one (docs/python.md).

The names below are the stable ones (docs/building-graphs.md says what each is for); they are looked
up when first used, so importing this package loads nothing third-party, and hardly anything else.
"""

# Names are found by ``__getattr__``; their types are in the stub.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from importlib import import_module

from graphgen.version import FOREIGN, has_foreign_package

if has_foreign_package():
    import warnings

    warnings.warn(FOREIGN, stacklevel=2)

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
    # Looked up by name alone: this package imports none of the others.
    "graphgen.lowering.explorer": ("explore",),
    "graphgen.runtime.api": ("compile", "load"),
    "graphgen.text": ("parse", "print_function", "print_module"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

# All but ``compile``, which would hide Python's own; the stub has the types of all.
__all__ = [name for name in _HOME if name != "compile"]


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'graphgen' has no attribute '{name}'")
    found = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
