"""How long work tells how far it is; the library itself never prints."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

# Called with the fraction of the task that is done, 0 to 1.
Report = Callable[[float], None]


class Progress(Protocol):
    """Someone who wants to know; the command line shows a line a task."""

    def task(self, title: str) -> AbstractContextManager[Report]:
        """A piece of work that may take longer than a second."""
        ...


class Silent:
    """Nobody wants to know."""

    @contextmanager
    def task(self, title: str) -> Generator[Report]:
        """Do nothing around the work."""
        yield lambda _: None
