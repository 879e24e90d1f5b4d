"""``graphgen validate --layerwise``: the weights, the estimate and the run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import typer

from graphgen.cli.console import note
from graphgen.cli.debug.workload_options import RANDOM, checked_checkpoint

if TYPE_CHECKING:
    from graphgen.ir import Module
    from graphgen.passes.core import Pass
    from graphgen.passes.verify import Verdict
    from graphgen.passes.verify.layerwise.weight_sources import WeightSource


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
) -> list[Verdict]:
    """Validate layer by layer, with an estimate beforehand on stderr.

    Args:
        module: with scopes of layers.
        passes: the pipeline.
        seed: of inputs and random weights.
        weights: a checkpoint; ``None`` or ``random`` for random ones.
        on_step: called before each step with its description.

    Raises:
        GraphgenError: GG0602 for a checkpoint that does not fit, GG0705 for a module without
            layers.
    """
    from graphgen.passes.verify.layerwise.layer_estimate import estimate
    from graphgen.passes.verify.layerwise.segment_run import SegmentRunner, calls_without_weights
    from graphgen.passes.verify.layerwise.validate_layers import validate_layers
    from graphgen.passes.verify.workload.make_workload import may_shuffle

    # In-place programs take row b of a call for row b of the cache: rows stay in order.
    shuffled = may_shuffle(module) and not any(getattr(i, "in_place", False) for i in passes)
    workload = calls_without_weights(module, seed, shuffled=shuffled)
    runner = SegmentRunner(workload, _source(module, weights, seed))
    note(str(estimate(module, workload, len(passes))))
    return validate_layers(module, passes, runner, on_step=on_step)


def _source(module: Module, weights: str | None, seed: int) -> WeightSource:
    from graphgen.passes.verify.layerwise.weight_sources import RandomWeights, StoredWeights

    if weights is None or weights == RANDOM:
        return RandomWeights(seed)
    from graphgen.runtime.weights.rank_weights import read_weight

    checkpoint = checked_checkpoint(module, weights)
    return StoredWeights(lambda row: read_weight(checkpoint, row))
