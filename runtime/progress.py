"""Progress: a moving line on a terminal and in a notebook, a line per finished task elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from graphgen.errors import printable

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


class TerminalProgress:
    """Shows tasks that take longer than a moment, with the fraction done."""

    # Shorter tasks get no line in a log, and longer ones a line with the fraction done this often.
    SILENT_SECONDS = 0.5
    LINE_SECONDS = 5.0

    def __init__(self) -> None:
        # In a notebook stderr is a file, and rich shows the line in the cell.
        self.terminal = sys.stderr.isatty() or "ipykernel" in sys.modules

    @contextmanager
    def task(self, title: str) -> Generator[Callable[[float], None]]:
        """Show a task while its block runs; the callable takes the fraction done."""
        start = time.perf_counter()
        if self.terminal:
            with self._line(title) as report:
                yield report
        else:
            yield self._lines(title)
        seconds = time.perf_counter() - start
        if seconds >= self.SILENT_SECONDS:
            print(printable(f"{title} ... {seconds:.1f} s"), file=sys.stderr, flush=True)

    def _lines(self, title: str) -> Report:
        """A receiver that prints a line every few seconds."""
        last = time.perf_counter()

        def report(done: float) -> None:
            nonlocal last
            if time.perf_counter() - last >= self.LINE_SECONDS:
                last = time.perf_counter()
                print(printable(f"{title}: {done:.0%}"), file=sys.stderr, flush=True)

        return report

    @contextmanager
    def _line(self, title: str) -> Generator[Callable[[float], None]]:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn())
        bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
        with bar:
            task = bar.add_task(title, total=None)
            yield lambda done: bar.update(task, completed=done, total=1.0)
