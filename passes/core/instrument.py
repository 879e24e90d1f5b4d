"""Pass instrumentation: callbacks before and after each pass of a running pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphgen.ir import Module
from graphgen.passes.core.journal import MatchFailure, Rewrite
from graphgen.passes.core.pass_ import Pass
from graphgen.passes.core.settings import Debugging


@dataclass(frozen=True, slots=True)
class PassReport:
    """Counts and time of one pass.

    Attributes:
        name: the pass with its options.
        ops_before, ops_after: ops in all functions.
        applications: rewrites made.
        seconds: wall time, checks excluded.
        changed: whether the fingerprint of the module changed; ``None`` if it was not taken.
        stopped: whether its fuel was used up.
        remarks: messages of the pass for the user.
    """

    name: str
    ops_before: int
    ops_after: int
    applications: int
    seconds: float
    changed: bool | None = None
    stopped: bool = False
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PipelineStep:
    """One pass of a running pipeline.

    Attributes:
        number, count: 1-based index of the pass, and number of passes.
        item: the pass.
        module: as it is now.
    """

    number: int
    count: int
    item: Pass
    module: Module


class PassInstrument:
    """Observer of a pipeline; a subclass overrides the callbacks it needs.

    Attributes:
        journal: whether it needs every rewrite and match failure.
    """

    journal: bool = False

    def before(self, step: PipelineStep) -> None:
        """Called before a pass runs."""

    def after(
        self,
        step: PipelineStep,
        report: PassReport,
        applications: Sequence[Rewrite],
        misses: Sequence[MatchFailure],
    ) -> None:
        """Called after a pass has run and the module has been checked.

        Args:
            step: the pass.
            report: its counts and time.
            applications, misses: its rewrites and match failures; empty without a journal.
        """


# (settings) -> the instruments that they ask for.
InstrumentFactory = Callable[[Debugging], Sequence[PassInstrument]]
_FACTORIES: list[InstrumentFactory] = []


def register_instruments(factory: InstrumentFactory) -> None:
    """Register a source of instruments that every pipeline runs with."""
    _FACTORIES.append(factory)


def instruments_of(settings: Debugging) -> list[PassInstrument]:
    """The instruments that ``settings`` ask for; none at level 0 without a dump."""
    if not settings.level and not settings.dump:
        return []
    return [item for factory in _FACTORIES for item in factory(settings)]
