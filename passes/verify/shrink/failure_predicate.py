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
from graphgen.passes.verify.compare import compare
from graphgen.passes.verify.reproducer import Failure, failure_of
from graphgen.passes.verify.validate import MEANING_BUDGET, apply_pass
from graphgen.passes.verify.workload import make_workload, may_shuffle

# True for a module that fails; it may be changed.
Fails = Callable[[Module], bool]


def wrong_numbers(module: Module, passes: Sequence[Pass], seed: int) -> tuple[Fails, Pass | None]:
    """Predicate of modules that the first wrong pass of ``module`` changes the numbers of.

    Both sides of that pass are compared, so that a smaller module cannot fail by another one.

    Returns:
        The check, and the pass; ``None`` where no pass is wrong.
    """
    number = next((n for n in range(len(passes)) if _differs(module, passes, n, seed)), None)

    def fails(other: Module) -> bool:
        if number is None:
            return False
        try:
            return _differs(other, passes, number, seed)
        except Exception:
            # What cannot be run does not fail as the module did.
            return False

    return fails, None if number is None else passes[number]


def _differs(module: Module, passes: Sequence[Pass], number: int, seed: int) -> bool:
    """True if the pass at ``number`` changes the numbers of a module."""
    item = passes[number]
    before = clone_module(module)
    with debug(level=0, dump="", fuel="", crash=OFF):
        run_pipeline(before, passes[:number])
        after = clone_module(before)
        apply_pass(after, item)
    in_place = any(getattr(each, "in_place", False) for each in passes[: number + 1])
    workload = make_workload(before, seed, shuffled=may_shuffle(before) and not in_place)
    reference = Runner(before, workload, arithmetic=MEANING).outcomes()
    outcomes = Runner(after, workload, arithmetic=MEANING).outcomes()
    return compare(reference, outcomes).relative > MEANING_BUDGET


def same_exception(module: Module, passes: Sequence[Pass]) -> tuple[Fails, Failure | None]:
    """Predicate of modules for which the pipeline raises the same exception.

    Returns:
        The check, and how ``module`` fails; ``None`` where it does not.
    """
    wanted = _failure(module, passes)

    def fails(other: Module) -> bool:
        found = _failure(other, passes)
        return wanted is not None and found is not None and found.like(wanted)

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
