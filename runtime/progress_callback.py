"""Progress callbacks of long tasks; the library itself never prints."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

# Called with the fraction of the task that is done, 0 to 1.
Report = Callable[[float], None]


class Progress(Protocol):
    """A receiver of progress; the command line shows one line per task."""

    def task(self, title: str) -> AbstractContextManager[Report]:
        """A task that may take longer than a second."""
        ...


class Silent:
    """A receiver that ignores progress."""

    @contextmanager
    def task(self, title: str) -> Generator[Report]:
        """Do nothing around the work."""
        yield lambda _: None
