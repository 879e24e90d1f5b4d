"""A pass that fails leaves a folder behind that fails again: ``graphgen repro DIR``."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from shlex import quote

from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.passes.core.pass_ import Pass
from graphgen.passes.core.settings import OFF, Debugging, Verify
from graphgen.passes.core.snapshot import Snapshot


@dataclass(slots=True)
class Crash:
    """What is needed to let a pipeline fail again.

    Attributes:
        start: the module it was given.
        passes: the pipeline.
        verify: what is checked after each pass.
        number: the pass that is running, from 0; ``None`` in between.
        fuel: how many rewrites that pass may make, ``None`` for no limit.
    """

    start: Snapshot
    passes: Sequence[Pass]
    verify: Verify
    number: int | None = None
    fuel: int | None = None

    def enter(self, number: int, fuel: int | None) -> None:
        """A pass begins."""
        self.number, self.fuel = number, fuel

    def leave(self) -> None:
        """It has ended, and what it left has been checked."""
        self.number = None


@contextmanager
def guarded(
    module: Module, passes: Sequence[Pass], settings: Debugging, verify: Verify
) -> Generator[Crash | None]:
    """Inside, a pass that fails leaves a reproducer, and the error says how to replay it.

    Args:
        module: as it is before the first pass.
        passes: the pipeline.
        settings: where reproducers go.
        verify: what is checked after each pass.
    """
    if settings.crash == OFF:
        yield None
        return
    crash = Crash(Snapshot(module), passes, verify)
    try:
        yield crash
    except MemoryError:
        raise
    except Exception as error:
        if crash.number is not None:
            _leave(crash, settings.crash, error)
        raise


def _leave(crash: Crash, folder: str, error: Exception) -> None:
    """Write the reproducer; a full disk must not hide the error itself."""
    from graphgen.passes.debug.reproducer import write_reproducer

    try:
        command = f"graphgen repro {quote(str(write_reproducer(crash, folder, error)))}"
    except (GraphgenError, OSError) as trouble:
        command = f"no reproducer was written: {getattr(trouble, 'what', trouble)}"
    if isinstance(error, GraphgenError):
        error.help = f"{error.help}\n  help: {command}" if error.help else command
    else:
        error.add_note(command)
