"""Calls of libraries in other languages, whose exceptions are of any kind."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from graphgen.errors import GraphgenError

_OURS = (GraphgenError, KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)


class ForeignCalls:
    """A block of calls of one library; what it raises becomes an error of ours.

    A panic in Rust is a ``BaseException``, which ``except Exception`` lets through: in a thread it
    would end the process.

    Args:
        refuse: the error for the library's text.
    """

    __slots__ = ("_refuse",)

    def __init__(self, refuse: Callable[[str], Exception]) -> None:
        self._refuse = refuse

    def __enter__(self) -> None:
        """Nothing is opened."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Raise the error of ours in the place of the library's."""
        if error is not None and not isinstance(error, _OURS):
            text = " ".join(str(error).split())[:300]
            raise self._refuse(text or type(error).__name__) from error
