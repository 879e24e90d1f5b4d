"""A function of the user's that JAX lowers, as StableHLO."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast, runtime_checkable

from graphgen.errors import GraphgenError


@runtime_checkable
class _Lowered(Protocol):
    """What ``jax.jit(f).lower(...)`` gives."""

    def as_text(self, *, debug_info: bool) -> str: ...


def is_function(name: str) -> bool:
    """Whether ``name`` is ``FILE.py:function`` or ``package.module:function``."""
    place, colon, function = name.rpartition(":")
    return bool(colon) and function.isidentifier() and bool(place)


def takes(name: str, sizes: Iterable[str]) -> bool:
    """Whether the function ``name`` has parameters of these names."""
    place, _, function = name.rpartition(":")
    try:
        parameters = signature(getattr(_load(place), function)).parameters
    except Exception:
        return False
    return all(size in parameters for size in sizes)


def traced(name: str, sizes: Mapping[str, int] | None = None) -> str:
    """The StableHLO of what the function ``name`` gives: the result of ``jax.jit(f).lower(...)``.

    Args:
        name: ``FILE.py:function`` or ``package.module:function``.
        sizes: what it is called with; by default nothing.

    Raises:
        GraphgenError: GG0705 where there is no such function, it fails, or gives something else.
    """
    place, _, function = name.rpartition(":")
    try:
        module = _load(place)
        found = getattr(module, function)
        result = found(**(sizes or {}))
    except Exception as error:
        what = f"{name} fails: {type(error).__name__}: {error}"
        raise GraphgenError("GG0705", what, where=_line(error, place)) from error
    if not isinstance(result, _Lowered):
        raise GraphgenError(
            "GG0705",
            f"{name} gives a {type(result).__name__}",
            help="let it return jax.jit(f).lower(...)",
        )
    return result.as_text(debug_info=True)


def _load(place: str) -> ModuleType:
    if not place.endswith(".py"):
        return import_module(place)
    path = Path(place)
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise FileNotFoundError(f"there is no file {place}")
    module = module_from_spec(spec)
    # Where the file's own imports and dataclasses look for it.
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _line(error: BaseException, place: str) -> str:
    """The last line of the user's file that the error went through."""
    trace = error.__traceback__
    found = ""
    while trace is not None:
        frame = cast("object", trace.tb_frame.f_code.co_filename)
        if str(frame).endswith(place):
            found = f"{place}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found
