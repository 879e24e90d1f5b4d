"""Weights on the devices: read from a checkpoint, prepared by the module's own weight programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphgen.eval import Array, arguments_of, evaluate_output, numpy_dtype, rank_index
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
    """The prepared weights of every rank, one tensor at a time.

    Only what one tensor is made of is ever held: a model larger than the memory left over by its
    own weights can be loaded.

    Args:
        module: at level ``target``.
        read: gives a checkpoint tensor in the module's element type.
    """

    def __init__(self, module: Module, read: Callable[[Entry], Array]) -> None:
        self.module = module
        self.read = read

    def on_rank(self, row: Entry, rank: int) -> Array:
        """What the programs of one rank see as the weight or param ``row``."""
        return self._made(row, rank, self.read)

    def on_ranks(self, row: Entry) -> list[Array]:
        """The same for all ranks, reading each checkpoint tensor once."""
        seen: dict[str, Array] = {}

        def read(weight: Entry) -> Array:
            if weight.name not in seen:
                seen[weight.name] = self.read(weight)
            return seen[weight.name]

        return [self._made(row, rank, read) for rank in range(self.module.ranks)]

    def _made(self, row: Entry, rank: int, read: Callable[[Entry], Array]) -> Array:
        return read(row) if row.role is Role.WEIGHT else self._output(row.name, rank, read)

    def _output(self, name: str, rank: int, read: Callable[[Entry], Array]) -> Array:
        """One output of ``@weights.rank``, or of ``@weights.global``, by what it is made of."""
        function = next(
            found
            for home in (WEIGHTS_RANK, WEIGHTS_GLOBAL)
            if (found := self.module.functions.get(home))
            and any(output == name for output, _ in found.outputs)
        )
        inputs: dict[str, Array] = {}
        for argument in arguments_of(function, name):
            weight = self.module.interface.get(argument)
            if argument == RANK:
                inputs[argument] = rank_index(rank)
            elif weight is not None and weight.role is Role.WEIGHT:
                inputs[argument] = read(weight)
            else:
                inputs[argument] = self._output(argument, rank, read)
        return evaluate_output(function, name, inputs)


def put_weights(weights: RankWeights, progress: Progress) -> dict[str, DeviceValue]:
    """All weights on the devices, by the names the programs use."""
    module = weights.module
    count = max(len(program_weights(module)), 1)
    placed: dict[str, DeviceValue] = {}
    with progress.task("loading weights") as report:
        for done, row in enumerate(program_weights(module)):
            placed[row.name] = put(weights.on_ranks(row))
            report((done + 1) / count)
    placed[RANK] = put([rank_index(rank) for rank in range(module.ranks)])
    return placed


def put_arrays(ranks: Sequence[RankArrays]) -> dict[str, DeviceValue]:
    """Weights that are prepared already, one mapping a rank."""
    return {name: put([arrays[name] for arrays in ranks]) for name in ranks[0]}
