"""Prepare checkpoint weights per rank by the module's weight programs and put them on devices."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from graphgen.analysis.stage_chain import stage_arguments, stage_count
from graphgen.errors import GraphgenError
from graphgen.eval import Array, arguments_of, numpy_dtype, rank_index
from graphgen.ir import RANK, WEIGHTS_GLOBAL, WEIGHTS_RANK, Entry, Module, Role
from graphgen.lowering.cpu import DeviceValue
from graphgen.lowering.cpu.pjrt import put_local
from graphgen.lowering.cpu.processes import in_stages, local_ranks
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.progress import Progress
from graphgen.runtime.weights.computed_plan import ComputedPlan
from graphgen.runtime.weights.copy_plan import CopyPlan, from_array
from graphgen.runtime.weights.copy_planner import plan_output
from graphgen.runtime.weights.huge_pages import arrays_in_one
from graphgen.runtime.weights.weight_checks import MaxMagnitude, max_magnitude, nan_indices
from graphgen.text import print_function

Plan = CopyPlan | ComputedPlan
_PREPARE = (WEIGHTS_GLOBAL, WEIGHTS_RANK)
# The arrays of one rank, by the programs' argument name.
RankArrays = Mapping[str, Array]


def read_weight(checkpoint: Checkpoint, row: Entry) -> Array:
    """One tensor as stored; a view of the file if possible."""
    return checkpoint.read(row.name)


def weights_of(checkpoint: Checkpoint, module: Module) -> RankWeights:
    """The prepared weights of a module's programs from a checkpoint."""
    where = str(checkpoint.path)
    return RankWeights(module, lambda row: read_weight(checkpoint, row), where)


def program_weights(module: Module) -> list[Entry]:
    """The weights and params that the programs read, in order."""
    used = {value.name for function in module.programs() for value in function.args}
    rows = [*module.entries(Role.WEIGHT), *module.entries(Role.PARAM)]
    return [row for row in rows if row.name in used]


def have_same_weights(module: Module, other: Module) -> bool:
    """True if the programs of ``module`` read the prepared weights of another module as they are.

    The weights have the same names and types, and the programs that prepare them have the same
    text.
    """
    theirs = {row.name: row.physical for row in program_weights(other)}
    if any(theirs.get(row.name) != row.physical for row in program_weights(module)):
        return False
    homes = [
        [print_function(each.functions[name]) for name in _PREPARE if name in each.functions]
        for each in (module, other)
    ]
    return module.ranks == other.ranks and homes[0] == homes[1]


def weight_bytes(module: Module) -> int:
    """Bytes of the weights that the programs read, per rank."""
    return sum(weight_types(module).values())


def weight_types(module: Module) -> dict[str, int]:
    """The same by element type, the largest part first."""
    found = Counter[str]()
    for row in program_weights(module):
        found[row.physical.dtype.name] += row.physical.nbytes
    return dict(found.most_common())


class RankWeights:
    """The prepared weights of every rank, one tensor at a time.

    Only the sources of one tensor are held in memory at a time.

    Args:
        module: at level ``target``.
        read: reads a checkpoint tensor; the result is converted to the module's element type.
        where: the checkpoint's path, for error messages.
    """

    def __init__(self, module: Module, read: Callable[[Entry], Array], where: str = "") -> None:
        self.module = module
        self.read = read
        self.where = where
        homes = (module.functions.get(name) for name in _PREPARE)
        self._programs = {
            output: home for home in homes if home is not None for output, _ in home.outputs
        }

    def on_rank(self, row: Entry, rank: int) -> Plan:
        """The weight or param ``row`` of one rank."""
        return self._plan(row.name, rank, {})

    def on_ranks(self, row: Entry, ranks: Sequence[int] | None = None) -> list[Plan]:
        """The weight or param ``row`` of some ranks, reading each checkpoint tensor once.

        If :meth:`same_on_ranks`, all are one object.

        Args:
            row: the weight or param.
            ranks: by default all.
        """
        known: dict[str, Plan] = {}
        chosen = range(self.module.ranks) if ranks is None else ranks
        return [self._plan(row.name, rank, known) for rank in chosen]

    def fill(self, row: Entry, values: Sequence[Plan], homes: Sequence[Array]) -> None:
        """Copy a prepared weight of one rank or more to its arrays ``homes``.

        Raises:
            GraphgenError: GG0605 as :meth:`require_numbers`.
        """
        seen = MaxMagnitude(homes[0].dtype)
        for plan, home in zip(values, homes, strict=True):
            plan.fill(home, seen.observe)
        self.require_numbers(row, seen)

    def require_numbers(self, row: Entry, seen: MaxMagnitude) -> None:
        """Refuse a prepared weight with NaN or infinite values.

        Args:
            row: the weight.
            seen: the largest magnitude of all of it.

        Raises:
            GraphgenError: GG0605 naming the checkpoint tensor of a NaN or an infinite value, or of
                a value above f16's largest number.
        """
        if seen.is_infinite:
            self._require_finite(row, numpy_dtype(row.physical.dtype))
        if not seen.is_nan:
            return
        for name in self._leaves(row.name):
            given = self.read(self.module.interface[name])
            if max_magnitude(given).is_nan:
                count, first = nan_indices(given)
                many = f"{count} values that are" if count > 1 else "a value that is"
                place = f"{', the first' if count > 1 else ''} at {[*first]}"
                what = f"the weight '{name}' holds {many} not a number (NaN){place}"
                break
        else:
            what = f"preparing the weight '{row.name}' gives values that are not numbers (NaN)"
        raise GraphgenError(
            "GG0605",
            what,
            where=self.where,
            help="the checkpoint is damaged or its training failed: get it again, or another one",
        )

    def _require_finite(self, row: Entry, dtype: np.dtype[np.generic]) -> None:
        """Refuse infinite values of the checkpoint and, for f16, those above its largest number."""
        most = float(np.finfo(np.float16).max) if dtype == np.float16 else math.inf
        for name in self._leaves(row.name):
            given = self.read(self.module.interface[name]).astype(np.float32)
            farthest = float(np.abs(given).max(initial=0))
            if farthest == math.inf:
                count, first = int(np.isinf(given).sum()), np.argwhere(np.isinf(given))[0].tolist()
                many = f"{count} infinite values, the first" if count > 1 else "an infinite value"
                raise GraphgenError(
                    "GG0605",
                    f"the weight '{name}' holds {many} at {first}",
                    where=self.where,
                    help="the checkpoint is damaged or was saved in a type that could not hold "
                    "it: get it again, or another one",
                )
            if farthest > most:
                raise GraphgenError(
                    "GG0605",
                    f"the weight '{name}' holds {farthest:g}; f16 ends at {most:g}",
                    where=self.where,
                    help="run the model in bf16 or f32",
                )

    def _leaves(self, name: str) -> list[str]:
        """The checkpoint tensors that a weight or param is computed from."""
        home = self._programs.get(name)
        if home is None:
            return [] if name == RANK else [name]
        return [leaf for given in arguments_of(home, name) for leaf in self._leaves(given)]

    def tensors_of(self, row: Entry) -> Set[str]:
        """The checkpoint tensors that a weight or param is computed from."""
        return set(self._leaves(row.name))

    def same_on_ranks(self, row: Entry) -> bool:
        """True if all ranks hold the same value: its program does not read the rank."""
        return self._same(row.name)

    def _same(self, name: str) -> bool:
        home = self._programs.get(name)
        return home is None or all(
            given != RANK and self._same(given) for given in arguments_of(home, name)
        )

    def _plan(self, name: str, rank: int, known: dict[str, Plan]) -> Plan:
        """The plan of a checkpoint tensor, or of an output of a weight program.

        Args:
            name: of either.
            rank: the rank that reads it.
            known: memo of the plans that are the same for every rank; extended.
        """
        if name in known:
            return known[name]
        home = self._programs.get(name)
        if home is None:
            row = self.module.interface[name]
            made = from_array(self.read(row), numpy_dtype(row.logical.dtype))
        else:
            made = plan_output(home, name, rank, lambda given: self._read(given, rank, known))
        if self._same(name):
            known[name] = made
        return made

    def _read(self, name: str, rank: int, known: dict[str, Plan]) -> CopyPlan:
        """The plan of what another weight program reads; computed once for all ranks."""
        made = self._plan(name, rank, known)
        if isinstance(made, ComputedPlan):
            made = from_array(made.array())
            if name in known:
                known[name] = made
        return made


def rank_arrays(weights: RankWeights, rank: int) -> dict[str, Array]:
    """All weights of one rank in memory, reading only its own bytes of the checkpoint."""
    rows = program_weights(weights.module)
    home = arrays_in_one([_kind(row) for row in rows])

    def prepare(index: int) -> None:
        weights.fill(rows[index], [weights.on_rank(rows[index], rank)], [home[index]])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(prepare, range(len(rows))))
    return {row.name: array for row, array in zip(rows, home, strict=True)}


def put_weights(
    weights: RankWeights, progress: Progress, made_from: Set[str] | None = None
) -> dict[str, DeviceValue]:
    """Put weights on the devices; device values by the programs' argument name.

    Tensors are prepared in parallel and copied once, from the file to the memory that the device
    reads. A value that is the same on every rank is stored once for all devices of this process,
    and of several processes each prepares the weights of its own ranks only.

    Args:
        weights: the weights of every rank.
        progress: notified of long tasks.
        made_from: checkpoint tensors; only what is computed from them, by default everything.

    Raises:
        GraphgenError: GG0605 for a weight that holds NaN.
    """
    module = weights.module
    # Largest first: no thread starts a large tensor at the end.
    rows = sorted(program_weights(module), key=lambda row: -row.physical.nbytes)
    if made_from is not None:
        rows = [row for row in rows if made_from & weights.tensors_of(row)]
    ranks = ranks_here(module)
    # Weights of other processes are known by name alone.
    placed: dict[str, DeviceValue] = {
        row.name: put_local({}, module.ranks) for row in rows if not ranks[row.name]
    }
    rows = [row for row in rows if ranks[row.name]]
    homes = _homes(weights, rows, ranks)

    def prepare(index: int) -> None:
        # A shared weight has one array.
        values = weights.on_ranks(rows[index], ranks[rows[index].name])[: len(homes[index])]
        weights.fill(rows[index], values, homes[index])

    with progress.task("loading weights") as report, ThreadPoolExecutor(os.cpu_count()) as pool:
        for done, _ in enumerate(pool.map(prepare, range(len(rows)))):
            mine = ranks[rows[done].name]
            arrays = homes[done] * (len(mine) // len(homes[done]))
            placed[rows[done].name] = put_local(dict(zip(mine, arrays, strict=True)), module.ranks)
            report((done + 1) / len(rows))
    placed[RANK] = _put_indices(module)
    return placed


def put_ranks(module: Module, ranks: Mapping[int, RankArrays]) -> dict[str, DeviceValue]:
    """Put prepared weights on the devices: those of :func:`names_here`, by rank.

    A weight that a rank does not have is left out.
    """
    found = {
        name: put_local({rank: ranks[rank][name] for rank in here}, module.ranks)
        for name, here in ranks_here(module).items()
        if all(name in ranks[rank] for rank in here)
    }
    return {**found, RANK: _put_indices(module)}


def _put_indices(module: Module) -> DeviceValue:
    """The number of each rank that this process has."""
    here = _ranks_of_stages(module, range(stage_count(module)))
    return put_local({rank: rank_index(rank) for rank in here}, module.ranks)


def names_here(module: Module) -> dict[int, set[str]]:
    """The weights and params that this process needs of each rank."""
    found: dict[int, set[str]] = {}
    for name, here in ranks_here(module).items():
        for rank in here:
            found.setdefault(rank, set()).add(name)
    return found


def ranks_here(module: Module) -> dict[str, Sequence[int]]:
    """The ranks of each weight or param that this process has: of the stages that read it."""
    rows = program_weights(module)
    read = list(enumerate(stage_arguments(module))) if in_stages() else []
    return {
        row.name: _ranks_of_stages(module, [stage for stage, names in read if row.name in names])
        for row in rows
    }


def _ranks_of_stages(module: Module, stages: Iterable[int]) -> Sequence[int]:
    """The ranks that this process has in some stages; in one process, and without stages, all."""
    if not in_stages():
        return local_ranks(module.ranks)
    count = module.ranks
    return sorted({rank for stage in stages for rank in local_ranks(count, stage * count)})


def _homes(
    weights: RankWeights, rows: Sequence[Entry], ranks: Mapping[str, Sequence[int]]
) -> list[list[Array]]:
    """The target arrays of each weight: one per rank, or one if all ranks hold the same."""
    counts = [1 if weights.same_on_ranks(row) else len(ranks[row.name]) for row in rows]
    kinds = [_kind(row) for row, count in zip(rows, counts, strict=True) for _ in range(count)]
    arrays = iter(arrays_in_one(kinds))
    return [[next(arrays) for _ in range(count)] for count in counts]


def _kind(row: Entry) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    """Shape and type of a weight per rank."""
    return row.physical.dims, numpy_dtype(row.physical.dtype)
