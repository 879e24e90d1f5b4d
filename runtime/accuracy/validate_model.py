"""Validate a pipeline on the twins of a model, or on one module, with one set of options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, cast

import numpy as np

from graphgen.analysis import fingerprint
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.exec.backend import Backend
from graphgen.exec.session import Workload
from graphgen.ir import Module, Role, dtype
from graphgen.json_value import parse_json
from graphgen.models import build
from graphgen.models.twins import TWINS, WIDE_SLOTS, TwinName, twin_buckets
from graphgen.passes.core import Pass
from graphgen.passes.quantization.quantize_weights import QuantizeWeights
from graphgen.passes.validate import PassChecks, Verdict
from graphgen.passes.validate import validate as compare_passes
from graphgen.passes.validate.bisect import Culprit, bisect_verdicts
from graphgen.passes.validate.twin_choice import twins_for
from graphgen.passes.validate.whole_pipeline import verdict_of_ends
from graphgen.passes.workload.make_workload import is_language_model, workload_for
from graphgen.passes.workload.program_shapes import dry_run
from graphgen.passes.workload.short_script import Script
from graphgen.passes.workload.value_ranges import (
    ArraySource,
    RealisticNumbers,
    Statistics,
    normal_numbers,
    place_of,
    statistics_of,
)
from graphgen.read_file import is_there
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint

# Rows of a matrix that are read, evenly spread, and the most layers that are looked at.
SAMPLED_ROWS = 512
SAMPLED_LAYERS = 8
_FLOATS = ("f64", "f32", "bf16", "f16")


def checkpoint_statistics(model: str) -> dict[str, list[Statistics]]:
    """The ranges of the weights of a checkpoint, by their names without layers.

    Args:
        model: a checkpoint folder, a ``.gguf`` file, or a name such as ``smollm2``.

    Returns:
        For ``mlp.down_proj.weight`` and the like the ranges of some layers, first to last; for a
        weight outside of layers, by its whole name, its own.

    Raises:
        GraphgenError: GG0601 and others for what cannot be read.
    """
    found = None if is_there(Path(model)) else locate(model)
    return statistics_by_place(open_checkpoint(found or model))


def statistics_by_place(checkpoint: Checkpoint) -> dict[str, list[Statistics]]:
    """The ranges of some rows of the float weights of some layers; see the function above."""
    names: dict[str, list[tuple[int, str]]] = {}
    for name, info in checkpoint.tensors().items():
        if info.dtype in _FLOATS and info.shape:
            place, layer = place_of(name)
            names.setdefault(place, []).append((layer, name))
    return {
        place: [statistics_of(_some_rows(checkpoint.read(name))) for name in _some(layers)]
        for place, layers in names.items()
    }


def _some(layers: Sequence[tuple[int, str]]) -> list[str]:
    """The names of the first layer, the last, and some between them."""
    ordered = [name for _, name in sorted(layers)]
    return [ordered[place] for place in _evenly(len(ordered), SAMPLED_LAYERS)]


def _some_rows(array: Array) -> Array:
    return array[_evenly(len(array), SAMPLED_ROWS)] if array.ndim >= 2 else array


def _evenly(count: int, most: int) -> list[int]:
    """At most ``most`` numbers below ``count``, both ends among them."""
    places = np.linspace(0, count - 1, min(count, most)).round().astype(int)
    return [int(place) for place in places]


# Both twins, one of them, or those that show what the passes touch.
TwinsToRun = Literal["auto", "mini", "wide", "both"]
# Numbers of weights and states: of one size, or with the ranges of trained models.
Values = Literal["plain", "realistic"]
# Passes for the batch sizes and buckets of a twin.
PassesFor = Callable[[CompileConfig], Sequence[Pass]]


@dataclass(frozen=True, slots=True)
class ValidationOptions:
    """The calls and numbers that passes are compared over, and the checks beside them.

    Attributes:
        script: ``short``, ``adversarial``, or ``auto``: by what the passes touch.
        values: ``plain`` or ``realistic``; passes that quantize weights always get plain ones, as
            the rounding that they declare was measured on those.
        twins: of a model: which twins to run.
        dtype: of a model: element type of weights, activations and caches.
        seed: of weights, states and inputs.
        each_rewrite: whether each rewrite is also checked alone.
        require_coverage: whether a module is wrong of which a program, branch or loop body was not
            run, even where no pass changed that.
        prove: look for a proof, besides, that programs are equal for all sizes.
        statistics: ranges of the weights of a checkpoint, by their names without layers; they
            replace those of ``realistic``.
        evaluator: computes the rounding check, NumPy if ``None``.
        quick: few calls, by what the passes touch, and the wide twin where they touch large
            numbers: the verdicts are of what was tried.
    """

    script: Script = "auto"
    values: Values = "plain"
    twins: TwinsToRun = "auto"
    dtype: str = "bf16"
    seed: int = 0
    each_rewrite: bool = True
    require_coverage: bool = False
    prove: bool = False
    statistics: Mapping[str, Sequence[Statistics]] | None = None
    evaluator: Backend | None = None
    quick: bool = False

    @property
    def partial(self) -> bool:
        """True if more would be tried by default."""
        return self.quick or self.script == "short"

    @property
    def calls(self) -> Script:
        """The script that workloads are made of."""
        return "quick" if self.quick and self.script == "auto" else self.script

    def values_for(self, passes: Sequence[Pass]) -> Literal["plain", "realistic", "measured"]:
        """The numbers that a pipeline gets: ``measured`` are those of a checkpoint's statistics."""
        if any(isinstance(item, QuantizeWeights) for item in passes):
            return "plain"
        return self.values if self.statistics is None else "measured"

    def source_for(self, module: Module, passes: Sequence[Pass]) -> ArraySource:
        """Draws weights and states of a module.

        Raises:
            GraphgenError: GG0602 where the statistics are of no weight of the module.
        """
        if self.values_for(passes) == "plain":
            return normal_numbers
        weights = [row.name for row in module.entries(Role.WEIGHT)]
        if self.statistics is not None and not any(
            place_of(name)[0] in self.statistics for name in weights
        ):
            raise GraphgenError(
                "GG0602",
                f"the checkpoint of the statistics has none of the {len(weights)} weights of "
                f"@{module.name}, such as {weights[0] if weights else 'none'}",
                help="give a checkpoint of the same family of models",
            )
        return RealisticNumbers(self.statistics or {})


# Everything that finds faults: what ``graphgen validate --thorough`` does.
THOROUGH = ValidationOptions(
    script="adversarial", values="realistic", twins="both", require_coverage=True
)


@dataclass(frozen=True, slots=True)
class ModuleVerdicts:
    """The verdicts of a pipeline on one module.

    Attributes:
        module: before the passes.
        passes: the pipeline.
        verdicts: one for each pass that ran.
        twin: of a model, its twin; ``None`` for a module that was given.
        calls: what each call that was compared is made for.
        require_coverage: whether all of the module has to be run.
        values: the numbers of weights and states: plain, realistic, or measured in a checkpoint.
        whole: whether the one verdict is on all passes together.
    """

    module: Module
    passes: Sequence[Pass]
    verdicts: Sequence[Verdict]
    twin: TwinName | None = None
    calls: Sequence[str] = ()
    require_coverage: bool = False
    values: str = "plain"
    whole: bool = False

    @property
    def not_run(self) -> list[str]:
        """The passes after one that raised."""
        if self.whole:
            return []
        return [str(item) for item in self.passes[len(self.verdicts) :]]

    @property
    def not_covered(self) -> bool:
        """True if calls missed a part of what a pass changed, or more would be tried by default."""
        return any(verdict.uncovered or verdict.partial for verdict in self.verdicts)

    @property
    def passed(self) -> bool:
        """True if every pass ran and no check failed; all was run where that is required."""
        covered = not self.require_coverage or all(
            v.complete and not v.uncovered for v in self.verdicts
        )
        return covered and not self.not_run and all(v.passed for v in self.verdicts)


def validate_model(
    config: Mapping[str, object],
    passes: PassesFor,
    options: ValidationOptions | None = None,
    on_step: Callable[[str], None] | None = None,
) -> list[ModuleVerdicts]:
    """Validate a pipeline on the twins of a model, one after the other.

    Args:
        config: the model's ``config.json``.
        passes: gives the pipeline for the buckets of a twin.
        options: the defaults if none are given; :data:`THOROUGH` for all that finds faults.
        on_step: called before each step with its description, for progress.

    Raises:
        GraphgenError: GG0501 to GG0503 for a configuration that is not understood; GG0303 for
            passes in a wrong order.
    """
    options = options or ValidationOptions()
    found: list[ModuleVerdicts] = []
    for twin in _chosen(config, passes, options):
        module = build(config, dtype(options.dtype), twin=twin)
        pipeline = passes(twin_buckets(twin))
        step = partial(_named_step, on_step, twin) if on_step is not None else None
        found.append(validate_module(module, pipeline, options, step, twin))
    return found


def validate_module(
    module: Module,
    passes: Sequence[Pass],
    options: ValidationOptions | None = None,
    on_step: Callable[[str], None] | None = None,
    twin: TwinName | None = None,
) -> ModuleVerdicts:
    """Validate a pipeline on one module, over the calls and numbers of the options.

    Args:
        module: at any level; unchanged.
        passes: the pipeline.
        options: ``twins`` and ``dtype`` are those of ``module``.
        on_step: called before each step with its description.
        twin: the twin that ``module`` is, if it is one: caches of a wide one are long where
            programs leave their slots free.

    Raises:
        GraphgenError: GG0303 for passes in a wrong order; what a run of ``module`` raises.
    """
    options = options or ValidationOptions()
    beside = twin == "wide" and _is_beside(options)
    workload = _workload(module, passes, options, twin)
    if beside:
        found = _ends(module, passes, workload, options, on_step)
        if found is not None:
            return found
        # Rewrites alone are checked on the mini, whose programs are the same but for their sizes.
        options = replace(options, each_rewrite=False)
    return validate_over(module, passes, workload, options, on_step, twin)


def _is_beside(options: ValidationOptions) -> bool:
    """True if a wide twin is run beside a mini, for faults that only large numbers show."""
    return options.twins == "auto" and not options.partial


def _workload(
    module: Module, passes: Sequence[Pass], options: ValidationOptions, twin: TwinName | None
) -> Workload:
    """The calls and arrays that passes over a module, or over a twin, are compared on."""
    large = twin == "wide" and _is_beside(options) and options.script == "auto"
    return workload_for(
        module,
        passes,
        options.seed,
        script="long" if large else options.calls,
        source=options.source_for(module, passes),
        slots=WIDE_SLOTS if twin == "wide" else 0,
    )


def bisect_wide(
    module: Module,
    passes: PassesFor,
    options: ValidationOptions,
    on_step: Callable[[str], None] | None = None,
) -> Culprit | None:
    """Bisect a pipeline on the wide twin of a module, by the calls of :func:`validate_wide`.

    Args:
        module: as it was built from a configuration, which it holds.
        passes: gives the pipeline for the buckets of a twin.
        options: of the validation; rewrites alone are checked on the module itself.
        on_step: called before each step with its description.

    Returns:
        ``None`` where the module has no wide twin, and where nothing is wrong on it.

    Raises:
        GraphgenError: as :func:`validate_module`.
    """
    found = wide_pipeline(module, passes)
    if found is None:
        return None
    wide, pipeline = found
    step = _wide_step(on_step)
    workload = _workload(wide, pipeline, options, "wide")
    if _ends(wide, pipeline, workload, options, step) is not None:
        return None
    checks = PassChecks(options.evaluator, on_step=step)
    return bisect_verdicts(wide, pipeline, workload, checks)


def validate_wide(
    module: Module,
    passes: PassesFor,
    options: ValidationOptions,
    on_step: Callable[[str], None] | None = None,
) -> ModuleVerdicts | None:
    """Validate a pipeline on the wide twin of a module; ``None`` where the module has none.

    Args:
        module: as it was built from a configuration, which it holds.
        passes: gives the pipeline for the buckets of a twin.
        options: of the validation.
        on_step: called before each step with its description.

    Raises:
        GraphgenError: as :func:`validate_module`.
    """
    found = wide_pipeline(module, passes)
    return None if found is None else validate_module(*found, options, _wide_step(on_step), "wide")


def wide_pipeline(module: Module, passes: PassesFor) -> tuple[Module, Sequence[Pass]] | None:
    """The :func:`wide_twin` of a module, and a pipeline for its buckets; ``None`` without a twin.

    Args:
        module: as it was built from a configuration.
        passes: gives the pipeline for the buckets of a twin.
    """
    wide = wide_twin(module)
    return None if wide is None else (wide, passes(twin_buckets("wide")))


def _wide_step(on_step: Callable[[str], None] | None) -> Callable[[str], None] | None:
    return partial(_named_step, on_step, "wide") if on_step is not None else None


def wide_twin(module: Module) -> Module | None:
    """The wide twin of the configuration that a module was built from.

    ``None`` for a module that has none, is another one than its configuration gives, as after
    passes, or is a wide twin itself.
    """
    if not module.meta.keys() >= {"config", "dtype"}:
        return None
    config = cast("Mapping[str, object]", parse_json(module.meta["config"]))
    kind = dtype(module.meta["dtype"])
    phases = tuple(function.phase for function in module.programs())
    try:
        again, wide = (build(config, kind, phases=phases, twin=twin) for twin in (None, "wide"))
    except GraphgenError:
        return None
    own = fingerprint(module)
    return wide if own == fingerprint(again) and own != fingerprint(wide) else None


def _ends(
    module: Module,
    passes: Sequence[Pass],
    workload: Workload,
    options: ValidationOptions,
    on_step: Callable[[str], None] | None,
) -> ModuleVerdicts | None:
    """The verdict on all passes together, of a wide twin; ``None`` where each has to be checked."""
    if options.prove:
        return None
    found = verdict_of_ends(module, passes, workload, options.evaluator, on_step)
    if found is None:
        return None
    return ModuleVerdicts(
        module,
        passes,
        [found],
        "wide",
        [call.note for call in workload.calls],
        options.require_coverage,
        options.values_for(passes),
        whole=True,
    )


def validate_over(
    module: Module,
    passes: Sequence[Pass],
    workload: Workload,
    options: ValidationOptions,
    on_step: Callable[[str], None] | None = None,
    twin: TwinName | None = None,
) -> ModuleVerdicts:
    """Validate a pipeline on one module, over calls and arrays that are given.

    Args:
        module: at any level; unchanged.
        passes: the pipeline.
        workload: the calls and arrays.
        options: the checks.
        on_step: called before each step with its description.
        twin: the twin that ``module`` is, if it is one.

    Raises:
        GraphgenError: as :func:`validate_module`.
    """
    less = options.partial and is_language_model(module)
    checks = PassChecks(
        options.evaluator, options.prove, options.each_rewrite, on_step, partial=less
    )
    return ModuleVerdicts(
        module,
        passes,
        compare_passes(module, passes, workload, checks),
        twin,
        [call.note for call in workload.calls],
        options.require_coverage,
        options.values_for(passes),
    )


def _named_step(on_step: Callable[[str], None], twin: TwinName, text: str) -> None:
    on_step(f"{twin} twin, {text}")


def _chosen(
    config: Mapping[str, object], passes: PassesFor, options: ValidationOptions
) -> Sequence[TwinName]:
    """The twins to run."""
    if options.twins == "both":
        return TWINS
    if options.twins != "auto":
        return (options.twins,)
    if not options.partial:
        return TWINS
    module = build(config, dtype(options.dtype), twin="mini")
    return twins_for(dry_run(module, passes(twin_buckets("mini"))).journal)
