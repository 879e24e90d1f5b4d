"""Running one program once: prepare weights and states, run on all ranks, unpack the outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.errors import GraphgenError
from graphgen.eval import Array, rank_index
from graphgen.exec.backend import RunOnRanks
from graphgen.exec.ring_buffer import RingOccupancy
from graphgen.exec.weights import (
    pack_state,
    prepare_weights,
    prepared_names,
    unpack_state,
    weight_programs,
)
from graphgen.ir import RANK, Dim, Entry, Function, Module, Role, TensorType


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """One call of a program.

    Attributes:
        phase: of the program.
        dims: sizes of the symbols in this call.
        inputs: by name, in logical types.
        active: rows whose outputs matter, ``None`` for all.
        parts: inputs that differ by rank, in physical types: name -> one array per rank.
        note: what the call is made for, in words; empty where no script planned it.
        exact: whether a validation makes the call in float64 only, where a wrong program differs
            by more than any rounding.
    """

    phase: str
    dims: Mapping[str, Dim]
    inputs: Mapping[str, Array]
    active: tuple[int, ...] | None = None
    parts: Mapping[str, Sequence[Array]] = field(default_factory=dict[str, Sequence[Array]])
    note: str = ""
    exact: bool = False


# Outputs and states after one call, by name, in logical types; a masked array where some elements
# of a state hold nothing that is defined.
Outcome = dict[str, Array]


Arrays = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """One output as the user of the module sees it.

    Attributes:
        entry: its interface row.
        type: logical type.
        array: the values.
        ranks_differ: whether a whole output differs between ranks.
        parts: the values of every rank where they differ; ``array`` is that of rank 0.
    """

    entry: Entry
    type: TensorType
    array: Array
    ranks_differ: bool
    parts: Sequence[Array] = ()


def ranks_of(module: Module) -> int:
    """Number of ranks a program of the module runs on; 1 before it is partitioned."""
    return module.ranks if module.level in ("sharded", "target") else 1


def needed(module: Module, function: Function) -> list[Entry]:
    """The logical inputs, weights and states that running ``function`` reads.

    Prepared params are replaced by the checkpoint tensors they are made of. An argument without an
    interface row (of a function that is not a program) is an input of its own.
    """
    found: dict[str, Entry] = {}
    made = prepared_names(module)
    functions = [function]
    if any(value.name in made for value in function.args):
        functions += weight_programs(module)
    for item in functions:
        for value in item.args:
            name = value.name or ""
            if name not in made and not (name == RANK and name not in module.interface):
                row = Entry(Role.INPUT, name, value.type, value.type)
                found.setdefault(name, module.interface.get(name, row))
    return list(found.values())


def run_program(
    module: Module,
    function: Function,
    logical: Arrays,
    backend: RunOnRanks,
    per_rank: Mapping[str, Sequence[Array]] | None = None,
) -> list[ProgramOutput]:
    """Run a program on all ranks.

    Args:
        module: every symbol is bound.
        function: the program.
        logical: an array for each entry of :func:`needed`.
        backend: a :class:`~graphgen.exec.backend.Backend`.
        per_rank: one array per rank, in physical types, of arguments that differ by rank.

    Raises:
        GraphgenError: GG0402 inputs that do not fit, GG0403 an op that cannot be evaluated.
    """
    ranks = ranks_of(module)
    prepared = _prepare(module, function, logical, ranks)
    inputs = [_arguments(module, function, logical, prepared[r], r) for r in range(ranks)]
    for name, arrays in (per_rank or {}).items():
        for given, array in zip(inputs, arrays, strict=True):
            given[name] = array
    results = backend(module, function, inputs)
    return [
        _output(module, name, value.type, [result[name] for result in results], logical)
        for name, value in function.outputs
    ]


def _prepare(
    module: Module, function: Function, logical: Arrays, ranks: int
) -> list[dict[str, Array]]:
    """Per rank, the params that the weight programs make for ``function``."""
    made = prepared_names(module)
    if not any(value.name in made for value in function.args):
        return [{} for _ in range(ranks)]
    return prepare_weights(module, logical, ranks)


def _arguments(
    module: Module, function: Function, logical: Arrays, prepared: Arrays, rank: int
) -> dict[str, Array]:
    out: dict[str, Array] = {}
    for value in function.args:
        name = value.name or ""
        row = module.interface.get(name)
        if name in prepared:
            out[name] = prepared[name]
        elif name == RANK and row is None:
            out[name] = rank_index(rank)
        elif name not in logical:
            continue  # each rank has its own
        elif row is not None and row.pack and row.role is not Role.LAYOUT:
            whole = _kept(row, logical) if row.last else logical[name]
            out[name] = pack_state(module.function(row.pack), whole, rank, layouts=logical)
        else:
            out[name] = logical[name]
    return out


def _kept(row: Entry, logical: Arrays) -> Array:
    """A cache that keeps its newest positions, rotated as the call's positions say."""
    whole = logical[row.name]
    if not whole.any():
        return whole
    filled = RingOccupancy(*row.logical.dims[:2])
    filled.begin(logical)
    return filled.wound(whole, row.last)


def _output(
    module: Module, name: str, type_: TensorType, parts: Sequence[Array], logical: Arrays
) -> ProgramOutput:
    row = module.interface.get(name, Entry(Role.OUTPUT, name, type_, type_))
    if row.unpack:
        whole = unpack_state(module.function(row.unpack), parts, layouts=logical)
        return ProgramOutput(row, row.logical, whole, ranks_differ=False)
    if row.role in (Role.OUTPUT, Role.STATE) and row.logical is not row.physical:
        raise GraphgenError("GG0205", f"output {name} has changed its type and has no unpack")
    differ = any(part.tobytes() != parts[0].tobytes() for part in parts[1:])
    # @weights.rank gives each rank its own part; shown is that of rank 0.
    return ProgramOutput(row, type_, parts[0], ranks_differ=differ, parts=parts if differ else ())
