"""Numeric validation: every pass against the module it was given, down to the rewrite at fault.

Two checks. *Meaning* computes both sides in float64 with float-to-float converts as identity, so a
wrong rewrite cannot hide in a tolerance. *Rounding* computes in the program's own types and holds
the difference against the budget the pass declares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphgen.analysis import fingerprint
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, NATIVE, Arithmetic
from graphgen.exec.backend import Backend, NumpyBackend
from graphgen.exec.session import Outcome, Runner, Workload
from graphgen.ir import Module
from graphgen.ir.clone import clone_module
from graphgen.ops import verify
from graphgen.passes.core import Pass
from graphgen.passes.core.crash import guarded
from graphgen.passes.core.journal import Journal, Rewrite
from graphgen.passes.core.order import check_order
from graphgen.passes.core.pipeline import run_pass
from graphgen.passes.core.rewriter import Rewriter
from graphgen.passes.core.settings import Verify, debugging
from graphgen.passes.verify.compare import Deviation, compare

MEANING_BUDGET = 1e-9


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of validating one pass.

    Attributes:
        pass_text: the pass with its options.
        meaning: the difference in float64.
        rounding: the difference in the program's own types.
        budget: largest relative rounding difference allowed: what the pass declares, and the noise
            of the evaluator.
        guilty: the rewrite after which the meaning differs, where one can be named; where the
            meaning is kept, the one that takes the rounding over the budget.
    """

    pass_text: str
    meaning: Deviation
    rounding: Deviation
    budget: float
    guilty: Rewrite | None = None

    @property
    def means_the_same(self) -> bool:
        """True if the pass kept the meaning."""
        return self.meaning.relative <= MEANING_BUDGET

    @property
    def ok(self) -> bool:
        """True if both checks hold."""
        return self.means_the_same and self.rounding.relative <= self.budget


def validate(
    module: Module,
    passes: Sequence[Pass],
    workload: Workload,
    on_verdict: Callable[[Verdict], None] | None = None,
    evaluator: Backend | None = None,
) -> list[Verdict]:
    """Run a pipeline on a copy of ``module`` and check each pass.

    Args:
        module: where to start; unchanged.
        passes: the pipeline.
        workload: what to compare over.
        on_verdict: called after each pass.
        evaluator: what computes in the program's own types for the rounding check; NumPy, where
            each op is rounded by itself, if none is given.

    Raises:
        GraphgenError: GG0303 for passes in a wrong order; what a pass or the verifier raises.
    """
    check_order(passes, module)
    current = clone_module(module)
    run = evaluator or NumpyBackend(NATIVE)
    noise = run.noise(module)
    meaning, native = _outcomes(current, workload, run)
    number = fingerprint(current)
    verdicts: list[Verdict] = []
    for item in passes:
        before = clone_module(current)
        with guarded(before, [item], debugging(), Verify.MODULE) as crash:
            if crash is not None:
                crash.enter(0, None)
            apply_pass(current, item)
        before_number, number = number, fingerprint(current)
        # The same program gives the same numbers.
        same = number == before_number
        meant, computed = (meaning, native) if same else _outcomes(current, workload, run)
        difference = compare(meaning, meant)
        rounded = compare(native, computed)
        noise = max(noise, run.noise(current))
        budget = item.budget + noise
        guilty = None
        if difference.relative > MEANING_BUDGET:
            guilty = blame(before, item, workload, meaning)
        elif rounded.relative > budget:
            guilty = blame(before, item, workload, native, NATIVE, budget, run)
        verdict = Verdict(str(item), difference, rounded, budget, guilty)
        verdicts.append(verdict)
        if on_verdict is not None:
            on_verdict(verdict)
        meaning, native = meant, computed
    return verdicts


def _outcomes(
    module: Module, workload: Workload, run: Backend
) -> tuple[list[Outcome], list[Outcome]]:
    meant = Runner(module, workload, arithmetic=MEANING).outcomes()
    return meant, Runner(module, workload, run, NATIVE).outcomes()


def apply_pass(
    module: Module, item: Pass, journal: Journal | None = None, fuel: int | None = None
) -> Rewriter:
    """Run one pass in place, optionally with a journal and limited fuel, and verify."""
    rewriter, _ = run_pass(item, module, journal, fuel)
    verify(module)
    return rewriter


def blame(
    before: Module,
    item: Pass,
    workload: Workload,
    reference: Sequence[Outcome],
    arithmetic: Arithmetic = MEANING,
    budget: float = MEANING_BUDGET,
    run: Backend | None = None,
) -> Rewrite | None:
    """The application of ``item`` that makes the difference, by bisecting over fuel.

    With one application fewer the outcomes are within ``budget`` of ``reference``, with it they are
    not. Outcomes are computed in ``arithmetic``, by ``run`` where that is given.

    ``None`` where the pass cannot stop half-way: then the pass as a whole is to blame.
    """
    journal = Journal()

    def differs(fuel: int) -> bool:
        module = clone_module(before)
        rewriter = apply_pass(module, item, fuel=fuel)
        if rewriter.applications != fuel:
            raise GraphgenError("GG0304", f"{item.name} does not stop when its fuel is used up")
        outcomes = Runner(module, workload, run, arithmetic).outcomes()
        return compare(reference, outcomes).relative > budget

    try:
        apply_pass(clone_module(before), item, journal)
        good, bad = 0, len(journal.applications)
        if not bad or differs(0) or not differs(bad):
            return None
        while bad - good > 1:
            middle = (good + bad) // 2
            if differs(middle):
                bad = middle
            else:
                good = middle
    except GraphgenError:
        return None
    return journal.applications[bad - 1]
