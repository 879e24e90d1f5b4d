"""Looking on while a pipeline runs: what is called before and after each pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphgen.ir import Module
from graphgen.passes.core.journal import MatchFailure, Rewrite
from graphgen.passes.core.pass_ import Pass


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass did.

    Attributes:
        name: the pass with its options.
        ops_before, ops_after: ops in all functions.
        applications: rewrites made.
        seconds: wall time, checks excluded.
        changed: whether the module is another one by its fingerprint; ``None`` where nobody looked.
        stopped: whether its fuel was used up.
        remarks: what the pass has to say to the user.
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
class Step:
    """One pass of a running pipeline.

    Attributes:
        number, count: the how-manieth pass of how many, from 1.
        item: the pass.
        module: as it is now.
    """

    number: int
    count: int
    item: Pass
    module: Module


class Watcher:
    """Looks on; a subclass overrides what it wants to see.

    Attributes:
        journal: whether it wants to be told every rewrite and every miss.
    """

    journal: bool = False

    def before(self, step: Step) -> None:
        """A pass is about to run."""

    def after(
        self,
        step: Step,
        report: PassReport,
        applications: Sequence[Rewrite],
        misses: Sequence[MatchFailure],
    ) -> None:
        """A pass has run and the module has been checked.

        Args:
            step: which.
            report: what it did, in numbers.
            applications, misses: what it did and declined; empty where nobody asked for a journal.
        """
