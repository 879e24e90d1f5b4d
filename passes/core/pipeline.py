"""Running passes one after the other, checking the module in between."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.ops import verify
from passes.core.journal import Journal
from passes.core.pass_ import Pass
from passes.core.rewriter import Rewriter


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass did.

    Attributes:
        name: the pass with its options.
        ops_before, ops_after: ops in all functions.
        applications: rewrites made.
        seconds: wall time, verification excluded.
    """

    name: str
    ops_before: int
    ops_after: int
    applications: int
    seconds: float


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
    verify_each: bool = True,
    after: Callable[[Pass, Module], None] | None = None,
    journal: Journal | None = None,
) -> list[PassReport]:
    """Run ``passes`` on ``module`` in place.

    Args:
        module: changed in place.
        passes: in order.
        verify_each: check the module after each pass.
        after: called after each pass, e.g. to print.
        journal: where every rewrite is recorded.

    Raises:
        GraphgenError: GG0303 when a pass does not take the module's level; what a pass or the
            verifier raises, with the pass named.
    """
    reports: list[PassReport] = []
    with paused_gc():
        for item in passes:
            reports.append(_run_one(module, item, journal))
            if verify_each:
                try:
                    verify(module)
                except GraphgenError as error:
                    error.help = error.help or f"the pass {item} left this; a defect of the pass"
                    raise
            if after is not None:
                after(item, module)
    return reports


def _run_one(module: Module, item: Pass, journal: Journal | None) -> PassReport:
    if module.level not in item.takes:
        raise GraphgenError(
            "GG0303",
            f"{item.name} takes a module at level {' or '.join(item.takes)}, not '{module.level}'",
            help="see `graphgen passes` for the order",
        )
    before = module.op_count()
    start = time.perf_counter()
    rewriter = Rewriter(item.name, journal)
    item.run(module, rewriter)
    if item.gives:
        module.level = item.gives
    seconds = time.perf_counter() - start
    return PassReport(str(item), before, module.op_count(), rewriter.applications, seconds)
