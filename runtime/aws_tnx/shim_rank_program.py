"""Compiled programs over the ranks of this CPU: ``torch.classes.neuron`` as its users call it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch  # noqa: TID253 - imported by install() alone, which needs torch

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_tnx.shim_compile_hlo import hlo_in
from graphgen.runtime.aws_tnx.shim_rank_tensor import RankTensor, write_ranks

if TYPE_CHECKING:
    from graphgen.eval import Array
    from graphgen.ir import TensorType
    from graphgen.lowering.cpu.program import CpuProgram, DeviceValue

# Devices of the CPU are made once; later programs may need more than the first.
MOST_RANKS = 8
KEY = "rng_key"


class ParallelTensorSet:
    """The tensors of a program's inputs or outputs, by number.

    Args:
        names: of the tensors.
        ranks: on which they are.
    """

    def __init__(self, names: Sequence[str], ranks: int) -> None:
        self.names = list(names)
        self.ranks = ranks
        self.tensors: dict[int, RankTensor] = {}

    def init(self) -> None:
        """Forget the tensors."""
        self.tensors.clear()

    def add(self, index: int, tensor: RankTensor) -> None:
        """Use ``tensor`` as number ``index`` (GG0705 for a number beyond the names)."""
        if not 0 <= index < len(self.names):
            raise GraphgenError("GG0705", f"tensor {index} of a set of {len(self.names)}")
        self.tensors[index] = tensor

    def tensor(self, index: int) -> RankTensor:
        """Tensor number ``index`` (GG0705 where it was not added)."""
        found = self.tensors.get(index)
        if found is None:
            raise GraphgenError("GG0705", f"{self.names[index]} was not added to its tensor set")
        return found


class ParallelModel:
    """A program on ``ranks`` ranks.

    Args:
        neff: what ``neuron_xla_compile`` made.
        ranks: on how many it runs.
        start, count: the first rank of this machine and the number of all ranks.
    """

    def __init__(self, neff: bytes, ranks: int, start: int = 0, count: int | None = None) -> None:
        if start or count not in (None, ranks):
            what = f"ranks {start} to {start + ranks - 1} of {count}: all ranks are in this process"
            raise GraphgenError("GG0904", what)
        self.neff, self.ranks = bytes(neff), ranks
        self.program: CpuProgram | None = None
        self.runs = 0

    def load(self) -> None:
        """Compile the program for this CPU.

        Raises:
            GraphgenError: what does not compile here, such as GG0403 for an unknown kernel.
        """
        from graphgen.lowering.cpu import compile_program, pjrt
        from graphgen.lowering.hlo import read_hlo
        from graphgen.passes.core import run_pipeline
        from graphgen.passes.legalize.legalize import Legalize

        with contextlib.suppress(GraphgenError):  # Where JAX has started with fewer.
            pjrt.configure(max(MOST_RANKS, self.ranks))
        module = read_hlo(hlo_in(self.neff))
        if module.ranks > self.ranks:
            what = f"@{module.name} talks to {module.ranks} ranks, and is loaded on {self.ranks}"
            raise GraphgenError("GG0705", what)
        if self.ranks > 1:
            # Without collectives the file says nothing of ranks: each runs the program alone.
            module.mesh, module.level = {"tp": self.ranks}, "sharded"
        run_pipeline(module, [Legalize()])
        (function,) = module.programs()
        self.program = compile_program(module, function)

    def run(self, inputs: ParallelTensorSet, outputs: ParallelTensorSet) -> None:
        """Run once: read the tensors of ``inputs``, write those of ``outputs`` (GG0705)."""
        program = self.program
        if program is None:
            raise GraphgenError("GG0705", "the model is not loaded", help="call load() first")
        values: dict[str, DeviceValue] = {}
        for index, (name, type_) in enumerate(program.arguments):
            if name == KEY and index not in inputs.tensors:
                values[name] = self._key()
            else:
                kept = name not in program.states
                values[name] = _placed(inputs.tensor(index), type_, self.ranks, kept)
        made = program.launch(values)
        for index, name in enumerate(program.outputs):
            _write(outputs.tensor(index), made[name])
        self.runs += 1

    def _key(self) -> DeviceValue:
        """The key of random numbers: torch's seed, and the number of this run."""
        import numpy as np

        from graphgen.lowering.cpu import pjrt

        key = np.array([torch.initial_seed() % 2**32, self.runs], np.uint32)
        return pjrt.put([key] * self.ranks)


@dataclass(frozen=True, slots=True)
class ParallelExecutor:
    """A model with its tensors, run on tensors of the host.

    Attributes:
        model: the program.
        inputs, outputs: all its tensors.
        given: those of ``inputs`` that a call writes.
        returned: those of ``outputs`` that a call copies to the host.
    """

    model: ParallelModel
    inputs: ParallelTensorSet
    outputs: ParallelTensorSet
    given: Sequence[RankTensor] = field(default_factory=list[RankTensor])
    returned: Sequence[RankTensor] = field(default_factory=list[RankTensor])

    def run(self, tensors: Sequence[torch.Tensor], return_ranks: int) -> list[torch.Tensor]:
        """The outputs of the first ``return_ranks`` ranks along dimension 0; -1 for all ranks."""
        # A library may pass fewer tensors than the program has; the others keep their contents.
        for memory, tensor in zip(self.given, tensors, strict=False):
            write_ranks(memory, [tensor] * self.model.ranks)
        self.model.run(self.inputs, self.outputs)
        if return_ranks == 0:
            return []
        count = self.model.ranks if return_ranks < 0 else return_ranks
        if count == 1:
            return [item.ranks[0].clone() for item in self.returned]
        return [torch.cat(item.ranks[:count], dim=0) for item in self.returned]


def _placed(tensor: RankTensor, type_: TensorType, ranks: int, kept: bool) -> DeviceValue:
    """The tensor on the devices; one that is not written stays there between runs."""
    from graphgen.lowering.cpu import pjrt

    if len(tensor.ranks) != ranks:
        raise GraphgenError("GG0705", f"{tensor!r} is given to a program of {ranks} ranks")
    found = tensor.placed.get(type_)
    versions = tensor.versions
    if found is not None and found[0] == versions:
        return found[1]
    value = pjrt.put([_array(item, type_).copy() for item in tensor.ranks])
    if kept:
        tensor.placed[type_] = versions, value
    return value


def _array(tensor: torch.Tensor, type_: TensorType) -> Array:
    """The memory of a tensor as an array of ``type_``, by its bytes from the start (GG0705)."""
    from graphgen.eval.arithmetic import numpy_dtype

    memory = tensor.contiguous().view(-1).view(torch.uint8).numpy()
    size = type_.nbytes
    if len(memory) < size:
        what = f"{tensor.dtype}{list(tensor.shape)} is too small for {type_.text}"
        raise GraphgenError("GG0705", what)
    return memory[:size].view(numpy_dtype(type_.dtype)).reshape(type_.dims)


def _write(tensor: RankTensor, values: Sequence[DeviceValue]) -> None:
    """Write a rank's result into its memory, by its bytes from the start (GG0705)."""
    import numpy as np

    for memory, value in zip(tensor.ranks, values, strict=True):
        found = np.ascontiguousarray(np.asarray(value)).reshape(-1).view(np.uint8)
        if not found.size:
            continue
        made = torch.frombuffer(bytearray(found.tobytes()), dtype=memory.dtype)
        if made.numel() > memory.numel():
            what = f"a result of {value.dtype}{list(value.shape)} does not fit into {tensor!r}"
            raise GraphgenError("GG0705", what)
        if made.numel() == memory.numel():
            memory.copy_(made.view(memory.shape))
        else:
            memory.view(-1)[: made.numel()].copy_(made)
