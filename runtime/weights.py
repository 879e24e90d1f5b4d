"""Weights on the devices: read from a checkpoint, prepared by the module's own weight programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase

import numpy as np

from graphgen.eval import Array, numpy_dtype, rank_index
from graphgen.ir import RANK, WEIGHTS_GLOBAL, WEIGHTS_RANK, Entry, Module, Role
from graphgen.models import family_of
from lowering.cpu import DeviceValue
from lowering.cpu.pjrt import put
from runtime.checkpoint.match import check_tensors
from runtime.checkpoint.source import Checkpoint
from runtime.preparation.memory import arrays_in_one
from runtime.preparation.pieces import Pieces, whole
from runtime.preparation.plan import plan_output
from runtime.progress import Progress

# The arrays of one rank, by the name the programs know them by.
RankArrays = Mapping[str, Array]


def check_checkpoint(checkpoint: Checkpoint, module: Module) -> None:
    """Compare the tensors of a checkpoint with what the module needs, before reading any.

    Raises:
        GraphgenError: GG0602 listing every tensor that is missing, extra or of another shape.
    """
    needed = {row.name: row.logical.dims for row in module.entries(Role.WEIGHT)}
    family = family_of(checkpoint.config)

    def ignorable(name: str) -> bool:
        # A tied head may be stored again.
        tied = name == "lm_head.weight" and name not in needed
        return tied or any(fnmatchcase(name, pattern) for pattern in family.buffers)

    check_tensors(checkpoint, needed, ignorable)


def read_weight(checkpoint: Checkpoint, row: Entry) -> Array:
    """One tensor as the checkpoint has it; a view of the file where that can be."""
    return checkpoint.read(row.name)


def program_weights(module: Module) -> list[Entry]:
    """The weights and params the programs read, in order."""
    used = {value.name for function in module.programs() for value in function.args}
    rows = [*module.entries(Role.WEIGHT), *module.entries(Role.PARAM)]
    return [row for row in rows if row.name in used]


def weight_bytes(module: Module) -> int:
    """Bytes of weights all programs read together, on one rank."""
    return sum(row.physical.nbytes for row in program_weights(module))


class RankWeights:
    """The prepared weights of every rank, one tensor at a time.

    Only what one tensor is made of is ever held: a model larger than the memory left over by its
    own weights can be loaded.

    Args:
        module: at level ``target``.
        read: gives a checkpoint tensor; it is converted to the module's element type.
    """

    def __init__(self, module: Module, read: Callable[[Entry], Array]) -> None:
        self.module = module
        self.read = read

    def on_rank(self, row: Entry, rank: int) -> Pieces:
        """What the programs of one rank see as the weight or param ``row``."""
        return self._made(row.name, rank, self._weight)

    def on_ranks(self, row: Entry) -> list[Pieces]:
        """The same for all ranks, reading each checkpoint tensor once."""
        seen: dict[str, Pieces] = {}

        def once(weight: Entry) -> Pieces:
            if weight.name not in seen:
                seen[weight.name] = self._weight(weight)
            return seen[weight.name]

        return [self._made(row.name, rank, once) for rank in range(self.module.ranks)]

    def _weight(self, row: Entry) -> Pieces:
        return whole(self.read(row), numpy_dtype(row.logical.dtype))

    def _made(self, name: str, rank: int, read: Callable[[Entry], Pieces]) -> Pieces:
        """A checkpoint tensor, or an output of a weight program by what it is made of."""
        row = self.module.interface.get(name)
        if row is not None and row.role is Role.WEIGHT:
            return read(row)
        function = next(
            found
            for home in (WEIGHTS_RANK, WEIGHTS_GLOBAL)
            if (found := self.module.functions.get(home))
            and any(output == name for output, _ in found.outputs)
        )
        return plan_output(function, name, rank, lambda made: self._made(made, rank, read))


def rank_arrays(weights: RankWeights, rank: int) -> dict[str, Array]:
    """All weights of one rank in memory, touching no bytes of the checkpoint but its own."""
    rows = program_weights(weights.module)
    home = arrays_in_one([_kind(row) for row in rows])

    def prepare(index: int) -> None:
        weights.on_rank(rows[index], rank).fill(home[index])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(prepare, range(len(rows))))
    return {row.name: array for row, array in zip(rows, home, strict=True)}


def put_weights(weights: RankWeights, progress: Progress) -> dict[str, DeviceValue]:
    """All weights on the devices, by the names the programs use.

    Tensors are prepared side by side: each is copied once, from the file to where the device reads
    it.
    """
    module = weights.module
    rows = program_weights(module)
    homes = [arrays_in_one([_kind(row) for row in rows]) for _ in range(module.ranks)]

    def prepare(index: int) -> None:
        for home, pieces in zip(homes, weights.on_ranks(rows[index]), strict=True):
            pieces.fill(home[index])

    placed: dict[str, DeviceValue] = {}
    with progress.task("loading weights") as report, ThreadPoolExecutor(os.cpu_count()) as pool:
        for done, _ in enumerate(pool.map(prepare, range(len(rows)))):
            placed[rows[done].name] = put([home[done] for home in homes])
            report((done + 1) / len(rows))
    placed[RANK] = put([rank_index(rank) for rank in range(module.ranks)])
    return placed


def _kind(row: Entry) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    """Shape and type of a weight on a rank."""
    return row.physical.dims, numpy_dtype(row.physical.dtype)


def put_arrays(ranks: Sequence[RankArrays]) -> dict[str, DeviceValue]:
    """Weights that are prepared already, one mapping a rank."""
    return {name: put([arrays[name] for arrays in ranks]) for name in ranks[0]}
