"""Bisection of a pipeline: the first wrong pass, then its first wrong rewrite.

By numbers, the checks are those of :func:`graphgen.passes.validate.validate`, pass by pass, so that
both call the same wrong. With an oracle, such as the exit status of a command, the passes are
bisected; a temporary fault that a later pass repairs is not reported then. A pass that raises an
exception is a finding of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, NATIVE
from graphgen.exec.backend import Backend, NumpyBackend
from graphgen.exec.session import Workload
from graphgen.ir import Module
from graphgen.ir.clone import clone_module
from graphgen.passes.core import Pass, run_pipeline
from graphgen.passes.core.journal import Rewrite
from graphgen.passes.core.order import check_order
from graphgen.passes.equiv.deviation import RoundingNoise, compare
from graphgen.passes.equiv.equiv import equivalent
from graphgen.passes.equiv.find_divergence import Divergence
from graphgen.passes.equiv.recorded_run import check_outputs, record, with_derived
from graphgen.passes.validate.blame import Oracle, apply_pass, blame, by_outcomes, last_turn
from graphgen.passes.validate.checked_run import raised_error, run_checked
from graphgen.passes.validate.narrow_rounding import rounding_budget, unit_of_modules
from graphgen.passes.validate.validate import PassChecks, first_fault
from graphgen.passes.validate.verdict import RaisedError, RunDifference, Verdict


@dataclass(frozen=True, slots=True)
class RaisingPass:
    """A pass at which the pipeline cannot go on.

    Attributes:
        number: its place in the pipeline, from 0.
        item: the pass.
        error: its exception, or that of a run of the module it leaves.
    """

    number: int
    item: Pass
    error: RaisedError


@dataclass(frozen=True, slots=True)
class Culprit:
    """The pass and rewrite that make a module wrong.

    Attributes:
        number: place of the pass in the pipeline, from 0.
        item: the pass.
        fuel: how many of its applications it takes to be wrong; 0 where the pass as a whole is to
            blame: it does not stop half-way, or records no rewrite.
        application: the last of these; ``None`` for the pass as a whole.
        before: the module the pass was given.
        good: the module with one application less; as given where the pass is to blame.
        bad: the module with the guilty application, the first that is wrong.
        first: where modules are run, the op of ``bad`` that parts from ``good`` while what it reads
            agrees;
            ``None`` where none can be named.
        together: where the guilty rewrite is right alone, the smallest set that is wrong.
        recovered: the number of rewrites after which a module that was wrong is right again; 0 if
            none was found.
        recovered_pass: the same in passes.
        silent: True if the pass records no rewrite.
        varies: the first difference of two runs of the pass; ``None`` where they agree.
        raising: the pass at which the pipeline could not go on; the culprit itself where the module
            is right up to there.
        verdict: of the pass, where the checks of a validation found it.
    """

    number: int
    item: Pass
    fuel: int
    application: Rewrite | None
    before: Module
    good: Module
    bad: Module
    first: Divergence | None = None
    together: tuple[Rewrite, ...] = ()
    recovered: int = 0
    recovered_pass: int = 0
    silent: bool = False
    varies: RunDifference | None = None
    raising: RaisingPass | None = None
    verdict: Verdict | None = None

    @property
    def wrong(self) -> bool:
        """True for a wrong module; False where the finding is an exception only."""
        return self.raising is None or self.raising.number != self.number


def bisect_verdicts(
    module: Module,
    passes: Sequence[Pass],
    workload: Workload,
    checks: PassChecks | None = None,
) -> Culprit | None:
    """The first pass that does not pass the checks of a validation, and in it the rewrite.

    Args:
        module: where to start; unchanged.
        passes: the pipeline.
        workload: what to compare over.
        checks: those of the validation, and callbacks.

    Returns:
        ``None`` when every pass passes.

    Raises:
        GraphgenError: GG0303 for passes in a wrong order; what a run of ``module`` itself raises.
    """
    fault = first_fault(module, passes, workload, checks)
    if fault is None:
        return None
    number, item, verdict, before = fault.number, fault.item, fault.verdict, fault.before
    if verdict.raised is not None:
        raising = RaisingPass(number, item, verdict.raised)
        return Culprit(number, item, 0, None, before, before, before, raising=raising)
    # A pass after it may raise besides.
    raising = _PipelineRun(module, passes, _ignored).raising
    whole = Culprit(number, item, 0, None, before, before, fault.after, raising=raising)
    whole = replace(whole, silent=verdict.silent, varies=verdict.varies, verdict=verdict)
    if verdict.guilty is None:
        return replace(whole, first=_first_op(whole))
    fuel = verdict.guilty.number
    good, bad = (_with_rewrites(before, item, count) for count in (fuel - 1, fuel))
    found = replace(
        whole,
        fuel=fuel,
        application=verdict.guilty,
        good=good or before,
        bad=bad or fault.after,
        together=verdict.together,
        recovered=verdict.recovered,
    )
    return replace(found, first=_first_op(found))


def _with_rewrites(before: Module, item: Pass, count: int) -> Module | None:
    """The module after the first rewrites of a pass; ``None`` where it does not stop there."""
    module = clone_module(before)
    try:
        rewriter = apply_pass(module, item, fuel=count)
    except MemoryError:
        raise
    except Exception:
        return None
    return module if rewriter.applications == count else None


def bisect(
    module: Module,
    passes: Sequence[Pass],
    wrong: Oracle,
    *,
    on_step: Callable[[str], None] | None = None,
) -> Culprit | None:
    """The pass of a pipeline, and in it the application, that makes a module wrong.

    Args:
        module: where to start; unchanged.
        passes: the pipeline.
        wrong: the oracle; no module is run besides.
        on_step: called before each step with its description, for progress.

    Returns:
        ``None`` when the module is fine at the end and no pass raises.

    Raises:
        GraphgenError: GG0304 when the module is wrong before any pass; GG0303 for passes in a wrong
            order.
    """
    if wrong(clone_module(module)):
        raise GraphgenError(
            "GG0304",
            "the module is wrong before any pass has run",
            help="the check has to hold for the module as it is given",
        )
    run = _PipelineRun(module, passes, on_step or _ignored)
    if not run.wrong_at_end(wrong):
        return run.raised_only()
    number, recovered = last_turn(len(run.states) - 1, lambda count: run.judged(count, wrong))
    found = run.culprit(number - 1, wrong)
    return replace(found, recovered_pass=recovered)


def bisect_rounding(
    module: Module,
    passes: Sequence[Pass],
    workload: Workload,
    evaluator: Backend | None = None,
    on_step: Callable[[str], None] | None = None,
) -> Culprit | None:
    """The first pass, and in it the application, that exceeds the pass's rounding budget.

    Args:
        module: where to start; unchanged.
        passes: the pipeline.
        workload: what to compare over, in the program's own types.
        evaluator: computes them; NumPy, where each op is rounded by itself, if none is given.
        on_step: called before each step with its description, for progress.

    Returns:
        ``None`` when every pass keeps its budget and none raises.

    Raises:
        GraphgenError: GG0303 for passes in a wrong order; what a run of ``module`` itself raises.
    """
    backend = evaluator or NumpyBackend(NATIVE)
    run = _PipelineRun(module, passes, on_step or _ignored)
    noise = backend.noise(module)
    before = record(module, workload, NATIVE, backend)
    for number, (item, state) in enumerate(zip(passes, run.states[1:], strict=False)):
        run.step(number + 1)
        noise = max(noise, backend.noise(state))
        budget = rounding_budget(item, run.states[number]) + noise
        try:
            before = with_derived(before, item, workload)
            after = record(state, workload, NATIVE, backend, before, budget)
            check_outputs(before.outcomes, after.outcomes, item)
        except MemoryError:
            raise
        except Exception as error:
            run.cut(number, error)
            break
        if not compare(before.outcomes, after.outcomes).within(budget):
            own = _rounding_noise(run.states[number], state, workload)
            if not compare(before.outcomes, after.outcomes, own).within(budget):
                wrong = by_outcomes(before, workload, NATIVE, budget, backend, own)
                return run.culprit(number, wrong)
        before = after
    return run.raised_only()


def _rounding_noise(before: Module, after: Module, workload: Workload) -> RoundingNoise:
    """The rounding of both modules, with what the first one is in float64."""
    exact = record(before, workload, MEANING).outcomes
    return RoundingNoise(unit_of_modules(before, after), exact)


def _ignored(step: str) -> None:
    """Report no progress."""


@dataclass(slots=True)
class _PipelineRun:
    """One run of a pipeline: the module before each pass, and at the end.

    Attributes:
        module, passes: as given.
        begin: called with the description of each step.
        states: the modules.
        raising: the pass at which the pipeline could not go on.
    """

    module: Module
    passes: Sequence[Pass]
    begin: Callable[[str], None]
    states: list[Module] = field(default_factory=list[Module])
    raising: RaisingPass | None = None

    def __post_init__(self) -> None:
        check_order(self.passes, self.module)
        made = clone_module(self.module)
        self.states.append(clone_module(made))
        try:
            run_pipeline(
                made, self.passes, after=lambda item, after: self.states.append(clone_module(after))
            )
        except MemoryError:
            raise
        except Exception as error:
            number = len(self.states) - 1
            raised = raised_error(error, "the pass")
            self.raising = RaisingPass(number, self.passes[number], raised)

    def step(self, count: int) -> None:
        """Begin to judge the module after ``count`` passes."""
        self.begin(f"the module after {count} of {len(self.passes)} passes")

    def wrong_at_end(self, wrong: Oracle) -> bool:
        """The verdict of the last module that can be judged; later modules are dropped."""
        while len(self.states) > 1:
            self.step(len(self.states) - 1)
            try:
                return wrong(clone_module(self.states[-1]))
            except MemoryError:
                raise
            except Exception as error:
                self.cut(len(self.states) - 2, error)
        return False

    def judged(self, count: int, wrong: Oracle) -> bool:
        """The verdict after ``count`` passes; a module that cannot be judged counts as wrong."""
        self.step(count)
        try:
            return wrong(clone_module(self.states[count]))
        except MemoryError:
            raise
        except Exception:
            return True

    def cut(self, number: int, error: Exception) -> None:
        """Drop the modules from after the pass at ``number`` on: that one cannot be run."""
        del self.states[number + 1 :]
        found = raised_error(error, "a run of the module that the pass left")
        self.raising = RaisingPass(number, self.passes[number], found)

    def raised_only(self) -> Culprit | None:
        """The finding where no module is wrong: the pass that raised, if one did."""
        if self.raising is None:
            return None
        number, before = self.raising.number, self.states[self.raising.number]
        return Culprit(
            number, self.raising.item, 0, None, before, before, before, raising=self.raising
        )

    def culprit(self, number: int, wrong: Oracle) -> Culprit:
        """The finding within the pass at ``number``."""
        before, after, item = self.states[number], self.states[number + 1], self.passes[number]
        self.begin(f"rewrites of pass {number + 1} of {len(self.passes)}: {item}")
        found = blame(before, item, wrong)
        whole = Culprit(number, item, 0, None, before, before, after, raising=self.raising)
        try:
            again = run_checked(clone_module(before), item)
            whole = replace(whole, silent=not again.rewrites, varies=again.varies)
        except MemoryError:
            raise
        except Exception as error:
            second = str(raised_error(error, "the pass").failure)
            whole = replace(whole, varies=RunDifference("", second))
        if found is None:
            return whole
        return replace(
            whole,
            fuel=found.guilty.number,
            application=found.guilty,
            good=found.good,
            bad=found.bad,
            together=found.together,
            recovered=found.recovered,
        )


def _first_op(found: Culprit) -> Divergence | None:
    """The divergence of the last right module and the first wrong one."""
    try:
        return equivalent(found.good, found.bad).first
    except MemoryError:
        raise
    except Exception:
        # Modules that cannot be run, or are stopped half-way between two interfaces.
        return None
