"""Late-bound methods of values, functions and modules that higher layers implement.

The only late-binding place: the implementation is imported by name at the first call, so that
building a graph loads neither NumPy nor the reports.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    from graphgen.ir.graph import Value

_TEXT, _HTML = ("graphgen.report.ir_repr", "text_of"), ("graphgen.report.ir_repr", "html_of")
_EVALUATE = ("graphgen.exec.bind", "evaluate_bound")
_BUILDER = ("graphgen.build.builder", "apply_to_current")
_INDEX, _TRUTH = (_BUILDER[0], "index_with_current"), (_BUILDER[0], "refuse_truth")


class ArrayLike(Protocol):
    """The part of NumPy's array interface that results have."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""
        ...

    def __buffer__(self, flags: int, /) -> memoryview: ...

    def tolist(self) -> object:
        """The elements in nested lists."""
        ...


def text_of(what: object) -> str:
    """The text that ``print`` shows."""
    return cast(Callable[[object], str], _implementation(*_TEXT))(what)


def html_of(what: object) -> str:
    """The HTML that a notebook shows."""
    return cast(Callable[[object], str], _implementation(*_HTML))(what)


def outputs_of(module: object, function: object, inputs: object) -> dict[str, ArrayLike]:
    """Evaluate a function with NumPy; ``inputs`` bind its symbols."""
    run = cast(
        Callable[[object, object, object], dict[str, ArrayLike]], _implementation(*_EVALUATE)
    )
    return run(module, function, inputs)


def apply_operator(name: str, *operands: Value | float) -> Value:
    """Append the elementwise op ``name`` through the current builder and return its result.

    Raises:
        GraphgenError: GG0705 without a builder.
    """
    if _BUILDER[0] not in sys.modules:
        raise GraphgenError(
            "GG0705", "operators on values need a builder", help="import graphgen.build"
        )
    return cast("Callable[..., Value]", _implementation(*_BUILDER))(name, *operands)


def apply_index(value: Value, at: object) -> Value:
    """Append ``value[at]`` through the current builder (GG0705 without one)."""
    if _BUILDER[0] not in sys.modules:
        raise GraphgenError("GG0705", "x[i] needs a builder", help="import graphgen.build")
    return cast("Callable[[Value, object], Value]", _implementation(*_INDEX))(value, at)


def check_truth(value: Value) -> bool:
    """True, as of any object; GG0705 for a comparison while a builder is open."""
    if _BUILDER[0] in sys.modules:
        cast("Callable[[Value], None]", _implementation(*_TRUTH))(value)
    return True


@cache
def _implementation(home: str, name: str) -> object:
    return getattr(import_module(home), name)
