"""Blame: bisect the rewrites of a pass for the one that makes a module wrong.

The number of rewrites is bisected. A verdict need not stay wrong once it is: a pass may take two
steps of which the first alone is wrong. So more numbers are tried after the one that was found, and
where one of them is right, the search goes on after it. Then the rewrite is made alone. Where it is
right alone, the fewest others that make it wrong are found by delta debugging (Zeller 1999).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from graphgen.analysis.fingerprint import fingerprint
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, Arithmetic
from graphgen.exec.backend import Backend
from graphgen.exec.session import Workload
from graphgen.ir import Module
from graphgen.ir.clone import clone_module
from graphgen.ops import verify
from graphgen.passes.core import Pass
from graphgen.passes.core.journal import Journal, Rewrite, RewriteKey, keys_of
from graphgen.passes.core.pipeline import run_pass
from graphgen.passes.core.rewriter import Rewriter
from graphgen.passes.equiv.deviation import MEANING_BUDGET, RoundingNoise, first_beyond
from graphgen.passes.equiv.recorded_run import RecordedRun, outcomes_beside

# True for a wrong module.
Oracle = Callable[[Module], bool]
# Numbers that are tried after the one found by bisection.
_SAMPLES = 4
# Sets of rewrites that are tried for the smallest one.
_TRIALS = 200


@dataclass(frozen=True, slots=True)
class Blame:
    """The rewrite at fault within a pass.

    Attributes:
        guilty: the rewrite: with it the module is wrong, and with all that follow; with one less it
            is right.
        together: where the guilty one is right alone, the smallest set of rewrites that is wrong,
            in order, the guilty one included; else empty.
        recovered: the number of rewrites after which a module that was wrong before is right
            again; 0 where none was found.
        good: the module with one rewrite less.
        bad: the module with the guilty rewrite.
    """

    guilty: Rewrite
    together: tuple[Rewrite, ...]
    recovered: int
    good: Module
    bad: Module


def apply_pass(
    module: Module,
    item: Pass,
    journal: Journal | None = None,
    fuel: int | None = None,
    only: Collection[RewriteKey] | None = None,
) -> Rewriter:
    """Run one pass in place, optionally with a journal and limited rewrites, and verify."""
    rewriter, _ = run_pass(item, module, journal, fuel, only)
    verify(module)
    return rewriter


def blame(before: Module, item: Pass, wrong: Oracle) -> Blame | None:
    """The rewrite of ``item`` that makes a module wrong.

    Args:
        before: the module the pass was given, a right one; unchanged.
        item: the pass, after which the module is wrong.
        wrong: the oracle.

    Returns:
        ``None`` where the pass as a whole is to blame: it records no rewrite, cannot stop half-way,
        gives another result each time, or half of it cannot be judged.
    """
    journal = Journal()
    try:
        apply_pass(clone_module(before), item, journal)
        if not journal.applications:
            return None
        search = _BlameSearch(before, item, wrong, journal.applications)
        return search.run()
    except MemoryError:
        raise
    except Exception:
        # A module of half the rewrites may stand between two interfaces, or take the pass aback.
        return None


def by_outcomes(
    reference: RecordedRun,
    workload: Workload,
    arithmetic: Arithmetic = MEANING,
    budget: float = MEANING_BUDGET,
    run: Backend | None = None,
    noise: RoundingNoise | None = None,
) -> Oracle:
    """Wrong is a module with outcomes further than ``budget`` from ``reference``.

    Args:
        reference: the run of a right module.
        workload: the calls of that run.
        arithmetic: element types of the computation.
        budget: largest relative difference that is right.
        run: the backend; NumPy by default.
        noise: the rounding, where it is not that of float64.
    """

    known: dict[str, bool] = {}

    def wrong(module: Module) -> bool:
        program = fingerprint(module)
        if program not in known:
            # A wrong module mostly is so from its first calls on: the others are not run.
            outcomes = outcomes_beside(reference, module, workload, arithmetic, run, budget)
            known[program] = first_beyond(reference.outcomes, outcomes, budget, noise) is not None
        return known[program]

    return wrong


def last_turn(last: int, wrong: Callable[[int], bool]) -> tuple[int, int]:
    """The number from which on a verdict is wrong up to ``last``, as far as numbers are tried.

    Args:
        last: a number that is wrong; 0 is right.
        wrong: the verdict of a number; asked once for each.

    Returns:
        The number, and the largest smaller one found that is right although one before it is
        wrong; 0 for none.
    """
    known: dict[int, bool] = {0: False, last: True}

    def verdict(number: int) -> bool:
        if number not in known:
            known[number] = wrong(number)
        return known[number]

    good, recovered = 0, 0
    while True:
        bad = last
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (good, middle) if verdict(middle) else (middle, bad)
        right = [number for number in _samples(bad, last) if not verdict(number)]
        if not right:
            return bad, recovered
        good = recovered = max(right)


def _samples(first: int, last: int) -> list[int]:
    """A few numbers between two others: the next ones, and some at even distances."""
    between = range(first + 1, last)
    if len(between) <= _SAMPLES:
        return list(between)
    near, far = between[: _SAMPLES // 2], between[_SAMPLES // 2 :]
    return [*near, *far[:: -(-len(far) // (_SAMPLES // 2))]]


@dataclass(slots=True)
class _BlameSearch:
    """Search for the rewrite at fault.

    Attributes:
        before, item, wrong: as for :func:`blame`.
        made: the rewrites of the whole pass.
        trials: how many sets have been tried.
    """

    before: Module
    item: Pass
    wrong: Oracle
    made: Sequence[Rewrite]
    trials: int = 0
    keys: list[RewriteKey] = field(default_factory=list[RewriteKey])

    def run(self) -> Blame | None:
        """Bisect, then look for the others that it takes."""
        total = len(self.made)
        if self.wrong(self._first(0)) or not self.wrong(self._first(total)):
            return None
        number, recovered = last_turn(total, lambda fuel: self.wrong(self._first(fuel)))
        together = self._together(number - 1)
        good, bad = self._first(number - 1), self._first(number)
        return Blame(self.made[number - 1], together, recovered, good, bad)

    def _first(self, fuel: int) -> Module:
        """The module after ``fuel`` rewrites."""
        module = clone_module(self.before)
        rewriter = apply_pass(module, self.item, fuel=fuel)
        if rewriter.applications != fuel:
            raise GraphgenError(
                "GG0304", f"{self.item.name} does not stop when its fuel is used up"
            )
        return module

    def _together(self, guilty: int) -> tuple[Rewrite, ...]:
        """The smallest wrong set with the rewrite at index ``guilty``, if that is right alone."""
        self.keys = keys_of(self.made)
        try:
            if self._wrong([], guilty):
                return ()
            needed = self._smallest(guilty)
            # Without some of these the guilty one cannot be made, which says nothing about them.
            others = [n for n in needed if self._right_without(n, needed, guilty)]
        except _NoSetError:
            return ()
        numbers = sorted([*others, guilty])
        return tuple([self.made[number] for number in numbers]) if others else ()

    def _smallest(self, guilty: int) -> list[int]:
        """The smallest set before ``guilty`` with which that is wrong."""
        left = list(range(guilty))
        if not self._wrong(left, guilty):
            raise _NoSetError
        size = max(len(left) // 2, 1)
        while left and size:
            start, shrunk = 0, False
            while start < len(left):
                rest = left[:start] + left[start + size :]
                if self._wrong(rest, guilty):
                    left, shrunk = rest, True
                else:
                    start += size
            size = size // 2 if not (shrunk and size == 1) else 1
        return left

    def _right_without(self, number: int, needed: Sequence[int], guilty: int) -> bool:
        """True if the guilty rewrite can be made without ``number``, and is right then."""
        return self._wrong([each for each in needed if each != number], guilty) is False

    def _wrong(self, others: Sequence[int], guilty: int) -> bool | None:
        """The verdict with these rewrites and the guilty one; ``None`` where that is not made."""
        self.trials += 1
        if self.trials > _TRIALS:
            raise _NoSetError
        only = {self.keys[number] for number in (*others, guilty)}
        module, journal = clone_module(self.before), Journal()
        try:
            apply_pass(module, self.item, journal, only=only)
        except GraphgenError:
            return None
        made = set(keys_of(journal.applications))
        if not made <= only:
            raise _NoSetError
        return self.wrong(module) if self.keys[guilty] in made else None


class _NoSetError(Exception):
    """No smallest set is found: the pass leaves nothing out, or there are too many sets."""
