"""``graphgen validate``: check passes numerically; name the first wrong rewrite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from graphgen.cli.debug.layerwise import one_blas_thread, refuse_with_layerwise, run_layerwise
from graphgen.cli.debug.model_argument import (
    MeasuredIn,
    ModelOrFile,
    Thorough,
    Twins,
    check_twins,
    measured_ranges,
    read_model,
    run_twins,
)
from graphgen.cli.debug.step_progress import StepProgress
from graphgen.cli.debug.validation_output import write_verdicts
from graphgen.cli.debug.validation_page import check_page, write_validation_page
from graphgen.cli.debug.workload_options import (
    Inputs,
    On,
    Weights,
    given_workload,
    rounding_backend,
)
from graphgen.cli.dims_option import Dims, parse_sizes, pipeline_sizes
from graphgen.cli.shared_options import (
    AsJson,
    FirstLayers,
    PipelineOption,
    Plugins,
    ScriptOption,
    Seed,
    load_pipeline,
)

if TYPE_CHECKING:
    from graphgen.ir import Module
    from graphgen.passes.core import Pass
    from graphgen.passes.verify.workload.script_choice import Script
    from graphgen.runtime.validation.validate_model import (
        ModuleVerdicts,
        TwinsToRun,
        ValidationOptions,
    )

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
        return _by_layers(module, passes, options.seed, arrays[1], progress)
    return _over_calls(module, passes, arrays, options, progress)


def _finish(trace: str | None, file: str, found: Sequence[ModuleVerdicts]) -> None:
    """Write the page of the last module that was run; exit with 1 if any failed."""
    if trace is not None:
        run = found[-1]
        write_validation_page(trace, file, run.module, run.passes, run.verdicts, run.calls)
    if not all(run.passed for run in found):
        raise typer.Exit(1)


def _options(
    script: Script,
    twins: TwinsToRun | None,
    on: str,
    *,
    thorough: bool,
    require_coverage: bool,
) -> ValidationOptions:
    """The calls and numbers of ``--thorough``, or of the other options."""
    from graphgen.runtime.validation.validate_model import THOROUGH, ValidationOptions

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
    module: Module, passes: Sequence[Pass], seed: int, weights: str | None, progress: StepProgress
) -> ModuleVerdicts:
    """Validate layer by layer."""
    from graphgen.runtime.validation.validate_model import ModuleVerdicts

    verdicts = run_layerwise(module, passes, seed, weights, progress.step)
    return ModuleVerdicts(module, passes, verdicts)


def _over_calls(
    module: Module,
    passes: Sequence[Pass],
    arrays: Arrays,
    options: ValidationOptions,
    progress: StepProgress,
) -> ModuleVerdicts:
    """Validate over calls, with the arrays that the user gives."""
    from graphgen.runtime.validation.validate_model import validate_over

    seed, calls = options.seed, options.script
    source = options.source_for(module, passes)
    workload = given_workload(module, passes, seed, *arrays[:2], calls, source, arrays[2])
    return validate_over(module, passes, workload, options, progress.step)
