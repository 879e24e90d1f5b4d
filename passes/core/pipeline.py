"""Running passes one after the other, checking the module in between."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from graphgen.ir import Module
from passes.core.check import Checker
from passes.core.journal import Journal
from passes.core.order import check_order
from passes.core.pass_ import Pass
from passes.core.rewriter import Rewriter
from passes.core.settings import Verify, debugging


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass did.

    Attributes:
        name: the pass with its options.
        ops_before, ops_after: ops in all functions.
        applications: rewrites made.
        seconds: wall time, checks excluded.
        changed: whether the module is another one by its fingerprint; ``None`` where nobody looked.
        remarks: what the pass has to say to the user.
    """

    name: str
    ops_before: int
    ops_after: int
    applications: int
    seconds: float
    changed: bool | None = None
    remarks: tuple[str, ...] = ()


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
    after: Callable[[Pass, Module], None] | None = None,
    journal: Journal | None = None,
) -> list[PassReport]:
    """Run ``passes`` on ``module`` in place.

    Args:
        module: changed in place.
        passes: in order.
        verify: what is checked after each pass; by default what :func:`debugging` says.
        after: called after each pass, e.g. to print.
        journal: where every rewrite is recorded.

    Raises:
        GraphgenError: GG0303 before any pass runs when one of them cannot run where it stands,
            GG0305 when one does not keep its word; what a pass or the verifier raises, with the
            pass named.
    """
    check_order(passes, module)
    reports: list[PassReport] = []
    checker = Checker(module, debugging().verify if verify is None else Verify(verify))
    with paused_gc():
        for item in passes:
            reports.append(_run_one(module, item, checker, journal))
            if after is not None:
                after(item, module)
    return reports


def _run_one(module: Module, item: Pass, checker: Checker, journal: Journal | None) -> PassReport:
    before = module.op_count()
    start = time.perf_counter()
    rewriter = Rewriter(item.name, journal)
    item.run(module, rewriter)
    if item.gives:
        module.level = item.gives
    seconds = time.perf_counter() - start
    changed = checker.after(item, rewriter.applications)
    made, said = rewriter.applications, tuple(rewriter.remarks)
    return PassReport(str(item), before, module.op_count(), made, seconds, changed, said)
