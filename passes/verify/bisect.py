"""Bisection of a pipeline: the first wrong pass, then its first wrong rewrite.

The oracle is any predicate: the numbers of a workload, or the exit status of a command. Its verdict
has to stay wrong once it has become wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from graphgen.errors import GraphgenError
from graphgen.eval import MEANING
from graphgen.exec.session import Runner, Workload
from graphgen.ir import Module
from graphgen.ir.clone import clone_module
from graphgen.passes.core import Pass, run_pipeline
from graphgen.passes.core.journal import Journal, Rewrite
from graphgen.passes.verify.compare import compare
from graphgen.passes.verify.divergence import Divergence
from graphgen.passes.verify.equiv import equivalent
from graphgen.passes.verify.validate import MEANING_BUDGET, apply_pass

# True for a wrong module.
Oracle = Callable[[Module], bool]


@dataclass(frozen=True, slots=True)
class Culprit:
    """The pass and rewrite that make a module wrong.

    Attributes:
        number: place of the pass in the pipeline, from 0.
        item: the pass.
        fuel: how many of its applications it takes to be wrong; 0 where it does not stop half-way,
            and then the pass as a whole is to blame.
        application: the last of these; ``None`` for the pass as a whole.
        before: the module the pass was given.
        good: the module with one application less; as given where the pass is to blame.
        bad: the module with the guilty application, the first that is wrong.
        first: by numbers, the op of ``bad`` that parts from ``good`` while what it reads agrees;
            ``None`` where none can be named.
    """

    number: int
    item: Pass
    fuel: int
    application: Rewrite | None
    before: Module
    good: Module
    bad: Module
    first: Divergence | None = None


def by_numbers(module: Module, workload: Workload) -> Oracle:
    """Wrong is what differs from ``module`` in float64, over a workload."""
    reference = Runner(module, workload, arithmetic=MEANING).outcomes()

    def wrong(other: Module) -> bool:
        outcomes = Runner(other, workload, arithmetic=MEANING).outcomes()
        return compare(reference, outcomes).relative > MEANING_BUDGET

    return wrong


def bisect(module: Module, passes: Sequence[Pass], wrong: Oracle) -> Culprit | None:
    """The first pass of a pipeline, and in it the application, that makes a module wrong.

    Args:
        module: where to start; unchanged.
        passes: the pipeline.
        wrong: the oracle.

    Returns:
        ``None`` when the module is fine at the end.

    Raises:
        GraphgenError: GG0304 when the module is wrong before any pass; what a pass raises.
    """
    if wrong(clone_module(module)):
        raise GraphgenError(
            "GG0304",
            "the module is wrong before any pass has run",
            help="the check has to hold for the module as it is given",
        )

    def after(count: int) -> Module:
        made = clone_module(module)
        run_pipeline(made, passes[:count])
        return made

    if not wrong(after(len(passes))):
        return None
    good, bad = 0, len(passes)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if wrong(after(middle)) else (middle, bad)
    found = _in_pass(after(good), passes[good], good, wrong)
    return replace(found, first=_first_op(found))


def _first_op(found: Culprit) -> Divergence | None:
    """The divergence of the last right module and the first wrong one."""
    try:
        return equivalent(found.good, found.bad).first
    except GraphgenError:
        # Modules that cannot be run, or are stopped half-way between two interfaces.
        return None


def _in_pass(before: Module, item: Pass, number: int, wrong: Oracle) -> Culprit:
    journal = Journal()
    whole = clone_module(before)
    apply_pass(whole, item, journal)
    made = journal.applications

    def with_fuel(fuel: int) -> Module | None:
        """The module after ``fuel`` rewrites; ``None`` where the pass does not stop there."""
        copy = clone_module(before)
        rewriter = apply_pass(copy, item, fuel=fuel)
        return copy if rewriter.applications == fuel else None

    good, bad = 0, len(made)
    good_module, bad_module = before, whole
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            stopped = with_fuel(middle)
        except GraphgenError:
            stopped = None
        if stopped is None:
            return Culprit(number, item, 0, None, before, before, whole)
        if wrong(stopped):
            bad, bad_module = middle, stopped
        else:
            good, good_module = middle, stopped
    application = made[bad - 1] if made else None
    return Culprit(number, item, bad if made else 0, application, before, good_module, bad_module)
