"""Failure predicates: a module's failure under a pipeline, testable on smaller modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, NATIVE, Arithmetic
from graphgen.exec.session import Runner, Workload
from graphgen.ir import Module
from graphgen.ir.clone import clone_module
from graphgen.passes.core import Pass, run_pipeline
from graphgen.passes.core.settings import OFF, debug
from graphgen.passes.equiv.deviation import MEANING_BUDGET, compare
from graphgen.passes.equiv.recorded_run import check_outputs, record, with_derived
from graphgen.passes.validate.blame import apply_pass
from graphgen.passes.validate.checked_run import run_checked
from graphgen.passes.validate.narrow_rounding import rounding_budget
from graphgen.passes.validate.reproducer import Failure, failure_of
from graphgen.passes.validate.rewrite_checker import check_rewrites
from graphgen.passes.validate.validate import PassChecks, first_fault
from graphgen.passes.workload.layout_tables import permuted
from graphgen.passes.workload.make_workload import is_language_model, workload_for
from graphgen.passes.workload.short_script import Script

# True for a module that fails; it may be changed.
Fails = Callable[[Module], bool]


def at_fault(module: Module, passes: Sequence[Pass], seed: int) -> tuple[Fails, Pass | None, str]:
    """Predicate of modules for which a pass fails as the first one at fault for ``module`` does.

    Both sides of that pass are compared, so that a smaller module cannot fail by another one, and
    by the check that failed: of the meaning, the rounding, the rewrites alone, and so on. Where
    ``module`` runs up to that pass over its own workload, so do the smaller ones.

    Returns:
        The check; the pass, ``None`` where none is at fault; and the state of its verdict.

    Raises:
        GraphgenError: what a run of ``module`` itself raises.
    """
    calls = _Calls(seed)
    with _quiet():
        checks = PassChecks(each_rewrite=True)
        fault = first_fault(module, passes, calls.of(module, passes), checks)
        if fault is None and is_language_model(module):
            # The fault may show at some positions only, which takes more calls of each candidate.
            calls = replace(calls, script="auto")
            fault = first_fault(module, passes, calls.of(module, passes), checks)
    if fault is None:
        return _never, None, ""
    raised = fault.verdict.raised
    failure = None if raised is None else raised.failure
    own = _FailingPass(passes, fault.number, calls, fault.verdict.state, failure)
    # Calls that the whole pipeline touches are made where those of the pass do not show it.
    chosen = own if own.fails(module) else replace(own, whole=True)
    runs = _runs(module, passes, fault.number, calls)

    def fails(other: Module) -> bool:
        return chosen.fails(other) and (not runs or _runs(other, passes, fault.number, calls))

    return fails, fault.item, fault.verdict.state


def _never(module: Module) -> bool:
    """No module fails."""
    return False


def _quiet() -> AbstractContextManager[object]:
    """Run passes without the user's debugging settings."""
    return debug(level=0, dump="", fuel="", crash=OFF)


@dataclass(frozen=True, slots=True)
class _Calls:
    """Seed and script of the calls of a candidate.

    Attributes:
        seed: of the workload.
        script: of the calls of a language model.
    """

    seed: int = 0
    script: Script = "quick"

    def of(self, module: Module, passes: Sequence[Pass]) -> Workload:
        """The workload of a module."""
        return workload_for(module, passes, self.seed, script=self.script)


@dataclass(frozen=True, slots=True)
class _FailingPass:
    """A pass, and the check that it fails.

    Attributes:
        passes: the pipeline.
        number: place of the pass.
        calls: of the workload.
        state: of its verdict.
        failure: of a pass that raises.
        whole: compare over the calls of the whole pipeline, not over those of the pass.
    """

    passes: Sequence[Pass]
    number: int
    calls: _Calls
    state: str
    failure: Failure | None
    whole: bool = False

    @property
    def item(self) -> Pass:
        """The pass."""
        return self.passes[self.number]

    def fails(self, module: Module) -> bool:
        """True if the check fails; False for a module that cannot be run up to the pass."""
        try:
            with _quiet():
                before = clone_module(module)
                run_pipeline(before, self.passes[: self.number])
                passes = self.passes if self.whole else [self.item]
                workload = self.calls.of(module if self.whole else before, passes)
                return self._failing(before, workload)
        except MemoryError:
            raise
        except Exception:
            # A candidate that cannot run does not fail as the module did.
            return False

    def _failing(self, before: Module, workload: Workload) -> bool:
        match self.state:
            case "raised":
                return self._raises(before, workload)
            case "WRONG rewrite":
                # Numbers that show it, too, would be another fault: that of a part of the rewrite.
                right = not any(self._differs(before, workload, how) for how in (MEANING, NATIVE))
                return right and check_rewrites(before, self.item, workload).wrong is not None
            case "silent":
                return run_checked(clone_module(before), self.item).silent
            case "not repeatable":
                return run_checked(clone_module(before), self.item).varies is not None
            case "over budget":
                kept = not self._differs(before, workload, MEANING)
                return kept and self._differs(before, workload, NATIVE)
            case _:
                return self._differs(before, workload, MEANING)

    def _raises(self, before: Module, workload: Workload) -> bool:
        """True if the pass, or a run of what it leaves, raises the same exception."""
        record(before, workload, MEANING)
        try:
            self._differs(before, workload, MEANING)
        except MemoryError:
            raise
        except Exception as error:
            return self.failure is not None and failure_of(error).like(self.failure)
        return False

    def _differs(self, before: Module, workload: Workload, arithmetic: Arithmetic) -> bool:
        """True if the pass changes the numbers of a module, as validation compares them.

        Raises:
            GraphgenError: GG0305 for a pass that adds or drops an output and does not declare it.
        """
        after = clone_module(before)
        apply_pass(after, self.item)
        rounded = arithmetic is NATIVE
        budget = rounding_budget(self.item, before) if rounded else MEANING_BUDGET
        reference = with_derived(record(before, workload, arithmetic), self.item, workload)
        found = record(after, workload, arithmetic, None, reference, budget)
        check_outputs(reference.outcomes, found.outcomes, self.item)
        if not compare(reference.outcomes, found.outcomes).within(budget):
            return True
        other = None if rounded else permuted(after, workload)
        if other is None:
            return False
        moved = record(after, other, arithmetic, None, reference, budget)
        return not compare(reference.outcomes, moved.outcomes).within(budget)


def _runs(module: Module, passes: Sequence[Pass], number: int, calls: _Calls) -> bool:
    """True if a module runs over its own workload as given and after ``number`` passes."""
    before = clone_module(module)
    try:
        workload = calls.of(module, passes)
        Runner(module, workload, arithmetic=MEANING).outcomes()
        with _quiet():
            run_pipeline(before, passes[:number])
        Runner(before, workload, arithmetic=MEANING).outcomes()
    except MemoryError:
        raise
    except Exception:
        return False
    return True


def same_exception(module: Module, passes: Sequence[Pass]) -> tuple[Fails, Failure | None]:
    """Predicate of modules for which the pipeline raises the same exception.

    Where ``module`` runs over its own workload, so do the smaller ones.

    Returns:
        The check, and how ``module`` fails; ``None`` where it does not.
    """
    wanted = _failure(module, passes)
    runs = wanted is not None and _runs(module, passes, 0, _Calls())

    def fails(other: Module) -> bool:
        found = _failure(other, passes)
        alike = wanted is not None and found is not None and found.like(wanted)
        return alike and (not runs or _runs(other, passes, 0, _Calls()))

    return fails, wanted


def _failure(module: Module, passes: Sequence[Pass]) -> Failure | None:
    try:
        with _quiet():
            run_pipeline(clone_module(module), passes)
    except Exception as error:
        return failure_of(error)
    return None


def after_passes(passes: Sequence[Pass], fails: Fails) -> Fails:
    """Predicate of modules that fail after the pipeline; false where the pipeline raises."""

    def check(module: Module) -> bool:
        copy = clone_module(module)
        try:
            with _quiet():
                run_pipeline(copy, passes)
        except GraphgenError:
            return False
        return fails(copy)

    return check
