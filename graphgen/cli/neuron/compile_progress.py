"""Progress of compilers on stderr: rows on a terminal, else a line for each end."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# Words for the states that have a row.
_SHOWN = {"compiles": "compiling", "locked": "waiting for another process"}


class CompileProgress:
    """Shows the states of programs; its methods may be called from any thread.

    Args:
        count: of the programs.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._done = 0
        self._start: dict[str, float] = {}
        self._lock = threading.Lock()
        self._rows: dict[str, TaskID] = {}
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._bar = _bar()
            self._bar.start()
            self._rows[""] = self._bar.add_task("programs", total=self.count, state="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def changed(self, name: str, state: str, remark: str) -> None:
        """Show a change.

        Args:
            name: of the program.
            state: ``waits``, ``locked``, ``compiles``, ``done``, ``failed`` or ``note``.
            remark: more words.
        """
        with self._lock:
            if state == "note":
                self._line(f"note: {name}: {remark}")
            elif state in _SHOWN:
                self._start.setdefault(name, time.monotonic())
                self._row(name, _SHOWN[state])
            elif state in ("done", "failed"):
                self._end(name, state, remark)

    def _end(self, name: str, state: str, remark: str) -> None:
        self._done += 1
        seconds = time.monotonic() - self._start.get(name, time.monotonic())
        shown = "from the cache" if remark.startswith("cache") else remark
        took = f" in {seconds:.1f} s" if name in self._start else ""
        words = {"done": shown, "failed": f"failed: {remark}"}[state]
        self._line(f"[{self._done}/{self.count}] {name}: {words}{took}")
        if self._bar is not None:
            self._bar.advance(self._rows[""])
            row = self._rows.pop(name, None)
            if row is not None:
                self._bar.remove_task(row)

    def _row(self, name: str, state: str) -> None:
        if self._bar is None:
            return
        if name not in self._rows:
            self._rows[name] = self._bar.add_task(name, total=None, state=state)
        self._bar.update(self._rows[name], state=state)

    def _line(self, text: str) -> None:
        if self._bar is None:
            print(text, file=sys.stderr, flush=True)
        else:
            self._bar.console.print(text, highlight=False, markup=False)


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        *(SpinnerColumn(), TextColumn("{task.description}"), BarColumn()),
        *(TextColumn("{task.fields[state]}"), TimeElapsedColumn()),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)
