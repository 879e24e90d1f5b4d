"""Verdicts: the results of validating single passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.passes.core.journal import Rewrite
from graphgen.passes.equiv.choice_replay import ChoiceCounts
from graphgen.passes.equiv.deviation import MEANING_BUDGET, NONE, Deviation
from graphgen.passes.proof.pass_proof import PassProof, Status
from graphgen.passes.proof.prove_bounds import IndexProof
from graphgen.passes.proof.refinement_result import RefinementProof
from graphgen.passes.validate.narrow_rounding import DeclaredBudget
from graphgen.passes.validate.reproducer import Failure
from graphgen.passes.validate.rewrite_verdict import Counterexample, RewriteStatus, RewriteSummary
from graphgen.passes.workload.coverage import Coverage


@dataclass(frozen=True, slots=True)
class LayerResult:
    """Comparison of one layer, or of several that cannot be cut apart.

    Attributes:
        label: the scope of the layer, ``embedding`` or ``head``, or the first and the last of
            several.
        meaning: the worst difference in float64.
        rounding: the worst difference in the program's own types.
        ok: True if both are within their limits.
        budget: the largest ``rounding`` allowed: more where the layer rounds to narrow numbers.
        first: of a layer that is not ``ok``, the first output and call over the limit.
        guilty: the rewrite that makes the difference, where one can be named.
        together: where that is right alone, the smallest set of rewrites that is wrong.
        same_as: label of the layer that was run in its place, whose text is the same before and
            after the pass; empty if it was run itself.
    """

    label: str
    meaning: Deviation
    rounding: Deviation
    ok: bool
    budget: float
    first: Deviation | None = None
    guilty: Rewrite | None = None
    together: tuple[Rewrite, ...] = ()
    same_as: str = ""

    @property
    def within_budget(self) -> bool:
        """True if the rounding stayed within the budget."""
        return self.rounding.within(self.budget)


@dataclass(frozen=True, slots=True)
class LayerResults:
    """The layers of one pass.

    Attributes:
        changed: those that the pass changed, in order.
        unchanged: labels of those whose text it left as it was, which are not run.
    """

    changed: tuple[LayerResult, ...] = ()
    unchanged: tuple[str, ...] = ()

    @property
    def run(self) -> list[str]:
        """Labels of the layers that were run."""
        return [result.label for result in self.changed if not result.same_as]

    @property
    def wrong(self) -> list[LayerResult]:
        """Results of layers that differ too much."""
        return [result for result in self.changed if not result.ok]


# State of a pass of which a rewrite has a counterexample that no call was found to reach.
SEARCHED = RewriteStatus.SEARCHED.value
# State of a pass whose rounding budget exceeds what the element types explain.
NOT_EXPLAINED = "budget not explained"
# State of a pass of which a rewrite could not be judged.
UNKNOWN = "unknown"
# State of a right pass where more would have been tried by default.
TRIED = "ok of what was tried"


@dataclass(frozen=True, slots=True)
class RaisedError:
    """Exception that ended the validation at a pass.

    Attributes:
        failure: type, code and message.
        during: the work that raised it: the pass, or a run of the module that the pass left.
        where: the place in the module or file; empty where the error names none.
        note: more lines, such as the rules that undo each other.
        help: the next step, with the command that replays the pass; may have several lines.
    """

    failure: Failure
    during: str
    where: str = ""
    note: str = ""
    help: str = ""


@dataclass(frozen=True, slots=True)
class RunDifference:
    """First difference of the modules that two runs of a pass made of one module.

    Attributes:
        first: a line of the text of the module after the first run; empty past its end.
        second: the same line after the second run, or the error that this run ended with.
        line: its number, from 1.
    """

    first: str
    second: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of validating one pass.

    Attributes:
        pass_text: the pass with its options.
        meaning: the worst difference in float64.
        rounding: the worst difference in the program's own types.
        budget: largest relative rounding difference allowed: what the pass declares, and the noise
            of the evaluator.
        guilty: the rewrite after which the meaning differs, where one can be named; where the
            meaning is kept, the one that takes the rounding over the budget.
        together: where the guilty rewrite is right alone, the smallest set of rewrites that is
            wrong, in order; else empty.
        recovered: the number of rewrites after which a module that was wrong before is right again;
            0 if none was found.
        first: of a failed check, the first call and output that exceed the limit.
        raised: the exception that ended the validation here; passes after it have not run.
        varies: the first difference between two runs of the pass on one module; ``None`` where
            they agree.
        silent: True if the pass changed the module and recorded no rewrite.
        choices: numbers of choices (top_k, sort, tokens) compared in float64, by outcome.
        rounded_choices: the same in the program's own types.
        proof: the programs that are proved equal for all sizes; ``None`` where proofs are off.
        examples: by program that a proof refutes, arguments on which NumPy computes something else.
        indices: by program, the proofs that indices are within bounds, for the module after the
            last pass; ``None`` after other passes and where proofs are off.
        pipeline: the proof that the last module refines the first; ``None`` after other passes,
            after one that failed, and where proofs are off.
        rewrites: results of checking each rewrite alone; ``None`` where that was not done.
        coverage: what the workload reached of the module after the pass; ``None`` where that raised
            an exception.
        uncovered: functions and programs that the pass made or changed and no call reached.
        layers: the layers, where they were compared one by one.
        approximation: what the pass says that it changes in what the model means; else empty.
        declared: the rounding budget of the pass; ``None`` where it was not looked at.
        partial: whether more would have been tried by default.
        finite_math_only: whether rewrites alone were checked for finite floats only.
    """

    pass_text: str
    meaning: Deviation = NONE
    rounding: Deviation = NONE
    budget: float = 0.0
    guilty: Rewrite | None = None
    together: tuple[Rewrite, ...] = ()
    recovered: int = 0
    first: Deviation | None = None
    raised: RaisedError | None = None
    varies: RunDifference | None = None
    silent: bool = False
    choices: ChoiceCounts = field(default_factory=ChoiceCounts)
    rounded_choices: ChoiceCounts = field(default_factory=ChoiceCounts)
    proof: PassProof | None = None
    examples: Mapping[str, Counterexample] = field(default_factory=dict[str, Counterexample])
    indices: Mapping[str, Sequence[IndexProof]] | None = None
    pipeline: RefinementProof | None = None
    rewrites: RewriteSummary | None = None
    coverage: Coverage | None = None
    uncovered: tuple[str, ...] = ()
    layers: LayerResults | None = None
    approximation: str = ""
    declared: DeclaredBudget | None = None
    partial: bool = False
    finite_math_only: bool = False

    @property
    def means_the_same(self) -> bool:
        """True if the pass kept the meaning."""
        return self.meaning.within(MEANING_BUDGET)

    @property
    def within_budget(self) -> bool:
        """True if the rounding stayed within the budget, in each layer within that of the layer."""
        if self.layers is not None:
            return all(layer.within_budget for layer in self.layers.changed)
        return self.rounding.within(self.budget)

    @property
    def rewrites_right(self) -> bool:
        """True if no rewrite was found wrong when it was checked alone.

        One of ops that the pass approximates is not: see ``Pass.approximates``.
        """
        return self.rewrites is None or self.rewrites.wrong is None

    @property
    def budget_explained(self) -> bool:
        """True if the element types explain the budget, or the pass is one of graphgen."""
        own = self.declared is None or not self.declared.plugin
        return own or (self.declared is not None and self.declared.is_explained)

    @property
    def refuted(self) -> bool:
        """True if a proof found arguments for which a program computes something else."""
        return self.proof is not None and bool(self.proof.having(Status.REFUTED))

    @property
    def refuted_wrongly(self) -> bool:
        """True if a proof found such arguments, and NumPy computes the same for them."""
        return self.proof is not None and bool(self.proof.having(Status.NOT_CONFIRMED))

    def disputes(self, programs: Iterable[str]) -> dict[str, str]:
        """By program, the counterexample that was found, which a proof cannot stand beside.

        Args:
            programs: of the module after the pass. A function that is not one of them, such as
                one that prepares weights, may be a part of each.
        """
        every, found = list(programs), dict[str, str]()

        def enter(function: str, why: str) -> None:
            for name in [function] if function in every else every:
                found.setdefault(name, why)

        where = self.guilty.function if self.guilty is not None else ""
        if not self.means_the_same:
            enter(where, "the numbers of the calls differ")
        elif not self.within_budget:
            enter(where, "equal without rounding; the rounding goes over the budget")
        for check in self.rewrites.remarkable if self.rewrites is not None else ():
            example = check.counterexample
            if example is not None and check.status in (
                RewriteStatus.WRONG,
                RewriteStatus.SEARCHED,
            ):
                what = "equal without rounding; " if example.rounding else ""
                number = check.rewrite.number
                enter(check.rewrite.function, f"{what}rewrite #{number} has a counterexample")
        return found

    @property
    def at_fault(self) -> frozenset[int]:
        """Numbers of the rewrites that the verdict blames, or found wrong alone."""
        alone = self.rewrites.having(RewriteStatus.WRONG) if self.rewrites is not None else []
        blamed = [*self.together, *([self.guilty] if self.guilty is not None else [])]
        return frozenset(one.number for one in (*blamed, *[check.rewrite for check in alone]))

    @property
    def searched(self) -> Rewrite | None:
        """The first rewrite with a counterexample that no call was found to reach."""
        found = self.rewrites.having(RewriteStatus.SEARCHED) if self.rewrites else []
        return found[0].rewrite if found else None

    @property
    def repeatable(self) -> bool:
        """True if two runs of the pass on one module agreed."""
        return self.varies is None

    @property
    def passed(self) -> bool:
        """True if every check holds for all that was run."""
        kept = self.means_the_same and self.within_budget and not self.refuted
        return (
            (kept or bool(self.approximation))
            and self.rewrites_right
            and not self.refuted_wrongly
            and self.raised is None
            and self.repeatable
            and not self.silent
        )

    @property
    def complete(self) -> bool:
        """True if every program, branch and loop body of the module was run."""
        return self.coverage is not None and self.coverage.complete

    @property
    def undecided(self) -> Rewrite | None:
        """The first rewrite of which it is not known whether it is right."""
        found = self.rewrites.having(RewriteStatus.UNDECIDED) if self.rewrites else []
        return found[0].rewrite if found else None

    @property
    def left_open(self) -> frozenset[str]:
        """Open questions of the verdict, as ``--allow`` names them; empty for ``ok``."""
        found = {
            "unknown": self.undecided is not None,
            "searched": self.searched is not None,
            "not-covered": bool(self.uncovered) or self.partial,
            "budget": not self.budget_explained,
        }
        return frozenset(name for name, is_open in found.items() if is_open)

    @property
    def ok(self) -> bool:
        """True if every check holds, and nothing is left open."""
        return self.passed and not self.left_open

    @property
    def state(self) -> str:
        """The most serious fault in a few words, or ``ok``.

        Open questions come after the faults: a rewrite that is ``unknown``, or has a
        counterexample that no call was found to reach, and what was not covered.
        """
        faults = (
            (self.raised is not None, "raised"),
            (bool(self.approximation) and self.passed, "approximate"),
            (not self.means_the_same, "WRONG"),
            (not self.within_budget, "over budget"),
            (not self.rewrites_right, "WRONG rewrite"),
            (self.refuted, "refuted"),
            (self.refuted_wrongly, "prover error"),
            (not self.repeatable, "not repeatable"),
            (self.silent, "silent"),
            (self.undecided is not None, UNKNOWN),
            (bool(self.uncovered), "not covered"),
            (not self.budget_explained, NOT_EXPLAINED),
            (self.searched is not None, SEARCHED),
        )
        return next((name for found, name in faults if found), TRIED if self.partial else "ok")


def coverage_stages(verdicts: Iterable[Verdict]) -> list[tuple[str, Coverage]]:
    """The passes whose coverage was recorded, each with the coverage of the module after it."""
    return [(v.pass_text, v.coverage) for v in verdicts if v.coverage is not None]
