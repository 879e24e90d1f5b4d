"""Numeric validation: every pass against the module it was given, down to the rewrite at fault.

Two checks compare numbers. *Meaning* computes both sides in float64 with float-to-float converts as
identity, so a wrong rewrite cannot hide in a tolerance. *Rounding* computes in the program's own
types and holds the difference against the budget the pass declares. Besides, a pass has to give the
same module when it runs again, and to record what it changes. A pass that raises an exception ends
the validation with a verdict of its own; those before it are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from graphgen.eval import MEANING, NATIVE, WITH_INTEGERS
from graphgen.exec.backend import Backend, NumpyBackend
from graphgen.exec.session import Outcome, ProgramCall, Workload
from graphgen.ir import Module
from graphgen.ir.clone import clone_module
from graphgen.passes.core import Pass
from graphgen.passes.core.order import check_order
from graphgen.passes.equiv.deviation import (
    MEANING_BUDGET,
    NONE,
    Deviation,
    RoundingNoise,
    compare,
    first_beyond,
    worse,
)
from graphgen.passes.equiv.recorded_run import RecordedRun, check_outputs, record, with_derived
from graphgen.passes.proof.pass_proof import Status
from graphgen.passes.proof.prove_bounds import prove_indices
from graphgen.passes.proof.prove_pass import prove_pass
from graphgen.passes.proof.refinement import prove_refinement
from graphgen.passes.validate.blame import Blame, blame, by_outcomes
from graphgen.passes.validate.checked_run import (
    RUN_AFTER,
    CheckedRun,
    attempt,
    check_each,
    no_progress,
    run_checked,
)
from graphgen.passes.validate.integer_meaning import integer_budget
from graphgen.passes.validate.merged_adapters import adds_adapters, merged_run, without_adapters
from graphgen.passes.validate.narrow_rounding import (
    DeclaredBudget,
    rounding_budget,
    unit_of_modules,
)
from graphgen.passes.validate.replay_model import replayed
from graphgen.passes.validate.rewrite_checker import check_rewrites
from graphgen.passes.validate.rewrite_verdict import RewriteStatus, RewriteSummary
from graphgen.passes.validate.verdict import RaisedError, Verdict
from graphgen.passes.validate.whole_pipeline import ends_agree
from graphgen.passes.workload.coverage_collect import collect, uncovered_changes
from graphgen.passes.workload.coverage_input import input_coverage
from graphgen.passes.workload.coverage_recorder import CoverageRecorder
from graphgen.passes.workload.layout_tables import permuted
from graphgen.passes.workload.make_workload import rounded_calls

# Passes from which on the two ends are compared first at every position, which most often agree.
_MANY = 3


@dataclass(frozen=True, slots=True)
class PassChecks:
    """Checks of a validation beside the comparison of numbers, and its callbacks.

    Attributes:
        evaluator: what computes in the program's own types for the rounding check; NumPy, where
            each op is rounded by itself, if none is given.
        prove: whether proofs are looked for that each program is the same for all sizes, and that
            the indices of the last module are within bounds.
        each_rewrite: whether each rewrite is also checked alone, on boundary values of its own.
        on_step: called before each step with its description, for progress.
        on_verdict: called after each pass.
        partial: whether more would have been tried by default, which verdicts then say.
    """

    evaluator: Backend | None = None
    prove: bool = False
    each_rewrite: bool = False
    on_step: Callable[[str], None] | None = None
    on_verdict: Callable[[Verdict], None] | None = None
    partial: bool = False


def validate(
    module: Module,
    passes: Sequence[Pass],
    workload: Workload,
    checks: PassChecks | None = None,
) -> list[Verdict]:
    """Run a pipeline on a copy of ``module`` and check each pass.

    Args:
        module: where to start; unchanged.
        passes: the pipeline.
        workload: what to compare over.
        checks: more checks, and callbacks; by default none.

    Returns:
        A verdict for each pass that ran; the last one has ``raised`` where the rest could not run.

    Raises:
        GraphgenError: GG0303 for passes in a wrong order; what a run of ``module`` itself raises.
    """
    check_order(passes, module)
    chosen = checks or PassChecks()
    begin = chosen.on_step or no_progress
    beside: Sequence[ProgramCall] = ()
    if len(passes) >= _MANY and any(call.exact for call in workload.calls):
        begin("all passes together, at every position")
        if ends_agree(module, passes, workload):
            # Each pass is compared on the other calls.
            beside = [call for call in workload.calls if call.exact]
    begin("the module as given")
    validation = _Validation(clone_module(module), workload, chosen, beside)

    def check(item: Pass, step: str) -> Verdict:
        begin(step)
        verdict = replace(validation.verdict(item), partial=chosen.partial)
        if chosen.prove and item is passes[-1] and verdict.raised is None:
            begin("the whole pipeline, by proof")
            whole = prove_refinement(module, validation.module) if verdict.passed else None
            indices = prove_indices(validation.module)
            return replace(verdict, indices=indices, pipeline=whole)
        return verdict

    return check_each(passes, check, chosen.on_verdict)


@dataclass(frozen=True, slots=True)
class Fault:
    """The first pass of a pipeline that does not pass its checks.

    Attributes:
        number: its place in the pipeline, from 0.
        item: the pass.
        verdict: the result of the checks.
        before: the module that the pass was given.
        after: what it left; not to be relied on where the pass itself raised.
    """

    number: int
    item: Pass
    verdict: Verdict
    before: Module
    after: Module


def first_fault(
    module: Module,
    passes: Sequence[Pass],
    workload: Workload,
    checks: PassChecks | None = None,
) -> Fault | None:
    """Check the passes of a pipeline as :func:`validate` does, up to the first one at fault.

    Args:
        module: where to start; unchanged.
        passes: the pipeline.
        workload: what to compare over.
        checks: more checks, and callbacks; by default none.

    Raises:
        GraphgenError: as :func:`validate`.
    """
    check_order(passes, module)
    chosen = checks or PassChecks()
    begin = chosen.on_step or no_progress
    begin("the module as given")
    validation = _Validation(clone_module(module), workload, chosen)
    for number, item in enumerate(passes):
        before = clone_module(validation.module)
        begin(f"pass {number + 1} of {len(passes)}: {item}")
        verdict = validation.verdict(item)
        if chosen.on_verdict is not None:
            chosen.on_verdict(verdict)
        if not verdict.passed:
            return Fault(number, item, verdict, before, validation.module)
    return None


class _Validation:
    """A module on its way through a pipeline, with its numbers.

    Args:
        module: changed in place.
        workload: what to compare over.
        checks: besides the comparison of numbers.
        beside: calls on which the first module and the last agree.
    """

    def __init__(
        self,
        module: Module,
        workload: Workload,
        checks: PassChecks,
        beside: Sequence[ProgramCall] = (),
    ) -> None:
        self.module = module
        self.inputs = input_coverage(module, workload)
        self.rounded = rounded_calls(workload)
        self.workload = self.rounded if beside else workload
        self.beside = beside
        self.run = checks.evaluator or NumpyBackend(NATIVE)
        self.checks = checks
        self.noise = self.run.noise(module)
        # Of the pass that is checked.
        self.budget = 0.0
        self.meaning, self.native = self._first_runs()
        # The fingerprint that the last pass left.
        self._left = ""

    def verdict(self, item: Pass) -> Verdict:
        """Run the next pass and check it."""
        self.budget = rounding_budget(item, self.module)
        ran = attempt(lambda: run_checked(self.module, item, self._left), "the pass")
        if isinstance(ran, RaisedError):
            return Verdict(str(item), raised=ran)
        self._left = ran.left
        reference = self.meaning, self.native
        if ran.changed:
            # The same program gives the same numbers.
            made = attempt(lambda: self._next_runs(item, ran.before), RUN_AFTER)
            if isinstance(made, RaisedError):
                return Verdict(str(item), raised=made, varies=ran.varies)
            reference = made
        verdict = self._compared(item, ran, reference)
        if not self.checks.prove:
            return verdict
        proof, examples = replayed(prove_pass(ran.before, self.module), ran.before, self.module)
        if proof.having(Status.REFUTED) and item.approximation:
            verdict = replace(verdict, approximation=item.approximation)
        proof = proof.disputed(verdict.disputes(proof.programs))
        return replace(verdict, proof=proof, examples=examples)

    def _compared(
        self, item: Pass, ran: CheckedRun, reference: tuple[RecordedRun, RecordedRun]
    ) -> Verdict:
        """The verdict of a pass that ran, by the numbers before and after."""
        before, (meaning, native) = ran.before, reference
        difference, workload, outcomes = self._difference(meaning, changed=ran.changed)
        noise = RoundingNoise(unit_of_modules(before, self.module), meaning.outcomes)
        rounded = compare(native.outcomes, self.native.outcomes, noise)
        budget = self.budget + self.noise
        if not (item.budget or difference.within(MEANING_BUDGET)) and rounded.within(0.0):
            difference = self._of_integers(item, before, workload, difference)
        found: Blame | None = None
        first: Deviation | None = None
        if not difference.within(MEANING_BUDGET) and not item.approximation:
            found = blame(before, item, by_outcomes(meaning, workload))
            first = first_beyond(meaning.outcomes, outcomes, MEANING_BUDGET)
        elif not rounded.within(budget) and not item.approximation:
            wrong = by_outcomes(native, self.rounded, NATIVE, budget, self.run, noise)
            found = blame(before, item, wrong)
            first = first_beyond(native.outcomes, self.native.outcomes, budget, noise)
        verdict = Verdict(str(item), difference, rounded, budget, varies=ran.varies)
        verdict = replace(verdict, silent=ran.silent, coverage=self.coverage)
        if not difference.within(MEANING_BUDGET):
            verdict = replace(verdict, approximation=item.approximation)
        declared = DeclaredBudget.of(item, before, self.module)
        verdict = replace(verdict, declared=declared)
        if ran.changed:
            counts = self.meaning.counts, self.native.counts
            uncovered = uncovered_changes(before, self.module, self.coverage)
            verdict = replace(
                verdict, choices=counts[0], rounded_choices=counts[1], uncovered=uncovered
            )
        # A pass that differs from run to run may make other rewrites, or fail, in a third.
        checked = ran.rewrites and ran.varies is None
        alone = self._rewrites(before, item) if checked else None
        if alone is not None and alone.having(RewriteStatus.APPROXIMATED):
            verdict = replace(verdict, approximation=item.approximation)
        finite = alone is not None and item.finite_math_only
        verdict = replace(verdict, first=first, rewrites=alone, finite_math_only=finite)
        return _blamed(verdict, found)

    def _difference(
        self, meaning: RecordedRun, *, changed: bool
    ) -> tuple[Deviation, Workload, Sequence[Outcome]]:
        """The larger difference of the default layouts and of permuted ones, and where it is seen.

        Returns:
            The difference, the workload with these layouts, and the outcomes of its calls.
        """
        found = compare(meaning.outcomes, self.meaning.outcomes)
        other = permuted(self.module, self.workload) if changed else None
        if other is None:
            return found, self.workload, self.meaning.outcomes
        ran = record(self.module, other, MEANING, None, meaning, MEANING_BUDGET)
        moved = compare(meaning.outcomes, ran.outcomes)
        if worse(found, moved) is moved:
            return moved, other, ran.outcomes
        return found, self.workload, self.meaning.outcomes

    def _of_integers(
        self, item: Pass, before: Module, workload: Workload, found: Deviation
    ) -> Deviation:
        """The difference in float64 of modules with the same bits, where integers are integers."""
        functions = [*before.functions.values(), *self.module.functions.values()]
        budget = integer_budget(op for function in functions for op in function.block)
        if budget is None or adds_adapters(before, self.module):
            return found
        meaning = with_derived(record(before, workload, WITH_INTEGERS), item, workload)
        ran = record(self.module, workload, WITH_INTEGERS, None, meaning, budget)
        return NONE if compare(meaning.outcomes, ran.outcomes).within(budget) else found

    def _rewrites(self, before: Module, item: Pass) -> RewriteSummary | None:
        """The results of checking each rewrite alone, if that is wanted."""
        if not self.checks.each_rewrite:
            return None
        # Each rewrite is compared with what was there, which has no adapters.
        none = adds_adapters(before, self.module)
        workload = without_adapters(self.rounded) if none else self.rounded
        return check_rewrites(before, item, workload)

    def _first_runs(self) -> tuple[RecordedRun, RecordedRun]:
        recorder = CoverageRecorder()
        meant = record(self.module, self.workload, MEANING, observer=recorder)
        self.coverage = collect(self.module, self.workload, recorder, self.inputs, self.beside)
        return meant, record(self.module, self.rounded, NATIVE, self.run)

    def _next_runs(self, item: Pass, before: Module) -> tuple[RecordedRun, RecordedRun]:
        """Run the module that ``item`` left; return the runs that it is compared with."""
        meaning, native = self.meaning, self.native
        if adds_adapters(before, self.module):
            meaning = merged_run(before, self.module, self.workload, MEANING)
            native = merged_run(before, self.module, self.rounded, NATIVE, self.run)
        meaning = with_derived(meaning, item, self.workload)
        native = with_derived(native, item, self.rounded)
        self.noise = max(self.noise, self.run.noise(self.module))
        budget = self.budget + self.noise
        recorder = CoverageRecorder()
        self.meaning = record(
            self.module, self.workload, MEANING, None, meaning, MEANING_BUDGET, recorder
        )
        self.coverage = collect(self.module, self.workload, recorder, self.inputs, self.beside)
        self.native = record(self.module, self.rounded, NATIVE, self.run, native, budget)
        check_outputs(meaning.outcomes, self.meaning.outcomes, item)
        return meaning, native


def _blamed(verdict: Verdict, found: Blame | None) -> Verdict:
    """The verdict with the rewrite at fault: by the calls, else by itself."""
    if found is None:
        alone = verdict.rewrites.wrong if verdict.rewrites is not None else None
        return verdict if alone is None else replace(verdict, guilty=alone.rewrite)
    together, recovered = found.together, found.recovered
    return replace(verdict, guilty=found.guilty, together=together, recovered=recovered)
