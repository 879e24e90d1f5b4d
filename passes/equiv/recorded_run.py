"""Run a workload, record its choices, and compare them with a reference run.

Outputs that are choices themselves, such as token ids, follow from scores: those of the reference
say which other choice is right as well, and by how much the scores would have to move.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import Arithmetic, Array, Columns, Observer, ObserverChain
from graphgen.exec.backend import Backend, NumpyBackend
from graphgen.exec.session import Outcome, ProgramCall, Runner, Workload
from graphgen.ir import Module, Op
from graphgen.passes.core.pass_ import Pass
from graphgen.passes.core.relation import ChosenOutput
from graphgen.passes.equiv.choice_replay import ChoiceCounts, DecisionLog, ReplayObserver
from graphgen.passes.programs.token_rule import TOKENS, token_rule


@dataclass(frozen=True, slots=True)
class ScoreRecord:
    """Scores of the reference that an output of choices is compared by.

    Attributes:
        rule: how the output follows from them.
        scores: of each call, the rows that matter.
        slack: how far, relative to the largest one, the scores of later modules may have moved.
        moved: whether the module compared may have other scores; False where it makes the choice
            from the very scores recorded here.
    """

    rule: ChosenOutput
    scores: tuple[Array, ...]
    slack: float = 0.0
    moved: bool = True


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One module's run of a workload.

    Attributes:
        outcomes: after each call; of outputs that are choices, those of the reference where that is
            within the margin.
        log: the choices.
        counts: what became of them, compared with the reference.
        records: by output of choices, the scores to compare it by.
    """

    outcomes: list[Outcome]
    log: DecisionLog = field(default_factory=DecisionLog)
    counts: ChoiceCounts = field(default_factory=ChoiceCounts)
    records: Mapping[str, ScoreRecord] = field(default_factory=dict[str, ScoreRecord])


class _Watch(ReplayObserver):
    """Replays choices, and keeps what comes nearest to the scores of the call in progress."""

    def __init__(self, reference: DecisionLog | None, bound: float) -> None:
        super().__init__(reference, bound)
        self.wanted: Array | None = None
        self.active: Sequence[int] | None = None
        self.nearest: tuple[float, Array] | None = None

    def made(self, op: Op, ranks: Sequence[int], given: Columns, results: Columns) -> Columns:
        """See :class:`~graphgen.eval.Observer`."""
        results = super().made(op, ranks, given, results)
        if self.wanted is not None:
            for column in results:
                self._look(column, self.wanted)
        return results

    def _look(self, column: Sequence[Array], wanted: Array) -> None:
        whole = _joined(column, wanted.shape[-1])
        # Ranks may have some of the rows only.
        if whole is None or len(whole) <= max(self.active or (0,), default=0):
            return
        rows = whole if self.active is None else whole[list(self.active)]
        if rows.shape != wanted.shape:
            return
        with np.errstate(invalid="ignore"):
            far = np.where(rows == wanted, 0.0, np.abs(rows.astype(np.float64) - wanted))
        distance = float(np.nan_to_num(far, nan=np.inf).max(initial=0.0))
        if self.nearest is None or distance < self.nearest[0]:
            self.nearest = distance, rows


def _joined(column: Sequence[Array], size: int) -> Array | None:
    """Scores [B, size] from those of the ranks, whole or in parts; ``None`` for any other value."""
    first = column[0]
    if first.ndim != 2 or first.dtype.kind in "iub" or first.shape[1] * len(column) < size:
        return None
    if first.shape[1] >= size:
        return first[:, :size]
    return np.concatenate(list(column), axis=1)[:, :size]


def record(
    module: Module,
    workload: Workload,
    arithmetic: Arithmetic,
    run: Backend | None = None,
    reference: RecordedRun | None = None,
    bound: float = 0.0,
    observer: Observer | None = None,
    *,
    last_states: bool = False,
) -> RecordedRun:
    """Run a workload, and replay the choices of a reference where they are within the margin.

    Args:
        module: what to run.
        workload: the calls.
        arithmetic: element types of floats.
        run: the backend. Choices inside of programs are seen in NumPy only; those that are outputs
            are compared on any.
        reference: a run of the module that this one is compared with.
        bound: the largest difference, relative to the largest value, of right scores.
        observer: sees what is run, where that is NumPy, after choices are replayed.
        last_states: whether states are compared after the last call only, which takes less time
            and memory; each call reads what the one before left.
    """
    watch = _Watch(reference.log if reference is not None else None, bound)
    given = _Watched(watch, reference, bound, observer)
    outcomes = list(given.outcomes(module, workload, arithmetic, run, last_states=last_states))
    found = RecordedRun(outcomes, watch.log, watch.counts)
    return replace(found, records=_next_records(module, workload, found, given.records, bound))


def outcomes_beside(
    reference: RecordedRun,
    module: Module,
    workload: Workload,
    arithmetic: Arithmetic,
    run: Backend | None = None,
    bound: float = 0.0,
) -> Iterator[Outcome]:
    """The outcomes that :func:`record` has, each when its call has run, so that one may stop early.

    Args:
        reference: a run of the module that this one is compared with.
        module, workload, arithmetic, run, bound: as for :func:`record`.
    """
    given = _Watched(_Watch(reference.log, bound), reference, bound)
    return given.outcomes(module, workload, arithmetic, run)


@dataclass(frozen=True, slots=True)
class _Watched:
    """A run whose choices are compared with those of a reference.

    Attributes:
        watch: sees its ops.
        reference, bound, observer: as for :func:`record`.
    """

    watch: _Watch
    reference: RecordedRun | None
    bound: float
    observer: Observer | None = None

    @property
    def records(self) -> Mapping[str, ScoreRecord]:
        """The scores of the reference, by output."""
        records = self.reference.records if self.reference is not None else None
        return records or dict[str, ScoreRecord]()

    def outcomes(
        self,
        module: Module,
        workload: Workload,
        arithmetic: Arithmetic,
        run: Backend | None,
        *,
        last_states: bool = False,
    ) -> Iterator[Outcome]:
        """Outputs and states after each call."""
        watch, reference, records = self.watch, self.reference, self.records
        if run is None or isinstance(run, NumpyBackend):
            chain = watch if self.observer is None else ObserverChain(watch, self.observer)
            run = NumpyBackend(arithmetic, chain)
        calls = Runner(module, workload, run, arithmetic, last_states=last_states).calls()
        for number, call in enumerate(workload.calls):
            watch.call, watch.active, watch.nearest = number, call.active, None
            watch.wanted = _with_ties(records, number)
            outcome = next(calls).outcome
            if reference is not None:
                for name, kept in records.items():
                    if name in outcome and name in reference.outcomes[number]:
                        settle = _Settling(kept, number, call, watch.nearest, self.bound)
                        before = reference.outcomes[number][name]
                        outcome[name] = settle.settled(before, outcome[name], watch.counts)
            yield outcome


def _with_ties(records: Mapping[str, ScoreRecord], call: int) -> Array | None:
    """The recorded scores of a call, if some in a row are equal: then the order of ids counts."""
    for kept in records.values():
        scores = kept.scores[call]
        ordered = np.sort(scores, axis=-1)
        if (ordered[:, 1:] == ordered[:, :-1]).any():
            return scores
    return None


@dataclass(frozen=True, slots=True)
class _Settling:
    """Comparison of one output of choices in one call."""

    kept: ScoreRecord
    number: int
    call: ProgramCall
    nearest: tuple[float, Array] | None
    bound: float

    def settled(self, reference: Array, own: Array, counts: ChoiceCounts) -> Array:
        """``own`` with the reference's choices where they are within the margin."""
        counts.compared += own.size
        if reference.shape != own.shape or not (flipped := reference != own).any():
            return own
        admitted = flipped & self._admitted(reference, own)
        counts.replayed += int(admitted.sum())
        counts.wrong += int((flipped & ~admitted).sum())
        return np.where(admitted, reference, own)

    def _admitted(self, reference: Array, own: Array) -> Array:
        kept, scores = self.kept, self.kept.scores[self.number]
        inputs = inputs_of_rows(self.call)
        allowed = self.bound + kept.slack
        scale = np.abs(scores[np.isfinite(scores)]).max(initial=0.0)
        reach = float(allowed * scale) if kept.moved else 0.0
        admitted = kept.rule.admits(scores, inputs, own, reach, allowed)
        if self.nearest is None or self.nearest[0] > reach:
            return admitted
        tied = _equal(scores, reference, own) & _equal(self.nearest[1], reference, own)
        return admitted & (~tied | kept.rule.admits(scores, inputs, own, 0.0, allowed))


def _equal(scores: Array, one: Array, other: Array) -> Array:
    """Pred [B]: whether of each row the scores of two candidates are equal, bit for bit."""
    last = scores.shape[-1] - 1
    a, b = (np.take_along_axis(scores, np.clip(at, 0, last)[:, None], 1) for at in (one, other))
    return (a == b)[:, 0] & (np.signbit(a) == np.signbit(b))[:, 0]


def inputs_of_rows(call: ProgramCall) -> dict[str, Array]:
    """Inputs of a call, of the rows whose outputs matter."""
    if call.active is None:
        return dict(call.inputs)
    rows = list(call.active)
    return {
        name: array[rows] if array.ndim and array.shape[0] > max(rows, default=-1) else array
        for name, array in call.inputs.items()
    }


def _next_records(
    module: Module,
    workload: Workload,
    run: RecordedRun,
    records: Mapping[str, ScoreRecord],
    bound: float,
) -> dict[str, ScoreRecord]:
    """The scores that a later run is compared by: the run's own if it gives them."""
    found = {
        name: replace(kept, slack=kept.slack + bound, moved=True) for name, kept in records.items()
    }
    rule = token_rule(module)
    if rule is None:
        return found
    if all(rule.scores in outcome for outcome in run.outcomes):
        scores = tuple(outcome[rule.scores] for outcome in run.outcomes)
        found[TOKENS] = ScoreRecord(rule, scores)
    elif TOKENS not in found:
        own = _own_scores(rule, workload, run)
        if own is not None:
            found[TOKENS] = ScoreRecord(rule, own)
    return found


# Sums of rounded probabilities are off by less.
_SUMS = 1e-5


def _own_scores(
    rule: ChosenOutput, workload: Workload, run: RecordedRun
) -> tuple[Array, ...] | None:
    """Scores among those that ops of the run chose from, if they imply the tokens it gave.

    A call that gives no tokens has no rows.
    """
    found: list[Array] = []
    for number, call in enumerate(workload.calls):
        inputs, tokens = inputs_of_rows(call), run.outcomes[number].get(TOKENS)
        if tokens is None:
            # Such as several decode steps in one launch: nothing is compared by scores.
            found.append(np.zeros((0, 1)))
            continue
        rows = slice(None) if call.active is None else list(call.active)
        for choice in reversed(run.log.of_call(number)):
            scores = choice.scores[0]
            whole = choice.ids is None and len(choice.scores) == 1 and scores.ndim == 2
            # A rank that has some of the rows chooses for these.
            whole = whole and call.dims.get("B", len(scores)) == len(scores)
            if not whole or len(scores[rows]) != len(tokens):
                continue
            if rule.admits(scores[rows], inputs, tokens, 0.0, _SUMS).all():
                found.append(scores[rows])
                break
    return tuple(found) if len(found) == len(workload.calls) else None


def with_derived(run: RecordedRun, item: Pass, workload: Workload) -> RecordedRun:
    """The run as the reference of a pass that adds outputs of choices, which follow from others.

    Outputs that the pass says it drops are left out.
    """
    changes = item.output_changes()
    if changes is None:
        return run
    outcomes = [dict(outcome) for outcome in run.outcomes]
    records = dict(run.records)
    for name, rule in changes.added.items():
        scores = tuple(outcome[rule.scores] for outcome in run.outcomes)
        records[name] = ScoreRecord(rule, scores, moved=False)
        for outcome, call, rows in zip(outcomes, workload.calls, scores, strict=True):
            outcome[name] = rule.chosen(rows, inputs_of_rows(call))
    for outcome in outcomes:
        for name in changes.dropped:
            outcome.pop(name, None)
    return replace(run, outcomes=outcomes, records=records)


def check_outputs(reference: Sequence[Outcome], other: Sequence[Outcome], item: Pass) -> None:
    """Require the same outputs on both sides.

    Raises:
        GraphgenError: GG0305 when the pass adds or drops one and does not declare it.
    """
    for before, after in zip(reference, other, strict=True):
        if before.keys() == after.keys():
            continue
        name = min(before.keys() ^ after.keys())
        what = "drops" if name in before else "adds"
        raise GraphgenError(
            "GG0305",
            f"{item.name} {what} the output {name} and does not declare it",
            help="declare it in the method output_changes of the pass: how it follows from others",
        )


def common_outcomes(
    left: Module, right: Module, call: ProgramCall, a: Outcome, b: Outcome, bound: float
) -> tuple[Outcome, Outcome]:
    """Outputs and states that both modules have after a call.

    Where one chooses its tokens and the other gives the scores, those tokens that the scores imply
    are the other's; a choice within the margin is taken for the first one's.

    Args:
        left, right: the modules.
        call: the call.
        a, b: their outcomes.
        bound: the largest change of a score, relative to the largest one.
    """
    rule = token_rule(left) or token_rule(right)
    if rule is None:
        return a, b
    scores = a.get(rule.scores, b.get(rule.scores))
    a, b = dict(a), dict(b)
    for one, other in ((a, b), (b, a)):
        if TOKENS in other and TOKENS not in one and rule.scores in one:
            one[TOKENS] = rule.chosen(one[rule.scores], inputs_of_rows(call))
    if scores is not None and TOKENS in a and TOKENS in b:
        settle = _Settling(ScoreRecord(rule, (scores,)), 0, call, None, bound)
        b[TOKENS] = settle.settled(a[TOKENS], b[TOKENS], ChoiceCounts())
    both = a.keys() & b.keys()
    return {n: x for n, x in a.items() if n in both}, {n: x for n, x in b.items() if n in both}
