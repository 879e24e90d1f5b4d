"""Checks of the rewrites of one pass, each while it is made.

A rewrite is first compared on values drawn by type and use at the boundary of its own ops, with the
ops of values there that are functions of others. Where the sides differ, the window is closed over
all paths between these values, and grows by the producers of the boundary. A difference on values
that arguments of a program may have is wrong. Ranges of the operands, or a proof of a wider window,
may exclude the difference: the rewrite is right in its context. Otherwise several hundred calls are
searched for one that reaches it: samples of a wider window that agree exclude nothing.
"""

from __future__ import annotations

import cmath
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from graphgen.eval import MEANING, NATIVE, Arithmetic, Array, evaluate_ranks, rank_index
from graphgen.eval.element_kinds import has_floats
from graphgen.exec.session import Workload
from graphgen.exec.weights import prepare_weights
from graphgen.ir import RANK, Function, Module, Op, Role, TensorType, Value
from graphgen.ir.clone import Cloner, clone_module
from graphgen.ops.control import CONTROL
from graphgen.passes.core import Pass
from graphgen.passes.core.journal import Journal, Rewrite
from graphgen.passes.core.pipeline import run_pass
from graphgen.passes.core.relation import EQUAL
from graphgen.passes.equiv.deviation import MEANING_BUDGET, difference
from graphgen.passes.proof.pass_proof import Status
from graphgen.passes.proof.prove_equal import prove_values
from graphgen.passes.validate.boundary_values import (
    Spread,
    draw_array,
    is_masked,
    redrawn_floats,
    spreads_of,
)
from graphgen.passes.validate.counterexample import counterexample, rebuilt_example
from graphgen.passes.validate.intervals import Interval
from graphgen.passes.validate.legal_calls import LegalArguments, LegalCalls
from graphgen.passes.validate.narrow_rounding import narrow_rounding, rounding_of
from graphgen.passes.validate.rebuilt_functions import (
    FunctionBefore,
    RebuiltFunctions,
    originals_of,
    owners_of,
)
from graphgen.passes.validate.rewrite_verdict import (
    Counterexample,
    RewriteCheck,
    RewriteStatus,
    RewriteSummary,
)
from graphgen.passes.validate.rewrite_window import Pair, WindowCut, filled_by_take
from graphgen.passes.validate.window_check import (
    UNFIT,
    FailedSample,
    WindowEvaluator,
    amplifies,
    differing,
)
from graphgen.passes.validate.window_samples import DrawnSamples, WindowSamples, folded

_EVERYTHING = 1 << 30


@dataclass(frozen=True, slots=True)
class LiftedValue:
    """A value that is a parameter after a rewrite.

    Attributes:
        pair: the value, the parameter, and their relation.
        window: computes the value from arguments of the program.
        names: of these arguments.
        param: the name of the parameter.
        key: equal for the same computation of the same arguments.
    """

    pair: Pair
    window: Function
    names: tuple[str, ...]
    param: str
    key: tuple[object, ...]


def is_lifted(pair: Pair, module: Module) -> bool:
    """True if the value after is a parameter that is prepared from weights."""
    _, new, relation = pair
    row = module.interface.get(new.name or "")
    prepared = row is not None and row.role in (Role.PARAM, Role.SLOTTED)
    return new.op is None and prepared and relation == EQUAL


def cut_lifted(pair: Pair) -> LiftedValue:
    """Cut the value before out of the program as it is now."""
    old, new, _ = pair
    cut = WindowCut(((old, old, EQUAL),), {}, set() if old.op is None else {old.op})
    cut.settle()
    cut.widen(_EVERYTHING)
    names = tuple([value.name or "" for value in cut.boundary])
    return LiftedValue(pair, cut.function({}), names, new.name or "", (new.name, names, cut.key()))


@dataclass(slots=True)
class LiftedValues:
    """Compares lifted values with what is prepared.

    Attributes:
        module: after the pass.
        weights: checkpoint tensors by name.
        budget: of rounding.
        seed: of drawn weights.
    """

    module: Module
    weights: Mapping[str, Array]
    budget: float
    seed: int = 0
    _given: dict[tuple[bool, bool], list[dict[str, Array]]] = field(
        default_factory=dict[tuple[bool, bool], list[dict[str, Array]]]
    )

    def failure(self, lifted: LiftedValue) -> FailedSample | None:
        """The difference of a value and its parameter, or why they cannot be compared."""
        return self._compared(lifted, drawn=False)

    def drawn_failure(self, lifted: LiftedValue) -> FailedSample | None:
        """The same for weights with zeros, ties and numbers far from 1."""
        return self._compared(lifted, drawn=True)

    def _compared(self, lifted: LiftedValue, *, drawn: bool) -> FailedSample | None:
        for arithmetic, budget in ((MEANING, MEANING_BUDGET), (NATIVE, self.budget)):
            try:
                found = self._failure(lifted, arithmetic, budget, drawn=drawn)
            except UNFIT as error:
                return FailedSample((lifted.pair,), lifted.window, {}, (), None, str(error))
            if found is not None:
                return found
        return None

    def _failure(
        self, lifted: LiftedValue, arithmetic: Arithmetic, budget: float, *, drawn: bool
    ) -> FailedSample | None:
        whole = self._arrays(arithmetic, drawn=drawn)
        given = [
            {f"{place}.{name}": one[name] for place, name in enumerate(lifted.names)}
            for one in whole
        ]
        results = evaluate_ranks(lifted.window, given, arithmetic, module=self.module)
        before = np.stack([result["before.0"] for result in results])
        after = np.stack([one[lifted.param] for one in whole])
        gap = difference("", 0, before, after)
        if gap.within(budget):
            return None
        worst = differing(0, before, after, gap, budget, rounding=arithmetic is NATIVE)
        return FailedSample((lifted.pair,), lifted.window, {}, given, worst)

    def _arrays(self, arithmetic: Arithmetic, *, drawn: bool) -> list[dict[str, Array]]:
        """Per rank weights and parameters."""
        key = arithmetic is NATIVE, drawn
        if key not in self._given:
            ranks = self.module.ranks
            weights = redrawn_floats(self.weights, self.seed) if drawn else self.weights
            made = prepare_weights(self.module, weights, ranks, arithmetic)
            self._given[key] = [
                {**weights, **one, RANK: rank_index(rank)} for rank, one in enumerate(made)
            ]
        return self._given[key]


@dataclass(frozen=True, slots=True)
class WrongAlone:
    """A rewrite that is wrong alone, and the function as it was before.

    Attributes:
        number: its place among the checks.
        function: where it is made.
        before: a copy of the function from before the rewrite.
        copies: value -> its copy; one that the rewrite made stands for the one before.
        readers: the ops that read the replaced values; ``None`` where the function returns one.
        made: the ops that make the values after the rewrite.
    """

    number: int
    function: Function
    before: Function
    copies: dict[Value, Value]
    readers: frozenset[Op] | None
    made: frozenset[Op]

    @classmethod
    def of(cls, number: int, item: Rewrite, function: Function) -> WrongAlone:
        """Keep the function while both sides of the rewrite are in it."""
        before = Function(function.name, function.phase, dict(function.dims))
        copies = dict(Cloner(shardings=False).function(function, before))
        anew = [(old, new) for old, new, _ in item.replaced if new.op in item.created]
        copies |= {new: copies[old] for old, new in anew if old in copies}
        olds = [old for old, _, _ in item.replaced]
        returned = any(function.returns(old) for old in olds)
        readers = frozenset(op for old in olds for op in old.users if op not in item.created)
        made = frozenset(new.op for _, new, _ in item.replaced if new.op is not None)
        return cls(number, function, before, copies, None if returned else readers, made)

    def joined_with(self, item: Rewrite) -> WindowCut | None:
        """The window from before this rewrite to after ``item``, both in the whole function.

        Args:
            item: the next rewrite, while both of its sides are in the function.

        Returns:
            ``None`` unless ``item`` replaces this rewrite, or all that read it.
        """
        gone = {one.op for one in item.before}
        pairs = [(self.copies.get(old), new) for old, new, how in item.replaced if how == EQUAL]
        through = self.readers is not None and self.readers <= gone
        replaced = bool(self.made) and self.made <= gone
        if not (through or replaced) or not pairs:
            return None
        # Both sides read the arguments of the function that is rewritten.
        args = {self.copies[arg]: arg for arg in self.function.args}
        reads = {one.op: one.operands for one in item.before if one.op.block is None}
        reads |= {op: tuple([args.get(v, v) for v in op.operands]) for op in self.before.block}
        joined = [(args.get(old, old), new, EQUAL) for old, new in pairs if old is not None]
        if len(joined) < len(pairs):
            return None
        cut = WindowCut(tuple(joined), reads, {*self.before.block, *self.function.block})
        cut.settle()
        return cut


def proof_of(cut: WindowCut) -> RewriteStatus:
    """``PROVED`` or ``REAL`` by the normal form of all elements, else ``EQUAL``: samples only."""
    if any(relation is not EQUAL for _, _, relation in cut.pairs):
        return RewriteStatus.EQUAL
    window = cut.function({})
    outputs = dict(window.outputs)
    pairs = [(outputs[f"before.{n}"], outputs[f"after.{n}"]) for n in range(len(cut.pairs))]
    return _OF_PROOF.get(prove_values(window, pairs), RewriteStatus.EQUAL)


_OF_PROOF = {Status.PROVED: RewriteStatus.PROVED, Status.REAL: RewriteStatus.REAL}
# Calls of a search, and evaluated ops in all of them.
_TRIES, _WORK = 300, 40_000
# Evaluated ops of a loop or a call, taken to be as many.
_LOOP = 100
# How many producers the boundary takes in, one attempt after the other.
_STEPS = (1, 1, 2, 4, 8, 16, 1 << 30)
# Most ops of a window.
_LIMIT = 4000
# Most ops of a window that is widened for a proof alone.
_PROOF_LIMIT = 200


def check_rewrites(
    module: Module,
    item: Pass,
    workload: Workload,
    budget: float | None = None,
) -> RewriteSummary:
    """Run one pass on a copy and check each of its rewrites alone.

    Args:
        module: what the pass is given; unchanged.
        item: the pass.
        workload: has the calls that arguments are taken from.
        budget: largest relative rounding difference; by default what the pass declares.

    Raises:
        GraphgenError: what the pass raises.
    """
    start = time.perf_counter()
    copy = clone_module(module)
    allowed = item.budget if budget is None else budget
    kept = {f.name: FunctionBefore.of(f) for f in copy.functions.values()}
    evaluator = WindowEvaluator(copy, allowed, item.finite_math_only)
    legal = LegalCalls(module, workload)
    checker = RewriteChecker(evaluator, legal, types_of(copy), workload.seed, item.finite_math_only)
    journal = Journal(on_rewrite=checker.enter)
    run_pass(item, copy, journal)
    checker.judge_lifted(LiftedValues(copy, workload.weights, allowed, workload.seed))
    # Rounding moves some of the values before narrow numbers over a boundary.
    rounded = allowed + narrow_rounding(module) if allowed else 0.0
    rebuilt = RebuiltFunctions(module, copy, kept, originals_of(journal), rounded)
    if rebuilt.rebuilt():
        rebuilt.run(workload)
        checker.judge_rebuilt(rebuilt)
    checks = [check.approximated(item.approximated) for check in checker.checks]
    return RewriteSummary.of(checks, time.perf_counter() - start)


# Both sides agree on all samples, or nothing that is left out differs.
_RIGHT = (
    RewriteStatus.PROVED,
    RewriteStatus.REAL,
    RewriteStatus.EQUAL,
    RewriteStatus.IN_CONTEXT,
)
# They agree on all samples, at last.
_AGREES = (*_RIGHT, RewriteStatus.SEARCHED)


# Samples of the narrowest and of the widest window that differs.
Differs = tuple[FailedSample, FailedSample]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Result of comparing a function on calls.

    Attributes:
        agreed: the number of calls on which both sides agree.
        reason: of calls that cannot be compared, or the origin of the one that differs.
        failed: the call that differs.
    """

    agreed: int
    reason: str
    failed: FailedSample | None = None


@dataclass(slots=True)
class RewriteChecker:
    """Checks rewrites as the journal enters them.

    Attributes:
        evaluator: computes both sides.
        legal: arguments of functions.
        types: of all values, before the pass.
        checks: results, in order.
        lifted: values that have become parameters, by place in ``checks``.
        wrong_before: the last rewrite, if it is wrong alone.
        seed: of all draws.
        finite: whether the pass is right for finite floats only.
        proofs: of windows that are equal on all samples, by their text up to names.
    """

    evaluator: WindowEvaluator
    legal: LegalCalls
    types: Mapping[Value, TensorType]
    seed: int = 0
    finite: bool = False
    checks: list[RewriteCheck] = field(default_factory=list[RewriteCheck])
    lifted: dict[int, LiftedValue] = field(default_factory=dict[int, LiftedValue])
    wrong_before: WrongAlone | None = None
    proofs: dict[tuple[object, ...], RewriteStatus] = field(
        default_factory=dict[tuple[object, ...], RewriteStatus]
    )
    samples: WindowSamples = field(init=False)

    def __post_init__(self) -> None:
        self.samples = WindowSamples(self.evaluator, self.legal, self.seed, self.finite)

    def enter(self, item: Rewrite, function: Function | None) -> None:
        """Check one rewrite, and with it the one before where that is wrong alone."""
        check, before = self._check(item, function), self.wrong_before
        self.wrong_before = None
        if before is not None and function is before.function:
            joined = before.joined_with(item)
            found = self._grown(item, before.function, joined) if joined is not None else None
            if found is not None and found.status in _AGREES:
                first = self.checks[before.number]
                self.checks[before.number] = _together(first, item, found, first.counterexample)
                check = _together(check, first.rewrite, found, None)
        if function is not None and check.status is RewriteStatus.WRONG:
            self.wrong_before = WrongAlone.of(len(self.checks), item, function)
        self.checks.append(check)

    def _check(self, item: Rewrite, function: Function | None) -> RewriteCheck:
        if function is None:
            return RewriteCheck(item, RewriteStatus.UNCHECKED, "it changes the interface")
        pairs = [pair for pair in item.replaced if _in(function, pair)]
        if not pairs:
            return _without_values(item, function)
        pairs = [pair for pair in pairs if _is_read(function, pair[0], item)] or pairs[:1]
        if len(pairs) == 1 and is_lifted(pairs[0], self.evaluator.module):
            self.lifted[len(self.checks)] = cut_lifted(pairs[0])
            return RewriteCheck(item, RewriteStatus.UNCHECKED, "the pass has not come to its end")
        check = self._grown(item, function, WindowCut.of(item, pairs))
        return self._as_read(check, function, pairs)

    def _as_read(
        self, check: RewriteCheck, function: Function, pairs: Sequence[Pair]
    ) -> RewriteCheck:
        """The result, right in its context where all readers are proved not to see a difference.

        Padding may have any values if what reads it multiplies it by 0.
        """
        item = check.rewrite
        if check.status not in (RewriteStatus.WRONG, RewriteStatus.SEARCHED):
            return check
        if self.finite and any(filled_by_take(old) for old, _, _ in pairs):
            cut = WindowCut.of(item, pairs)
            cut.unpadded = True
            if self._grown(item, function, cut).status in _RIGHT:
                reason = "it differs in padding alone, which calls of the whole program compare"
                return RewriteCheck(item, RewriteStatus.UNCHECKED, reason)
        cut = WindowCut.of_readers(item, pairs, function)
        if cut is None:
            return check
        found = self._grown(item, function, cut)
        if found.status in (RewriteStatus.PROVED, RewriteStatus.REAL):
            reason = f"what reads it is {found.status.value}"
            return RewriteCheck(item, RewriteStatus.IN_CONTEXT, reason, check.counterexample)
        if found.status in _AGREES and self.finite:
            # Passes for finite floats fill padding with any numbers.
            reason = f"{check.reason}; what reads it is {found.status.value}"
            return RewriteCheck(item, RewriteStatus.SEARCHED, reason, check.counterexample)
        return check

    def judge_lifted(self, values: LiftedValues) -> None:
        """Enter the results of values that have become parameters, at the end of the pass."""
        done: dict[tuple[object, ...], FailedSample | None] = {}
        for number, lifted in self.lifted.items():
            if lifted.key not in done:
                done[lifted.key] = values.failure(lifted)
            failed, item = done[lifted.key], self.checks[number].rewrite
            if failed is None:
                failed = values.drawn_failure(lifted)
                self.checks[number] = _of_script(item, "weights", counterexample(failed))
            elif failed.difference is None:
                self.checks[number] = _undecided(item, failed, failed.error)
            else:
                example = counterexample(failed)
                where = "with the weights of the script"
                self.checks[number] = RewriteCheck(item, RewriteStatus.WRONG, where, example)

    def judge_rebuilt(self, rebuilt: RebuiltFunctions) -> None:
        """Enter the results of functions that were rebuilt as a whole, at the end of the pass."""
        rewrites = [check.rewrite for check in self.checks]
        for function in rebuilt.rebuilt():
            owners = owners_of(function, rewrites)
            for op, number in owners.items():
                check, found = self.checks[number], rebuilt.found.get(op)
                if check.status is not RewriteStatus.UNCHECKED:
                    continue
                if found is not None:
                    where, example = f"in {found.origin}", rebuilt_example(found)
                    wrong = RewriteCheck(check.rewrite, RewriteStatus.WRONG, where, example)
                    self.checks[number] = wrong
            compared = {owners[op] for op in rebuilt.compared if op in owners}
            drawn = {owners[op]: rebuilt.drawn[op] for op in owners if op in rebuilt.drawn}
            for number in compared:
                check, differs = self.checks[number], drawn.get(number)
                if check.status is RewriteStatus.UNCHECKED:
                    example = rebuilt_example(differs) if differs is not None else None
                    self.checks[number] = _of_script(check.rewrite, "calls", example)

    def _grown(self, item: Rewrite, function: Function, cut: WindowCut) -> RewriteCheck:
        """Compare on drawn values, in ever larger windows; at last search among calls."""
        masked, drawn = is_masked(cut.ops), self.samples.free(cut, function)
        if drawn.failed is not None and cut.determine():
            # Values that determine each other were drawn independently.
            drawn = self.samples.free(cut, function)
        if drawn.failed is None:
            return RewriteCheck(item, self._right(cut))
        differs, closed = (drawn.failed, drawn.failed), replace(cut, inside=set(cut.inside))
        if closed.close():
            drawn = self.samples.free(closed, function)
            if drawn.failed is None:
                if _is_of_narrow(cut, differs[0]):
                    return RewriteCheck(item, self._right(closed))
                found = _in_context(item, differs) if self._excludes(cut, function) else None
                found = found or self._agreed(item, closed, differs)
                return found or self._searched(item, function, closed, differs, masked=masked)
            cut = closed
        return self._widened(item, function, cut, differs, masked=masked)

    def _widened(
        self,
        item: Rewrite,
        function: Function,
        cut: WindowCut,
        differs: Differs,
        *,
        masked: bool,
    ) -> RewriteCheck:
        """Compare a window that differs again, with the producers of its boundary.

        Args:
            item, function, cut: the rewrite and its window.
            differs: samples of narrower windows on which both sides do not agree.
            masked: the rewrite is one of ops with masks.
        """
        # The difference in the narrowest window is the one that people can read.
        narrow = True
        for steps in (0, *_STEPS):
            if steps and not cut.widen(steps):
                break
            if len(cut.ops) > _LIMIT:
                reason = f"differs with free boundary values; {len(cut.ops)} ops are too many"
                return _undecided(item, differs[0], reason)
            drawn = self.samples.free(cut, function)
            if drawn.differs and self.samples.legal(cut, function) and not self._changed(cut):
                where = f"for arguments that a call of @{function.name} may have"
                example = counterexample(drawn.failed)
                return RewriteCheck(item, RewriteStatus.WRONG, where, example)
            differs = _with(differs, drawn)
            excluded = drawn.failed is not None and self._excludes(cut, function)
            if excluded and (narrow or differs[0].difference is None):
                return _in_context(item, differs)
            if excluded or drawn.failed is None:
                found = self._agreed(item, cut, differs)
                return found or self._searched(item, function, cut, differs, masked=masked)
            narrow = False
        return self._searched(item, function, cut, differs, masked=masked)

    def _excludes(self, cut: WindowCut, function: Function) -> bool:
        """True if both sides agree on all samples in the ranges that producers allow."""
        within = self.samples.within(cut, function)
        return within is not None and within.failed is None and within.agreed > 0

    def _agreed(self, item: Rewrite, cut: WindowCut, differs: Differs) -> RewriteCheck | None:
        """The result of a window that agrees on its samples, after narrower ones that differ.

        Returns:
            ``None`` where it is not shown that the first difference cannot occur.
        """
        local, widest = differs
        if local.difference is None or widest.difference is None:
            return RewriteCheck(item, self._right(cut))
        proof = self._proof_wider(cut)
        rounding = local.difference.rounding or widest.difference.rounding
        finite = proof is RewriteStatus.REAL and all(map(_is_finite, differs))
        if not rounding and (proof is RewriteStatus.PROVED or finite):
            return RewriteCheck(item, proof)
        return None

    def _proof_wider(self, cut: WindowCut) -> RewriteStatus:
        """The proof of the window, or of a wider one; ``EQUAL`` for none."""
        while (proof := self._right(cut)) is RewriteStatus.EQUAL:
            if not cut.widen(1) or len(cut.ops) > _PROOF_LIMIT:
                return proof
        return proof

    def _right(self, cut: WindowCut) -> RewriteStatus:
        """The status of a window that is equal on all samples: proved, if it is for all values."""
        key = cut.key()
        if key not in self.proofs:
            self.proofs[key] = proof_of(cut)
        return self.proofs[key]

    def _searched(
        self,
        item: Rewrite,
        function: Function,
        cut: WindowCut,
        differs: Differs,
        *,
        masked: bool,
    ) -> RewriteCheck:
        """Search for a call that reaches the counterexample: mutated calls of the whole function.

        Args:
            item, function, cut: the rewrite and a window.
            differs: samples on which both sides do not agree.
            masked: the rewrite is one of ops with masks.
        """
        cut.widen(_EVERYTHING)
        if len(cut.ops) > _LIMIT:
            reason = f"differs with free boundary values; {len(cut.ops)} ops are too many"
            return _undecided(item, differs[0], reason)
        changed = self._changed(cut)
        if changed:
            return RewriteCheck(item, RewriteStatus.UNCHECKED, f"it changes the type of {changed}")
        calls, drawn = self.legal.of(function.name), differs[0]
        found = self._search(function, cut, self._tries(cut, calls, drawn, masked=masked))
        if found.failed is not None and found.failed.difference is not None:
            example = counterexample(found.failed)
            return RewriteCheck(item, RewriteStatus.WRONG, f"in {found.reason}", example)
        if found.agreed and not found.reason:
            if drawn.difference is None:
                return RewriteCheck(item, RewriteStatus.EQUAL, "with arguments of calls")
            reason = f"{_windows(differs)}; {found.agreed} calls of @{function.name} agree"
            return RewriteCheck(item, RewriteStatus.SEARCHED, reason, counterexample(drawn))
        reason = found.reason or "differs with free arguments; "
        if not found.reason:
            reason += f"no call of @{function.name} is known"
        return _undecided(item, drawn, reason)

    def _tries(
        self,
        cut: WindowCut,
        calls: Sequence[LegalArguments],
        drawn: FailedSample,
        *,
        masked: bool,
    ) -> list[tuple[LegalArguments, Spread | None, bool]]:
        """Calls with the floats of each distribution, then mutated ones: some hundred in all."""
        spreads = [None, *spreads_of(cut.ops, masked=masked or self.finite)]
        if self.finite and amplifies(cut.ops):
            large = self.samples.large(cut)
            spreads = [spread for spread in spreads if spread not in large]
        every = [(legal, spread) for spread in spreads for legal in calls]
        out = [(legal, spread, False) for legal, spread in every]
        if drawn.difference is not None and calls:
            # A loop evaluates its body's ops again and again.
            weight = sum(_LOOP if op.name in (*CONTROL, "experts") else 1 for op in cut.ops)
            more = min(_TRIES, _WORK // max(1, weight)) - len(out)
            out += [(*every[n % len(every)], True) for n in range(more)]
        return out

    def _search(
        self,
        function: Function,
        cut: WindowCut,
        tries: Sequence[tuple[LegalArguments, Spread | None, bool]],
    ) -> SearchResult:
        """Compare a whole function on calls, up to the first that differs."""
        agreed, error = 0, ""
        for number, (legal, spread, mutated) in enumerate(tries):
            if mutated and function.phase:
                other = spread or Spread.ORDINARY
                given = self.samples.mutated(cut, function, legal, number, other)
            else:
                limits = self.samples.stated(cut, function)
                given = _arguments(cut.boundary, legal, spread, self.seed, limits)
            if isinstance(given, str):
                return SearchResult(agreed, given)
            # With other floats a whole program may amplify rounding, as a saturated softmax does.
            window, tokens = cut.function(legal.sizes), self.samples.tokens(cut, function, given)
            failed = self.evaluator.failure(
                cut, window, legal.sizes, given, finite=spread is not None, tokens=tokens
            )
            if failed is None:
                agreed += 1
            elif failed.difference is not None:
                return SearchResult(agreed, legal.origin, failed)
            elif not mutated:
                error = failed.error
        return SearchResult(agreed, error)

    def _changed(self, cut: WindowCut) -> str:
        """A value of the window whose type the pass has changed in place; empty for none."""
        made = [result for op in cut.ops for result in op.results]
        for value in (*cut.boundary, *made):
            was = self.types.get(value, value.type)
            if was is not value.type:
                return f"{value!r}, which was {was.text}"
        return ""


def types_of(module: Module) -> dict[Value, TensorType]:
    """The type of every value."""
    functions = module.functions.values()
    values = [value for function in functions for value in function.args]
    values += [result for f in functions for op in f.block for result in op.results]
    return {value: value.type for value in values}


def _with(differs: Differs, drawn: DrawnSamples) -> Differs:
    """The differences of the narrowest and the widest window, with those of one more window."""
    if drawn.failed is None or drawn.failed.difference is None:
        return differs
    local = differs[0]
    return (local if local.difference is not None else drawn.failed), drawn.failed


def _is_of_narrow(cut: WindowCut, failed: FailedSample) -> bool:
    """True for a difference of rounding where one side rounds to numbers of 8 bits.

    Such an error has the size of all that a product adds up, which cancels for some drawn numbers.
    """
    found = failed.difference
    return found is not None and found.rounding and rounding_of(cut.unshared()) > 0


def _in_context(item: Rewrite, differs: Differs) -> RewriteCheck:
    """The result where the ranges of the operands exclude what differs."""
    reason = "for the values that its operands can have"
    return RewriteCheck(item, RewriteStatus.IN_CONTEXT, reason, counterexample(differs[0]))


def _is_finite(failed: FailedSample) -> bool:
    """True for a difference of finite floats, which a proof in real arithmetic excludes."""
    found = failed.difference
    if found is None or not failed.pairs[found.pair][0].dtype.is_float:
        return False
    return cmath.isfinite(found.before) and cmath.isfinite(found.after)


def _windows(differs: Differs) -> str:
    """``windows of 15 to 240 ops differ``."""
    first, last = (len(one.window.block) for one in differs)
    return (
        f"a window of {first} ops differs"
        if first == last
        else (f"windows of {first} to {last} ops differ")
    )


def _together(
    check: RewriteCheck, other: Rewrite, found: RewriteCheck, alone: Counterexample | None
) -> RewriteCheck:
    """The result of one of two rewrites that are right together.

    Args:
        check: the rewrite.
        other: the other one.
        found: the result of comparing the program before the first with the one after the second.
        alone: what is different between the two rewrites, of the first.
    """
    first, second = sorted((check.rewrite.number, other.number))
    together = f"#{first} and #{second}"
    if found.status in (RewriteStatus.IN_CONTEXT, RewriteStatus.SEARCHED):
        reason = f"{together}: {found.reason}"
        return RewriteCheck(check.rewrite, found.status, reason, found.counterexample)
    return RewriteCheck(check.rewrite, RewriteStatus.TOGETHER, together, alone)


def _of_script(item: Rewrite, what: str, example: Counterexample | None) -> RewriteCheck:
    """The result of a rewrite that is right with the weights, or in the calls, of the script.

    Args:
        item: the rewrite.
        what: ``weights`` or ``calls``.
        example: of drawn weights, where these differ.
    """
    if example is None:
        return RewriteCheck(item, RewriteStatus.EQUAL)
    reason = f"differs with drawn weights; agrees with the {what} of the script"
    return RewriteCheck(item, RewriteStatus.WRONG, reason, example)


def _undecided(item: Rewrite, failed: FailedSample, reason: str) -> RewriteCheck:
    return RewriteCheck(item, RewriteStatus.UNDECIDED, reason, counterexample(failed))


def _in(function: Function, pair: Pair) -> bool:
    """True for values of one function; a rebuilt function has others."""
    old, new, _ = pair
    return all(value.op is None or value.op.block in (function.block, None) for value in (old, new))


def _is_read(function: Function, old: Value, item: Rewrite) -> bool:
    """True for a value that an op read before the rewrite, or that the function returns."""
    return function.returns(old) or any(op not in item.created for op in old.users)


def _without_values(item: Rewrite, function: Function) -> RewriteCheck:
    if item.rule == "erase":
        returned = any(function.returns(v) for one in item.before for v in one.op.results)
        if not returned:
            return RewriteCheck(item, RewriteStatus.EQUAL)
    return RewriteCheck(item, RewriteStatus.UNCHECKED, "it replaces no value of the function")


def _arguments(
    boundary: Sequence[Value],
    legal: LegalArguments,
    spread: Spread | None,
    seed: int,
    limits: Sequence[Interval],
) -> list[dict[str, Array]] | str:
    """Per rank the arguments of a window of a whole function.

    Args:
        boundary: arguments of the function.
        legal: the arguments of a call.
        spread: distribution of other floats; ``None`` to keep those of the call.
        seed: of other floats.
        limits: the domain of each argument.

    Returns:
        The reason where an argument is not known.
    """
    rng = np.random.default_rng([seed, 3])
    out: list[dict[str, Array]] = [{} for _ in legal.given]
    for place, (value, limit) in enumerate(zip(boundary, limits, strict=True)):
        name = value.name or ""
        if any(name not in one for one in legal.given):
            return f"%{name} is not an argument of {legal.origin}"
        arrays = [one[name] for one in legal.given]
        if spread is not None and has_floats(value.dtype):
            redrawn = _redrawn(rng, value, arrays, legal, spread)
            arrays = [folded(array, limit, value) for array in redrawn]
        for one, array in zip(out, arrays, strict=True):
            one[f"{place}.{name}"] = array
    return out


def _redrawn(
    rng: np.random.Generator,
    value: Value,
    arrays: Sequence[Array],
    legal: LegalArguments,
    spread: Spread,
) -> list[Array]:
    """Other floats, the same on all ranks where the ranks have the same."""
    type_ = value.type.bind(legal.sizes)
    if all(array is arrays[0] or array.tobytes() == arrays[0].tobytes() for array in arrays):
        return [draw_array(rng, type_, spread)] * len(arrays)
    return [draw_array(rng, type_, spread) for _ in arrays]
