"""Comparison of the two ends of a pipeline: one verdict on all passes together.

Where the module after the last pass computes what the one before the first pass computes, no pass
between them is wrong over these calls, unless two faults cancel. It takes two runs instead of two
for each pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from graphgen.analysis import fingerprint
from graphgen.eval import MEANING, NATIVE
from graphgen.exec.backend import Backend, NumpyBackend
from graphgen.exec.session import Workload
from graphgen.exec.weights import default_layouts
from graphgen.ir import Module
from graphgen.ir.clone import clone_module
from graphgen.passes.core import Pass
from graphgen.passes.core.order import check_order
from graphgen.passes.core.settings import OFF, debug
from graphgen.passes.equiv.choice_replay import ChoiceCounts
from graphgen.passes.equiv.deviation import MEANING_BUDGET, NONE, Deviation, compare
from graphgen.passes.equiv.recorded_run import check_outputs, record
from graphgen.passes.validate.blame import apply_pass
from graphgen.passes.validate.checked_run import no_progress
from graphgen.passes.validate.merged_adapters import adds_adapters
from graphgen.passes.validate.narrow_rounding import rounding_budget
from graphgen.passes.validate.verdict import Verdict
from graphgen.passes.workload.coverage_collect import collect, uncovered_changes
from graphgen.passes.workload.coverage_input import input_coverage
from graphgen.passes.workload.coverage_recorder import CoverageRecorder
from graphgen.passes.workload.make_workload import rounded_calls

# Calls that the ends are compared on in the program's own types: a pass that rounds differently
# does so in each.
_ROUNDED = 4


def ends_agree(module: Module, passes: Sequence[Pass], workload: Workload) -> bool:
    """True if the last module is found to mean what the first one does, over all calls.

    Args:
        module: where to start; unchanged.
        passes: the pipeline, in order.
        workload: what to compare over.
    """
    ran = _run_all(module, passes)
    if ran is None:
        return False
    found = _meant(module, ran[0], workload, CoverageRecorder(), passes)
    return found is not None and found[0].relative <= MEANING_BUDGET


def verdict_of_ends(
    module: Module,
    passes: Sequence[Pass],
    workload: Workload,
    evaluator: Backend | None = None,
    on_step: Callable[[str], None] | None = None,
) -> Verdict | None:
    """The verdict on a whole pipeline; ``None`` where each pass has to be checked by itself.

    That is so where the ends differ, a pass raises an exception, changes what the model means or
    its outputs, adds adapters, or makes layouts that calls may permute.

    Args:
        module: where to start; unchanged.
        passes: the pipeline.
        workload: what to compare over; some calls only in the program's own types.
        evaluator: what computes in the program's own types; NumPy, if none is given.
        on_step: called before each step with its description.

    Raises:
        GraphgenError: GG0303 for passes in a wrong order; what a run of ``module`` itself raises.
    """
    check_order(passes, module)
    begin = on_step or no_progress
    begin("all passes")
    ran = _run_all(module, passes)
    if ran is None:
        return None
    after, budget = ran
    begin("the first module and the last")
    recorder, run = CoverageRecorder(), evaluator or NumpyBackend(NATIVE)
    meant = _meant(module, after, workload, recorder, passes)
    if meant is None or meant[0].relative > MEANING_BUDGET:
        return None
    rounded = rounded_calls(workload)
    rounded = replace(rounded, calls=rounded.calls[:_ROUNDED])
    native = record(module, rounded, NATIVE, run, last_states=True)
    try:
        own = record(after, rounded, NATIVE, run, native, budget, last_states=True)
    except MemoryError:
        raise
    except Exception:
        return None
    rounding = compare(native.outcomes, own.outcomes)
    budget += max(run.noise(module), run.noise(after))
    if rounding.relative > budget:
        return None
    coverage = collect(after, workload, recorder, input_coverage(after, workload))
    return Verdict(
        pass_text=_text(passes),
        meaning=meant[0],
        rounding=rounding,
        budget=budget,
        choices=meant[1],
        rounded_choices=own.counts,
        coverage=coverage,
        uncovered=uncovered_changes(module, after, coverage),
    )


def _meant(
    module: Module,
    after: Module,
    workload: Workload,
    recorder: CoverageRecorder,
    passes: Sequence[Pass],
) -> tuple[Deviation, ChoiceCounts] | None:
    """The difference in float64, and the choices; ``None`` where the last module cannot run."""
    changed = fingerprint(after) != fingerprint(module)
    first = None if changed else recorder
    meaning = record(module, workload, MEANING, observer=first, last_states=True)
    if not changed:
        return NONE, meaning.counts
    try:
        made = record(
            after, workload, MEANING, None, meaning, MEANING_BUDGET, recorder, last_states=True
        )
        check_outputs(meaning.outcomes, made.outcomes, passes[-1])
    except MemoryError:
        raise
    except Exception:
        # The pass at fault is found, and reported, where each is checked.
        return None
    return compare(meaning.outcomes, made.outcomes), made.counts


def _text(passes: Sequence[Pass]) -> str:
    return str(passes[0]) if len(passes) == 1 else f"all {len(passes)} passes"


def _run_all(module: Module, passes: Sequence[Pass]) -> tuple[Module, float] | None:
    """The module after all passes, and the largest rounding that one of them may cause."""
    after, budget = clone_module(module), 0.0
    for item in passes:
        if item.approximation or item.output_changes() is not None:
            return None
        budget = max(budget, rounding_budget(item, after))
        try:
            # Errors are reported where each pass is checked.
            with debug(level=0, dump="", fuel="", crash=OFF):
                apply_pass(after, item)
        except MemoryError:
            raise
        except Exception:
            return None
    if not passes or default_layouts(after) or adds_adapters(module, after):
        return None
    return after, budget
