"""``graphgen validate``: check passes numerically; name the first wrong rewrite."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.compiled_file import files_of, note_passes_compiled
from graphgen.cli.console import note
from graphgen.cli.model_argument import (
    MeasuredIn,
    ModelOrFile,
    Thorough,
    Twins,
    check_twins,
    measured_ranges,
    read_model,
    run_twins,
)
from graphgen.cli.shared_options import (
    AsJson,
    Dims,
    FirstLayers,
    PipelineOption,
    Plugins,
    ScriptOption,
    Seed,
    load_pipeline,
    parse_sizes,
    pipeline_sizes,
)
from graphgen.cli.step_progress import StepProgress
from graphgen.cli.validate_report import check_page, write_validation_page, write_verdicts
from graphgen.cli.workload_options import (
    RANDOM,
    Inputs,
    On,
    Weights,
    checked_checkpoint,
    given_workload,
    rounding_backend,
)

if TYPE_CHECKING:
    from graphgen.ir import Module
    from graphgen.passes.core import Pass
    from graphgen.passes.layerwise.weight_sources import WeightSource
    from graphgen.passes.validate import Verdict
    from graphgen.passes.workload.short_script import Script
    from graphgen.runtime.accuracy.validate_model import (
        ModuleVerdicts,
        TwinsToRun,
        ValidationOptions,
    )

COMMAND: Final = Command("debug", "Check passes by numbers; name the wrong rewrite.", order=1)


def one_blas_thread() -> None:
    """Limit BLAS to one thread, before NumPy is imported.

    Tiles of large layers are worked on in parallel; products of twins are so small that other
    threads only wait for them.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


# Numbers of the settings of the allocator of glibc, and the largest value that the second one has.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _LARGEST_MMAP = -1, -3, 32 << 20


def keep_freed_memory() -> None:
    """Have freed arrays used again, where the C library is glibc.

    It would return the caches of a call to the system, which clears pages for those of the next.
    """
    import ctypes

    try:
        setting = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    setting(_MMAP_THRESHOLD, _LARGEST_MMAP)
    setting(_TRIM_THRESHOLD, (1 << 31) - 1)


def save_time(*, own_size: bool, layerwise: bool) -> None:
    """Set up BLAS and the allocator for twins, or for layers one by one."""
    if layerwise or not own_size:
        one_blas_thread()
    if not own_size:
        keep_freed_memory()


def refuse_with_layerwise(
    on: str, inputs: str | None, *, prove: bool, coverage: bool, thorough: bool
) -> None:
    """Refuse options that mean nothing layer by layer."""
    given = {"'--on'": on != "numpy", "'--inputs'": inputs is not None, "'--prove'": prove}
    given["'--coverage'"] = coverage
    given["'--thorough'"] = thorough
    for option, is_given in given.items():
        if is_given:
            raise typer.BadParameter(
                "cannot be combined with --layerwise, which computes in NumPy with inputs of "
                "its own",
                param_hint=option,
            )


def run_layerwise(
    module: Module,
    passes: Sequence[Pass],
    seed: int,
    weights: str | None,
    on_step: Callable[[str], None],
    *,
    rewrites: bool = True,
) -> list[Verdict]:
    """Validate layer by layer, with an estimate beforehand on stderr.

    Args:
        module: with scopes of layers.
        passes: the pipeline.
        seed: of inputs and random weights.
        weights: a checkpoint; ``None`` or ``random`` for random ones.
        on_step: called before each step with its description.
        rewrites: whether each rewrite of a small module is also checked alone.

    Raises:
        GraphgenError: GG0602 for a checkpoint that does not fit, GG0705 for a module without
            layers.
    """
    from graphgen.passes.layerwise.layer_estimate import estimate
    from graphgen.passes.layerwise.segment_run import SegmentRunner, calls_without_weights
    from graphgen.passes.layerwise.validate_layers import validate_layers
    from graphgen.passes.workload.make_workload import may_shuffle

    # In-place programs take row b of a call for row b of the cache: rows stay in order.
    shuffled = may_shuffle(module) and not any(getattr(i, "in_place", False) for i in passes)
    workload = calls_without_weights(module, seed, shuffled=shuffled)
    runner = SegmentRunner(workload, _source(module, weights, seed))
    cost = estimate(module, workload, len(passes))
    note(str(cost))
    alone = None
    if rewrites and cost.weight_bytes <= _SMALL and weights in (None, RANDOM):
        from graphgen.passes.workload.make_workload import workload_for

        alone = workload_for(module, passes, seed)
    elif rewrites:
        note("rewrites are not checked alone here: 'graphgen validate' does so on a small twin")
    return validate_layers(module, passes, runner, on_step=on_step, alone=alone)


# Bytes of weights up to which each rewrite is checked alone in a validation by layers.
_SMALL = 64 << 20


def _source(module: Module, weights: str | None, seed: int) -> WeightSource:
    from graphgen.passes.layerwise.weight_sources import RandomWeights, StoredWeights

    if weights is None or weights == RANDOM:
        return RandomWeights(seed)
    from graphgen.runtime.weights.rank_weights import read_weight

    checkpoint = checked_checkpoint(module, weights)
    return StoredWeights(lambda row: read_weight(checkpoint, row))


# States of verdicts that are neither right nor wrong, as '--allow' names them.
ALLOWED = ("unknown", "searched", "not-covered", "budget")


def allowed_states(text: str) -> frozenset[str]:
    """The states of ``--allow``, which stand between commas."""
    given = [part.strip() for part in text.split(",") if part.strip()]
    for part in given:
        if part not in ALLOWED:
            raise typer.BadParameter(
                f"there is no state {part}: choose of {', '.join(ALLOWED)}",
                param_hint="'--allow'",
            )
    return frozenset(given)


def exit_status(found: Sequence[ModuleVerdicts], allowed: Collection[str]) -> int:
    """1 where a check failed, 2 where something is left open, 0 for what is right."""
    if not all(run.passed for run in found):
        return 1
    left_open = {name for run in found for verdict in run.verdicts for name in verdict.left_open}
    return 2 if left_open - set(allowed) else 0


Layerwise = Annotated[
    bool,
    typer.Option("--layerwise", help="Compare layer by layer, in a few GB whatever the model."),
]
EachRewrite = Annotated[
    bool,
    typer.Option("--rewrites/--no-rewrites", help="Also check each rewrite alone."),
]
Coverage = Annotated[
    bool,
    typer.Option("--coverage", help="Print all that the calls exercised, and what they missed."),
]
RequireCoverage = Annotated[
    bool,
    typer.Option(
        "--require-coverage", help="Exit with 1 when a program, branch or loop body was not run."
    ),
]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick", help="A few calls, by what the passes touch: 'ok of what was tried', status 2."
    ),
]
Allow = Annotated[
    str,
    typer.Option(
        "--allow",
        metavar="STATES",
        help=f"States that do not count for the exit status: some of {','.join(ALLOWED)}.",
    ),
]
Trace = Annotated[
    str | None,
    typer.Option(
        "--trace",
        metavar="OUT.html",
        help="Also write a page: the trace of the passes, verdicts, coverage.",
    ),
]
Prove = Annotated[
    bool,
    typer.Option("--prove", help="Look for a proof, too, that programs are equal for all sizes."),
]


def validate(
    file: ModelOrFile,
    pipeline: PipelineOption = "default",
    plugin: Plugins = None,
    seed: Seed = 0,
    script: ScriptOption = "auto",
    twins: Twins = None,
    thorough: Thorough = False,
    statistics: MeasuredIn = None,
    on: On = "numpy",
    inputs: Inputs = None,
    weights: Weights = None,
    dims: Dims = "",
    prove: Prove = False,
    rewrites: EachRewrite = True,
    quick: Quick = False,
    allow: Allow = "",
    layerwise: Layerwise = False,
    layers: FirstLayers = None,
    coverage: Coverage = False,
    require_coverage: RequireCoverage = False,
    trace: Trace = None,
    as_json: AsJson = False,
) -> None:
    """Run passes over a module and compare the numbers before and after each.

    A language model is taken through calls that fit its programs and those that passes make of it:
    prefixes, full buckets, rows used again, every position of small programs in every row.
    'meaning' is computed in float64, 'rounding' in the module's own types. Exit status 1 when a
    pass fails; the rewrite at fault is named. 2 when a rewrite is unknown or searched only, a part
    is not covered, or --quick tried less, unless --allow names these states.

    A model is validated on its small twins, a mini and a wide one, whose positions pass 16 bits; a
    file as it is, and on the wide twin of its model. --layerwise goes layer by layer, at full size.

    \b
    Examples:
      graphgen validate llama-3.1-8b --thorough
      graphgen validate mini.gg -p 'canonicalize,my-pass' --plugin my_pass.py
      graphgen validate llama-3.1-405b --layers 1 --layerwise
    """
    check_page(trace)
    allowed = allowed_states(allow)
    if layerwise:
        covered = coverage or require_coverage
        refuse_with_layerwise(on, inputs, prove=prove, coverage=covered, thorough=thorough)
    own_size = bool(layerwise or layers or weights or inputs or dims)
    save_time(own_size=own_size, layerwise=layerwise)
    options = _options(script, twins, on, thorough=thorough, require_coverage=require_coverage)
    ranges = measured_ranges(statistics, given=bool(weights or layerwise))
    options = replace(options, each_rewrite=rewrites, prove=prove, quick=quick)
    options = replace(options, seed=seed, statistics=ranges)
    with StepProgress() as progress:
        if check_twins(file, twins, own_size=own_size):
            found = run_twins(file, pipeline, plugin, options, progress.step)
        else:
            given = (file, pipeline, plugin, layers, inputs, weights, dims)
            found = _in_file(given, options, progress, on, layerwise=layerwise)
    write_verdicts(found, coverage=coverage, as_json=as_json)
    _finish(trace, file, found, allowed)


def _in_file(
    given: tuple[str, str, list[str] | None, int | None, str | None, str | None, str],
    options: ValidationOptions,
    progress: StepProgress,
    on: str,
    *,
    layerwise: bool,
) -> list[ModuleVerdicts]:
    """Validate a module at its own size, and its wide twin if nothing says how large it is.

    The wide twin of a module that failed is not run.

    Args:
        given: a file or model, passes, plugins, layers, inputs, weights and sizes.
        options: of the validation.
        progress: of its steps.
        on: the backend of the rounding check, by name.
        layerwise: whether layers are compared one by one.
    """
    from graphgen.lowering.runnable import runnable

    file, pipeline, plugin, layers, inputs, weights, dims = given
    module = runnable(read_model(file, layers))
    passes = load_pipeline(pipeline, plugin, small=True, dims=pipeline_sizes(module, dims))
    arrays = (inputs, weights, parse_sizes(dims))
    if (files := files_of(on, file, module)) is not None:
        options = replace(options, evaluator=rounding_backend(on, files))
    found = [_of(module, passes, arrays, options, progress, layerwise=layerwise)]
    note_passes_compiled(options.evaluator, on)
    own_size = layerwise or layers or inputs or weights or dims
    if own_size or not found[0].passed:
        return found
    return found + _wide(module, pipeline, options, progress)


def _wide(
    module: Module, pipeline: str, options: ValidationOptions, progress: StepProgress
) -> list[ModuleVerdicts]:
    """Validate the wide twin of a module in a file, if it has one and not less is wanted."""
    if options.partial:
        return []
    from graphgen.passes.pipelines import parse
    from graphgen.runtime.accuracy.validate_model import validate_wide

    found = validate_wide(module, lambda sizes: parse(pipeline, sizes), options, progress.step)
    return [found] if found is not None else []


# A file of inputs, a checkpoint, and sizes of symbols.
Arrays = tuple[str | None, str | None, Mapping[str, int]]


def _of(
    module: Module,
    passes: Sequence[Pass],
    arrays: Arrays,
    options: ValidationOptions,
    progress: StepProgress,
    *,
    layerwise: bool,
) -> ModuleVerdicts:
    """Validate a module at its own size: layer by layer, or over calls."""
    if layerwise:
        return _by_layers(module, passes, options, arrays[1], progress)
    return _over_calls(module, passes, arrays, options, progress)


def _finish(
    trace: str | None, file: str, found: Sequence[ModuleVerdicts], allowed: Collection[str]
) -> None:
    """Write the page of a module that failed, else of the first one; exit with the status."""
    if trace is not None:
        run = next((run for run in found if not run.passed), found[0])
        write_validation_page(trace, file, run.module, run.passes, run.verdicts, run.calls)
    if status := exit_status(found, allowed):
        raise typer.Exit(status)


def _options(
    script: Script,
    twins: TwinsToRun | None,
    on: str,
    *,
    thorough: bool,
    require_coverage: bool,
) -> ValidationOptions:
    """The calls and numbers of ``--thorough``, or of the other options."""
    from graphgen.runtime.accuracy.validate_model import THOROUGH, ValidationOptions

    run = rounding_backend(on)
    if thorough:
        if script == "short":
            raise typer.BadParameter(
                "takes the adversarial script: leave out --script short", param_hint="'--thorough'"
            )
        return replace(THOROUGH, twins=twins or THOROUGH.twins, evaluator=run)
    return ValidationOptions(
        script=script, twins=twins or "auto", evaluator=run, require_coverage=require_coverage
    )


def _by_layers(
    module: Module,
    passes: Sequence[Pass],
    options: ValidationOptions,
    weights: str | None,
    progress: StepProgress,
) -> ModuleVerdicts:
    """Validate layer by layer."""
    from graphgen.runtime.accuracy.validate_model import ModuleVerdicts

    each = options.each_rewrite
    verdicts = run_layerwise(module, passes, options.seed, weights, progress.step, rewrites=each)
    return ModuleVerdicts(module, passes, verdicts)


def _over_calls(
    module: Module,
    passes: Sequence[Pass],
    arrays: Arrays,
    options: ValidationOptions,
    progress: StepProgress,
) -> ModuleVerdicts:
    """Validate over calls, with the arrays that the user gives."""
    from graphgen.runtime.accuracy.validate_model import validate_over

    seed, calls = options.seed, options.calls
    source = options.source_for(module, passes)
    workload = given_workload(module, passes, seed, *arrays[:2], calls, source, arrays[2])
    return validate_over(module, passes, workload, options, progress.step)
