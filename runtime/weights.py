"""Weights on the devices: read from a checkpoint, prepared by the module's own weight programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from graphgen.eval import Array, evaluate, numpy_dtype
from graphgen.ir import RANK, WEIGHTS_GLOBAL, WEIGHTS_RANK, Entry, Module, Role
from lowering.cpu import DeviceValue
from lowering.cpu.pjrt import put
from runtime.checkpoint.match import check_tensors
from runtime.checkpoint.source import Checkpoint
from runtime.progress import Progress

# The arrays of one rank, by the name the programs know them by.
RankArrays = Mapping[str, Array]


def check_checkpoint(checkpoint: Checkpoint, module: Module) -> None:
    """Compare the tensors of a checkpoint with what the module needs, before reading any.

    Raises:
        GraphgenError: GG0602 listing every tensor that is missing, extra or of another shape.
    """
    needed = {row.name: row.logical.dims for row in module.entries(Role.WEIGHT)}

    def ignorable(name: str) -> bool:
        # A tied head may be stored again; the rotary frequencies are computed.
        tied = name == "lm_head.weight" and name not in needed
        return tied or name.endswith(".rotary_emb.inv_freq")

    check_tensors(checkpoint, needed, ignorable)


def read_weight(checkpoint: Checkpoint, row: Entry) -> Array:
    """One tensor in the module's element type."""
    return checkpoint.read(row.name).astype(numpy_dtype(row.logical.dtype), copy=False)


def program_weights(module: Module) -> list[Entry]:
    """The weights and params the programs read, in order."""
    used = {value.name for function in module.programs() for value in function.args}
    rows = [*module.entries(Role.WEIGHT), *module.entries(Role.PARAM)]
    return [row for row in rows if row.name in used]


def weight_bytes(module: Module) -> int:
    """Bytes of weights all programs read together, on one rank."""
    return sum(row.physical.nbytes for row in program_weights(module))


class RankWeights:
    """The prepared weights of every rank, made one tensor or one weight program at a time.

    Args:
        module: at level ``target``.
        read: gives a checkpoint tensor in the module's element type.
    """

    def __init__(self, module: Module, read: Callable[[Entry], Array]) -> None:
        self.module = module
        self.read = read

    def direct(self) -> Iterator[tuple[str, Array]]:
        """Checkpoint tensors that the programs read as they are, the same on all ranks."""
        for row in program_weights(self.module):
            if row.role is Role.WEIGHT:
                yield row.name, self.read(row)

    def prepared(self) -> list[dict[str, Array]]:
        """Per rank, what ``@weights.global`` and ``@weights.rank`` make."""
        shared = self._run(WEIGHTS_GLOBAL, {})
        ranks: list[dict[str, Array]] = []
        for rank in range(self.module.ranks):
            index = rank_index(rank)
            made = self._run(WEIGHTS_RANK, {**shared, RANK: index})
            ranks.append({**shared, **made, RANK: index})
        return ranks

    def _run(self, name: str, given: Mapping[str, Array]) -> dict[str, Array]:
        function = self.module.functions.get(name)
        if function is None:
            return {}
        inputs = dict(given)
        for value in function.args:
            if value.name and value.name not in inputs:
                inputs[value.name] = self.read(self.module.interface[value.name])
        return evaluate(function, inputs)


def rank_index(rank: int) -> Array:
    """The rank as the programs take it: s32[1]."""
    return np.asarray([rank], np.int32)


def put_weights(weights: RankWeights, progress: Progress) -> dict[str, DeviceValue]:
    """All weights on the devices, by the names the programs use."""
    module = weights.module
    count = max(len(program_weights(module)), 1)
    placed: dict[str, DeviceValue] = {}
    with progress.task("loading weights") as report:
        for done, (name, array) in enumerate(weights.direct()):
            placed[name] = put([array] * module.ranks)
            report(done / count)
        ranks = weights.prepared()
        for name in ranks[0]:
            placed[name] = put([arrays[name] for arrays in ranks])
        report(1.0)
    return placed


def put_arrays(ranks: Sequence[RankArrays]) -> dict[str, DeviceValue]:
    """Weights that are prepared already, one mapping a rank."""
    return {name: put([arrays[name] for arrays in ranks]) for name in ranks[0]}
