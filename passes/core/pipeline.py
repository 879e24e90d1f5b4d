"""Running passes one after the other, checking the module in between."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.passes.core.check import Checker
from graphgen.passes.core.crash import Crash, guarded
from graphgen.passes.core.fuel import Fuel, labels
from graphgen.passes.core.journal import Journal
from graphgen.passes.core.order import check_order
from graphgen.passes.core.pass_ import Pass
from graphgen.passes.core.rewriter import Rewriter
from graphgen.passes.core.settings import Debugging, Verify, debugging
from graphgen.passes.core.watch import PassReport, Step, Watcher


@contextmanager
def paused_gc() -> Generator[None]:
    """No cyclic garbage collection: a graph is one big cycle, and scanning it costs a fifth."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def run_pipeline(
    module: Module,
    passes: Sequence[Pass],
    *,
    verify: int | None = None,
    fuel: Fuel | None = None,
    after: Callable[[Pass, Module], None] | None = None,
    journal: Journal | None = None,
    watch: Sequence[Watcher] = (),
) -> list[PassReport]:
    """Run ``passes`` on ``module`` in place.

    Args:
        module: changed in place.
        passes: in order.
        verify: what is checked after each pass; by default what :func:`debugging` says.
        fuel: how many rewrites are made; by default what :func:`debugging` says.
        after: called after each pass.
        journal: where every rewrite is recorded.
        watch: who looks on, besides those :func:`debugging` asks for.

    Returns:
        A report for each pass that ran: all of them, unless the fuel of the pipeline was used up.

    Raises:
        GraphgenError: GG0303 before any pass runs when one of them cannot run where it stands,
            GG0305 when one does not keep its word; GG0302 for passes that are still text; what a
            pass or the verifier raises, with the pass named.
    """
    if isinstance(passes, str):
        raise GraphgenError(
            "GG0302",
            f"'{passes}' is text, not a list of passes",
            help="run_pipeline(module, parse_pipeline(text))",
        )
    check_order(passes, module)
    settings = debugging()
    watchers = [*watch, *_watchers(settings)]
    if journal is None and any(watcher.journal for watcher in watchers):
        journal = Journal()
    limits = settings.fuel if fuel is None else fuel
    _check_fuel(limits, passes)
    checker = Checker(module, settings.verify if verify is None else Verify(verify))
    running = _Running(module, passes, checker, journal, limits, watchers, after)
    with paused_gc(), guarded(module, passes, settings, running.checker.depth) as crash:
        running.crash = crash
        return running.run()


def _watchers(settings: Debugging) -> list[Watcher]:
    """Who looks on because the settings say so."""
    if not settings.level and not settings.dump:
        return []
    from graphgen.passes.debug.watchers import watchers_of

    return watchers_of(settings)


def _check_fuel(fuel: Fuel, passes: Sequence[Pass]) -> None:
    """A limit for a pass that is not there would go unnoticed (GG0705)."""
    known = labels(passes)
    for label in fuel.of_pass:
        if label not in known:
            raise GraphgenError(
                "GG0705", f"fuel for '{label}'", help=f"the pipeline has {', '.join(known)}"
            )


@dataclass(slots=True)
class _Running:
    module: Module
    passes: Sequence[Pass]
    checker: Checker
    journal: Journal | None
    fuel: Fuel
    watchers: Sequence[Watcher]
    after: Callable[[Pass, Module], None] | None
    crash: Crash | None = None
    reports: list[PassReport] = field(default_factory=list[PassReport])

    def run(self) -> list[PassReport]:
        """Every pass, as far as the fuel goes."""
        spent = 0
        for number, (item, label) in enumerate(zip(self.passes, labels(self.passes), strict=True)):
            limit = self.fuel.limit(label, spent)
            report = self.one(number, item, limit)
            self.reports.append(report)
            spent += report.applications
            if self.after is not None:
                self.after(item, self.module)
            if report.stopped:
                if self.fuel.total is not None and spent >= self.fuel.total:
                    break
                check_order(self.passes[number + 1 :], self.module)
        return self.reports

    def one(self, number: int, item: Pass, limit: int | None) -> PassReport:
        """Run one pass, check what it left, and tell those who look on."""
        module, journal = self.module, self.journal
        step = Step(number + 1, len(self.passes), item, module)
        for watcher in self.watchers:
            watcher.before(step)
        seen = (len(journal.applications), len(journal.misses)) if journal is not None else (0, 0)
        before = module.op_count()
        if self.crash is not None:
            self.crash.enter(number, limit)
        rewriter, seconds = run_pass(item, module, journal, limit)
        changed = self.checker.after(item, rewriter)
        if self.crash is not None:
            self.crash.leave()
        report = PassReport(
            str(item),
            before,
            module.op_count(),
            rewriter.applications,
            seconds,
            changed,
            rewriter.exhausted,
            tuple(rewriter.remarks),
        )
        for watcher in self.watchers:
            if journal is None:
                watcher.after(step, report, (), ())
            else:
                applications, misses = journal.applications[seen[0] :], journal.misses[seen[1] :]
                watcher.after(step, report, applications, misses)
        return report


def run_pass(
    item: Pass, module: Module, journal: Journal | None = None, fuel: int | None = None
) -> tuple[Rewriter, float]:
    """Run one pass in place, unchecked, and how many seconds it took."""
    start = time.perf_counter()
    rewriter = Rewriter(item.name, journal, fuel)
    item.run(module, rewriter)
    # A pass that was stopped has not brought the module where it would.
    if item.output_stage and not rewriter.exhausted:
        module.level = item.output_stage
    return rewriter, time.perf_counter() - start
