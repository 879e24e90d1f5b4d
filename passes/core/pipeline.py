"""Pipeline driver: runs passes in order and checks the module after each."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from graphgen.errors import GraphgenError
from graphgen.gc_pause import paused_collector
from graphgen.ir import Module
from graphgen.ir.clone import clone_module
from graphgen.passes.core.contract import Checker
from graphgen.passes.core.crash import Crash, guarded
from graphgen.passes.core.fuel import Fuel, labels
from graphgen.passes.core.instrument import PassInstrument, PassReport, PipelineStep, instruments_of
from graphgen.passes.core.journal import Journal, RewriteKey, keys_of
from graphgen.passes.core.order import check_order
from graphgen.passes.core.pass_ import Pass
from graphgen.passes.core.rewriter import Rewriter
from graphgen.passes.core.settings import Verify, debugging


def run_pipeline(
    module: Module,
    passes: Sequence[Pass],
    *,
    verify: int | None = None,
    fuel: Fuel | None = None,
    after: Callable[[Pass, Module], None] | None = None,
    journal: Journal | None = None,
    instruments: Sequence[PassInstrument] = (),
) -> list[PassReport]:
    """Run ``passes`` on ``module`` in place.

    Args:
        module: changed in place.
        passes: in order.
        verify: depth of the checks after each pass; by default that of :func:`debugging`.
        fuel: limit of rewrites; by default that of :func:`debugging`.
        after: called after each pass.
        journal: records every rewrite.
        instruments: observers, besides those that :func:`debugging` asks for.

    Returns:
        A report for each pass that ran: all of them, unless the fuel of the pipeline was used up.

    Raises:
        GraphgenError: GG0303 before any pass runs when one of them cannot run where it stands,
            GG0305 when one breaks its contract; GG0302 for passes that are still text; what a
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
    active = [*instruments, *instruments_of(settings)]
    if journal is None and any(item.journal for item in active):
        journal = Journal()
    limits = settings.fuel if fuel is None else fuel
    _check_fuel(limits, passes)
    checker = Checker(module, settings.verify if verify is None else Verify(verify))
    running = _Running(module, passes, checker, journal, limits, active, after)
    with paused_collector(), guarded(module, passes, settings, running.checker.depth) as crash:
        running.crash = crash
        return running.run()


def _check_fuel(fuel: Fuel, passes: Sequence[Pass]) -> None:
    """Refuse a limit for a pass that the pipeline does not have (GG0705)."""
    known = labels(passes)
    for label in (*fuel.of_pass, *fuel.chosen):
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
    instruments: Sequence[PassInstrument]
    after: Callable[[Pass, Module], None] | None
    crash: Crash | None = None
    reports: list[PassReport] = field(default_factory=list[PassReport])

    def run(self) -> list[PassReport]:
        """Run every pass, as far as the fuel goes."""
        spent = 0
        for number, (item, label) in enumerate(zip(self.passes, labels(self.passes), strict=True)):
            limit = self.fuel.limit(label, spent)
            report = self.one(number, item, limit, self.fuel.chosen.get(label))
            self.reports.append(report)
            spent += report.applications
            if self.after is not None:
                self.after(item, self.module)
            if report.stopped:
                if self.fuel.total is not None and spent >= self.fuel.total:
                    break
                check_order(self.passes[number + 1 :], self.module)
        return self.reports

    def one(
        self, number: int, item: Pass, limit: int | None, chosen: frozenset[int] | None
    ) -> PassReport:
        """Run one pass, check the module, and call the instruments."""
        module, journal = self.module, self.journal
        step = PipelineStep(number + 1, len(self.passes), item, module)
        for instrument in self.instruments:
            instrument.before(step)
        seen = (len(journal.applications), len(journal.misses)) if journal is not None else (0, 0)
        before = module.op_count()
        if self.crash is not None:
            self.crash.enter(number, limit)
        if chosen is None:
            rewriter, seconds = run_pass(item, module, journal, limit)
        else:
            rewriter, seconds = _run_chosen(item, module, journal, limit, chosen)
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
            rewriter.incomplete,
            tuple(rewriter.remarks),
        )
        for instrument in self.instruments:
            if journal is None:
                instrument.after(step, report, (), ())
            else:
                applications, misses = journal.applications[seen[0] :], journal.misses[seen[1] :]
                instrument.after(step, report, applications, misses)
        return report


def _run_chosen(
    item: Pass,
    module: Module,
    journal: Journal | None,
    fuel: int | None,
    chosen: frozenset[int],
) -> tuple[Rewriter, float]:
    """Run one pass with the rewrites that have these numbers when it runs without a limit.

    Raises:
        GraphgenError: GG0304 for a pass that makes others too.
    """
    whole, made = Journal(), journal or Journal()
    run_pass(item, clone_module(module), whole)
    only = {key for number, key in enumerate(keys_of(whole.applications), 1) if number in chosen}
    count = len(made.applications)
    ran = run_pass(item, module, made, fuel, only)
    if not only.issuperset(keys_of(made.applications[count:])):
        raise GraphgenError(
            "GG0304",
            f"{item.name} cannot leave out single rewrites",
            help="give a number: its first rewrites; a pass that makes rewrites by hand asks "
            "rewriter.leaves_out before each",
        )
    return ran


def run_pass(
    item: Pass,
    module: Module,
    journal: Journal | None = None,
    fuel: int | None = None,
    only: Collection[RewriteKey] | None = None,
) -> tuple[Rewriter, float]:
    """Run one pass in place, unchecked.

    Args:
        item: the pass.
        module: changed in place.
        journal: records the rewrites.
        fuel: how many it may make, ``None`` for no limit.
        only: keys of those it may make, ``None`` for all.

    Returns:
        Its rewriter, and the seconds it took.
    """
    start = time.perf_counter()
    rewriter = Rewriter(item.name, journal, fuel, only)
    item.run(module, rewriter)
    rewriter.remark_lost()
    # A pass that left out rewrites has not reached its output stage.
    if item.output_stage and not rewriter.incomplete:
        module.level = item.output_stage
    return rewriter, time.perf_counter() - start
