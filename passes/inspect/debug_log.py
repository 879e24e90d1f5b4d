"""Pass instruments: print before and after, dump to files, and the debug log."""

from __future__ import annotations

import itertools
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from graphgen.atomic_write import unwritable, write_inside
from graphgen.errors import GraphgenError
from graphgen.passes.core import Pass
from graphgen.passes.core.fuel import labels
from graphgen.passes.core.instrument import PassInstrument, PassReport, PipelineStep
from graphgen.passes.core.journal import Journal, MatchFailure, Rewrite
from graphgen.passes.core.settings import Debugging, Level
from graphgen.passes.inspect.stable_names import StableNames
from graphgen.passes.inspect.text_diff import Texts, texts_of, unified
from graphgen.text import print_module

Write = Callable[[str], object]
ALL, CHANGED = "ALL", "CHANGED"


def debug_instruments(settings: Debugging) -> list[PassInstrument]:
    """The instruments that ``GRAPHGEN_DEBUG`` and ``GRAPHGEN_DUMP`` ask for."""
    found: list[PassInstrument] = []
    if settings.level:
        found.append(DebugLog(settings.level, sys.stderr.write))
    if settings.dump:
        found.append(Dump(Path(settings.dump) / f"run{next(_runs)}"))
    return found


# Pipelines of this process that are dumped go into a folder each.
_runs = itertools.count(1)


def pick(passes: Sequence[Pass], name: str, what: str) -> int:
    """Index of the pass called ``name``, from 0; ``cse#2`` is the second ``cse``.

    Raises:
        GraphgenError: GG0705 naming what the pipeline has.
    """
    known = labels(passes)
    if name not in known:
        raise GraphgenError(
            "GG0705", f"{what}: no pass '{name}' here", help=f"the pipeline has {', '.join(known)}"
        )
    return known.index(name)


class PrintBefore(PassInstrument):
    """Writes the module before a pass.

    Args:
        which: number of the pass from 1, or ``ALL``.
        write: receives the text.
    """

    def __init__(self, which: int | str, write: Write) -> None:
        self.which = which
        self.write = write

    def before(self, step: PipelineStep) -> None:
        """Write the module."""
        if self.which in (ALL, step.number):
            self.write(f"# before {step.item}\n{print_module(step.module)}\n")


class PrintAfter(PassInstrument):
    """Writes the module after a pass, or what changed.

    Args:
        which: number of the pass from 1, ``ALL``, or ``CHANGED`` for a diff of what a pass changed.
        write: receives the text.

    Attributes:
        diffs: for ``CHANGED``, the text after each pass that has run; empty where nothing changed.
    """

    def __init__(self, which: int | str, write: Write) -> None:
        self.which = which
        self.write = write
        self.diffs: list[str] = []
        self._names = StableNames()
        self._texts: Texts = {}

    def before(self, step: PipelineStep) -> None:
        """Remember the first text."""
        if self.which == CHANGED and not self._texts:
            self._texts = texts_of(step.module, self._names)

    def after(
        self,
        step: PipelineStep,
        report: PassReport,
        applications: Sequence[Rewrite],
        misses: Sequence[MatchFailure],
    ) -> None:
        """Write the module, or how it differs."""
        if self.which in (ALL, step.number):
            self.write(f"# after {step.item}\n{print_module(step.module)}\n")
        elif self.which == CHANGED:
            texts = texts_of(step.module, self._names)
            self.diffs.append(unified(self._texts, texts, str(step.item)))
            self._texts = texts
            if self.diffs[-1]:
                self.write(self.diffs[-1])


_DUMPED = re.compile(r"\d{3}\.[\w-]+\.gg")


class Dump(PassInstrument):
    """Writes the module into a folder after every pass that changed it: ``003.cse.gg``.

    Files of an earlier dump in the folder are removed first.

    Args:
        folder: created if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._last = ""

    def before(self, step: PipelineStep) -> None:
        """Write the input module as ``000.input.gg``."""
        if not self._last:
            self._prepare()
            self._write(0, "input", print_module(step.module))

    def after(
        self,
        step: PipelineStep,
        report: PassReport,
        applications: Sequence[Rewrite],
        misses: Sequence[MatchFailure],
    ) -> None:
        """Write the module if the pass changed it."""
        text = print_module(step.module)
        if text != self._last:
            self._write(step.number, step.item.name, text)

    def _prepare(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for path in self.folder.iterdir():
                if _DUMPED.fullmatch(path.name):
                    path.unlink()
        except OSError as error:
            raise unwritable(str(self.folder), error.strerror or str(error)) from error

    def _write(self, number: int, name: str, text: str) -> None:
        write_inside(self.folder, self.folder / f"{number:03d}.{name}.gg", text.encode())
        self._last = text


class DebugLog(PassInstrument):
    """Logs what passes do.

    Args:
        level: of detail.
        write: receives the lines.
    """

    def __init__(self, level: Level, write: Write) -> None:
        self.level = level
        self.write = write
        self.journal = level >= Level.RULES
        self._changes = PrintAfter(CHANGED, write) if level >= Level.CHANGES else None

    def before(self, step: PipelineStep) -> None:
        """Remember the text that changes are shown against."""
        if self._changes is not None:
            self._changes.before(step)

    def after(
        self,
        step: PipelineStep,
        report: PassReport,
        applications: Sequence[Rewrite],
        misses: Sequence[MatchFailure],
    ) -> None:
        """Write the lines of the level."""
        line = f"graphgen: {step.number}/{step.count} {report.name}: {report.seconds * 1e3:.1f} ms"
        if self.level >= Level.COUNTS:
            line += f", ops {report.ops_before} -> {report.ops_after}"
            line += f", {report.applications} rewrites"
        lines = [line]
        if self.level >= Level.RULES:
            lines += [f"  {n} x {rule}" for rule, n in Counter(map(_rule, applications)).items()]
        if self.level >= Level.REWRITES:
            lines += [f"  {item}" for item in applications]
            lines += [f"  not {line}" for line in nearest_misses(misses)]
        self.write("".join(f"{line}\n" for line in lines))
        if self._changes is not None:
            self._changes.after(step, report, applications, misses)


def _rule(item: Rewrite) -> str:
    return item.rule


def nearest_misses(misses: Sequence[MatchFailure]) -> list[str]:
    """For each rule, its match failure with the deepest condition, in words."""
    journal = Journal([], list(misses))
    out: list[str] = []
    for rule in dict.fromkeys([miss.rule for miss in misses]):
        miss = journal.nearest(rule)
        assert miss is not None
        at = f" (at %{miss.why.at.name})" if miss.why.at is not None and miss.why.at.name else ""
        out.append(f"{rule} at {miss.root}: {miss.why.reason}{at}")
    return out
