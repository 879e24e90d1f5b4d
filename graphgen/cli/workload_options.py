"""The numbers that passes are checked with: options, workload and backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from graphgen.cli.backend_option import not_auto

if TYPE_CHECKING:
    from graphgen.eval import Array
    from graphgen.exec.backend import Backend
    from graphgen.exec.session import Workload
    from graphgen.ir import Module
    from graphgen.lowering.backends.program_files import ProgramFiles
    from graphgen.passes.core import Pass
    from graphgen.passes.workload.short_script import Script
    from graphgen.passes.workload.value_ranges import ArraySource
    from graphgen.runtime.checkpoint.interfaces import Checkpoint

NO_SIZES: Mapping[str, int] = MappingProxyType({})
# Of --weights: weights that are made from their names.
RANDOM = "random"
On = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="BACKEND",
        callback=not_auto,
        help="Of the rounding check: numpy, cpu (XLA), xla, iree or pjrt:PLATFORM.",
    ),
]
Inputs = Annotated[
    str | None,
    typer.Option("--inputs", metavar="FILE.npz", help="Inputs, weights, states instead of random."),
]
Weights = Annotated[
    str | None,
    typer.Option("--weights", metavar="CHECKPOINT", help="Real weights; 'random' is the default."),
]


def given_workload(
    module: Module,
    passes: Sequence[Pass],
    seed: int,
    inputs: str | None,
    weights: str | None,
    script: Script = "auto",
    source: ArraySource | None = None,
    dims: Mapping[str, int] = NO_SIZES,
) -> Workload:
    """The workload that fits a module and what passes make of it; random, or of given arrays.

    Args:
        module: where the passes start.
        passes: the pipeline.
        seed: of random arrays.
        inputs: a file of inputs, weights and states, ``None`` for random ones.
        weights: a checkpoint, ``None`` for random weights.
        script: the calls of a language model.
        source: draws random weights and states; by default plain numbers.
        dims: sizes of symbols that the passes leave open.

    Raises:
        GraphgenError: GG0602 for weights that do not fit; what reading the files raises.
    """
    from graphgen.exec.inputs import with_arrays
    from graphgen.passes.workload.make_workload import workload_for
    from graphgen.passes.workload.value_ranges import normal_numbers

    source = source or normal_numbers
    workload = workload_for(module, passes, seed, script=script, source=source, dims=dims)
    if weights is not None and weights != RANDOM:
        workload = replace(workload, weights=_read_weights(module, weights))
    if inputs is not None:
        from graphgen.exec.inputs import read_arrays

        workload = with_arrays(workload, module, read_arrays(inputs))
    return workload


def _read_weights(module: Module, path: str) -> dict[str, Array]:
    """Read the tensors of a checkpoint that the module needs (GG0602 if one does not fit)."""
    from graphgen.ir import Role
    from graphgen.runtime.weights.rank_weights import read_weight

    checkpoint = checked_checkpoint(module, path)
    return {row.name: read_weight(checkpoint, row) for row in module.entries(Role.WEIGHT)}


def checked_checkpoint(module: Module, path: str) -> Checkpoint:
    """Open a checkpoint that has the weights of a module (GG0602 if one does not fit)."""
    from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
    from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint

    checkpoint = open_checkpoint(path)
    check_checkpoint(checkpoint, module)
    return checkpoint


def rounding_backend(on: str, files: ProgramFiles | None = None) -> Backend | None:
    """The backend of ``--on``, with the files that it may compile; ``None`` for NumPy."""
    if on == "numpy":
        return None
    from graphgen.lowering.backends.named import backend_called

    return backend_called(on, files=files)
