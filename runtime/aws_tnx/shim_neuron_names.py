"""The operations of ``torch.ops.neuron`` by name, over tensors and programs of the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import torch  # noqa: TID253 - imported by install() alone, which needs torch

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_tnx.shim_rank_program import (
    ParallelExecutor,
    ParallelModel,
    ParallelTensorSet,
)
from graphgen.runtime.aws_tnx.shim_rank_tensor import (
    RankTensor,
    from_ranks,
    slice_ranks,
    to_ranks,
    write_ranks,
)


def _to_one(tensor: torch.Tensor, ordinal: int = 0) -> RankTensor:
    return to_ranks([tensor])


def _from_one(tensor: RankTensor) -> torch.Tensor:
    return from_ranks(tensor)[0]


def _run(model: ParallelModel, inputs: ParallelTensorSet, outputs: ParallelTensorSet) -> None:
    model.run(inputs, outputs)


def _run_executor(
    executor: ParallelExecutor, tensors: Sequence[torch.Tensor], return_ranks: int
) -> list[torch.Tensor]:
    return executor.run(tensors, return_ranks)


class NeuronNamespace(SimpleNamespace):
    """Names of torch that a Neuron library registers; any other is refused by name (GG0904)."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        raise GraphgenError(
            "GG0904",
            f"torch's neuron.{name} has no stand-in",
            help="graphgen tnx check lists the names that have one",
        )


def operations() -> NeuronNamespace:
    """The stand-in for ``torch.ops.neuron``."""
    return NeuronNamespace(
        _init_neuron=lambda: None,
        _to_neuron=_to_one,
        _from_neuron=_from_one,
        _slice_neuron=slice_ranks,
        _parallel_to_neuron=to_ranks,
        _parallel_from_neuron=from_ranks,
        _parallel_write_neuron=write_ranks,
        _parallel_slice_neuron=slice_ranks,
        _parallel_run_neuron=_run,
        _parallel_executor_run=_run_executor,
    )


def classes() -> NeuronNamespace:
    """The stand-in for ``torch.classes.neuron``."""
    return NeuronNamespace(
        ParallelTensorSet=ParallelTensorSet,
        ParallelModel=ParallelModel,
        ParallelExecutor=ParallelExecutor,
    )
