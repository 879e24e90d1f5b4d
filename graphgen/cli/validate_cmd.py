"""``graphgen validate``: check passes numerically; name the first wrong rewrite."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

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


def one_blas_thread() -> None:
    """Limit BLAS to one thread, since tiles are worked on in parallel; before NumPy is imported."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


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
    layerwise: Layerwise = False,
    layers: FirstLayers = None,
    coverage: Coverage = False,
    require_coverage: RequireCoverage = False,
    trace: Trace = None,
    as_json: AsJson = False,
) -> None:
    """Run passes over a module and compare the numbers before and after each.

    A language model is taken through calls that fit its programs and what the passes make of them;
    '--script adversarial' adds prefixes, full buckets, last slots, rows used again. 'meaning' is
    computed in float64 without rounding, 'rounding' in the module's own types. Exit status 1 when a
    pass fails; the rewrite at fault is named. A pass also fails that raises an exception, differs
    when run again or records no rewrite; one whose change no call reached is "not covered".

    A model is validated on its small twins: the mini, and a wide one, whose ids and positions pass
    16 bits. --layers, --weights, --inputs and --layerwise (layer by layer) take it at its own size.

    \b
    Examples:
      graphgen validate llama-3.1-8b --thorough
      graphgen validate mini.gg -p 'canonicalize,my-pass' --plugin my_pass.py
      graphgen validate llama-3.1-405b --layers 1 --layerwise
    """
    check_page(trace)
    if layerwise:
        one_blas_thread()
        covered = coverage or require_coverage
        refuse_with_layerwise(on, inputs, prove=prove, coverage=covered, thorough=thorough)
    on_twins = check_twins(
        file, twins, own_size=bool(layerwise or layers or weights or inputs or dims)
    )
    options = _options(script, twins, on, thorough=thorough, require_coverage=require_coverage)
    ranges = measured_ranges(statistics, given=bool(weights or layerwise))
    options = replace(options, seed=seed, each_rewrite=rewrites, prove=prove, statistics=ranges)
    with StepProgress() as progress:
        if on_twins:
            found = run_twins(file, pipeline, plugin, options, progress.step)
        else:
            module = read_model(file, layers)
            passes = load_pipeline(pipeline, plugin, small=True, dims=pipeline_sizes(module, dims))
            arrays = (inputs, weights, parse_sizes(dims))
            found = [_of(module, passes, arrays, options, progress, layerwise=layerwise)]
    write_verdicts(found, coverage=coverage, as_json=as_json)
    _finish(trace, file, found)


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


def _finish(trace: str | None, file: str, found: Sequence[ModuleVerdicts]) -> None:
    """Write the page of the last module that was run; exit with 1 if any failed."""
    if trace is not None:
        run = found[-1]
        write_validation_page(trace, file, run.module, run.passes, run.verdicts, run.calls)
    if not all(run.passed for run in found):
        raise typer.Exit(1)
    if not all(verdict.budget_explained for run in found for verdict in run.verdicts):
        raise typer.Exit(2)


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

    seed, calls = options.seed, options.script
    source = options.source_for(module, passes)
    workload = given_workload(module, passes, seed, *arrays[:2], calls, source, arrays[2])
    return validate_over(module, passes, workload, options, progress.step)
