"""What values, functions and modules can do by means of layers above this one.

Looked up by name when first asked, so that a graph is built without NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Protocol, cast


class ArrayLike(Protocol):
    """An array as NumPy has it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""
        ...

    def __buffer__(self, flags: int, /) -> memoryview: ...

    def tolist(self) -> object:
        """The elements in nested lists."""
        ...


def text_of(what: object) -> str:
    """The lines that ``print`` shows."""
    return cast(Callable[[object], str], _found("graphgen.report.ir_repr", "text_of"))(what)


def html_of(what: object) -> str:
    """What a notebook shows."""
    return cast(Callable[[object], str], _found("graphgen.report.ir_repr", "html_of"))(what)


def outputs_of(module: object, function: object, given: object) -> dict[str, ArrayLike]:
    """The outputs of a function by NumPy, its symbols bound by what is given."""
    run = _found("graphgen.eval.bound", "evaluate_bound")
    return cast(Callable[[object, object, object], dict[str, ArrayLike]], run)(
        module, function, given
    )


def _found(home: str, name: str) -> object:
    return getattr(import_module(home), name)
