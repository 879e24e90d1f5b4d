"""Failure predicates: a module's failure under a pipeline, testable on smaller modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphgen.errors import GraphgenError
from graphgen.eval import MEANING
from graphgen.exec.session import Runner
from graphgen.ir import Module
from graphgen.ir.clone import clone_module
from graphgen.passes.core import Pass, run_pipeline
from graphgen.passes.core.settings import OFF, debug
from graphgen.passes.equiv.deviation import MEANING_BUDGET, compare
from graphgen.passes.equiv.recorded_run import check_outputs, record, with_derived
from graphgen.passes.validate.blame import apply_pass
from graphgen.passes.validate.reproducer import Failure, failure_of
from graphgen.passes.workload.make_workload import workload_for

# True for a module that fails; it may be changed.
Fails = Callable[[Module], bool]


def wrong_numbers(module: Module, passes: Sequence[Pass], seed: int) -> tuple[Fails, Pass | None]:
    """Predicate of modules that the first wrong pass of ``module`` changes the numbers of.

    Both sides of that pass are compared, so that a smaller module cannot fail by another one. Where
    ``module`` runs up to that pass over its own workload, as validation does, so do the smaller
    ones.

    Returns:
        The check, and the pass; ``None`` where no pass is wrong.
    """
    number = next((n for n in range(len(passes)) if _differs(module, passes, n, seed)), None)
    runs = number is not None and _runs(module, passes, number, seed)

    def fails(other: Module) -> bool:
        if number is None:
            return False
        try:
            wrong = _differs(other, passes, number, seed)
            return wrong and (not runs or _runs(other, passes, number, seed))
        except Exception:
            # A candidate that cannot run does not fail as the module did.
            return False

    return fails, None if number is None else passes[number]


def _differs(module: Module, passes: Sequence[Pass], number: int, seed: int) -> bool:
    """True if the pass at ``number`` changes the numbers of a module, as validation compares them.

    Raises:
        GraphgenError: GG0305 for a pass that adds or drops an output and does not declare it.
    """
    item = passes[number]
    before = clone_module(module)
    with debug(level=0, dump="", fuel="", crash=OFF):
        run_pipeline(before, passes[:number])
        after = clone_module(before)
        apply_pass(after, item)
    workload = workload_for(before, [item], seed)
    reference = with_derived(record(before, workload, MEANING), item, workload)
    found = record(after, workload, MEANING, None, reference, MEANING_BUDGET)
    check_outputs(reference.outcomes, found.outcomes, item)
    return compare(reference.outcomes, found.outcomes).relative > MEANING_BUDGET


def _runs(module: Module, passes: Sequence[Pass], number: int, seed: int) -> bool:
    """True if a module runs over its own workload as given and after ``number`` passes."""
    before = clone_module(module)
    try:
        workload = workload_for(module, passes, seed)
        Runner(module, workload, arithmetic=MEANING).outcomes()
        with debug(level=0, dump="", fuel="", crash=OFF):
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
    runs = wanted is not None and _runs(module, passes, 0, 0)

    def fails(other: Module) -> bool:
        found = _failure(other, passes)
        alike = wanted is not None and found is not None and found.like(wanted)
        return alike and (not runs or _runs(other, passes, 0, 0))

    return fails, wanted


def _failure(module: Module, passes: Sequence[Pass]) -> Failure | None:
    try:
        with debug(level=0, dump="", fuel="", crash=OFF):
            run_pipeline(clone_module(module), passes)
    except Exception as error:
        return failure_of(error)
    return None


def after_passes(passes: Sequence[Pass], fails: Fails) -> Fails:
    """Predicate of modules that fail after the pipeline; false where the pipeline raises."""

    def check(module: Module) -> bool:
        copy = clone_module(module)
        try:
            with debug(level=0, dump="", fuel="", crash=OFF):
                run_pipeline(copy, passes)
        except GraphgenError:
            return False
        return fails(copy)

    return check
