"""State that the computations of one HLO file share while they are read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from graphgen.errors import GraphgenError
from graphgen.ir import Function, Value
from graphgen.ir.names import claim_name
from graphgen.lowering.hlo.hlo_locations import HloLocations
from graphgen.lowering.hlo.scalar_computations import direction_of, reducer_of
from graphgen.lowering.hlo.subcomputations import pack
from graphgen.lowering.hlo.unmodelled import UnmodelledError
from graphgen.lowering.hlo_proto.fields import ConfigField, InstructionField, ModuleField
from graphgen.lowering.hlo_proto.proto_module import HloComputation, HloModule
from graphgen.lowering.hlo_proto.replica_groups import read_groups, read_pairs
from graphgen.text.grammar import NAME


class RankCounts:
    """The counts of one module.

    Attributes:
        replicas: as the module states, 1 by default.
        partitions: of each replica, as the module states.
    """

    def __init__(self, module: HloModule) -> None:
        self._module = module
        config = module.message.message(ModuleField.CONFIG)
        counts = (ConfigField.REPLICA_COUNT, ConfigField.NUM_PARTITIONS)
        self.replicas, self.partitions = (
            max(config.integer(number), 1) if config is not None else 1 for number in counts
        )

    @cached_property
    def ranks(self) -> int:
        """The number of all ranks: stated, else by the ids in groups and pairs; 0 for unknown."""
        stated = self.replicas * self.partitions
        if stated > 1:
            return stated
        fields = (
            *(InstructionField.REPLICA_GROUPS, InstructionField.SOURCE_TARGET_PAIRS),
            *(InstructionField.IOTA_DEVICE_LIST, InstructionField.COLLECTIVE_DEVICE_LIST),
            InstructionField.MESH_DEVICE_LIST,
        )
        ids = [
            rank
            for computation in self._module.computations
            for instruction in computation.instructions()
            if any(map(instruction.has, fields))
            for group in (*read_groups(instruction), *read_pairs(instruction))
            for rank in group
        ]
        return max(ids, default=-1) + 1


_NAME = re.compile(NAME)
# Nesting depth of calls.
MOST_CALLS = 100


@dataclass(slots=True)
class HloFile:
    """One file being read.

    Attributes:
        module: the file.
        locations: reads metadata.
        by_id: the computations.
        read_values: reads a computation into an empty function; the arrays its root gives.
        dropped: number of times each thing was left out.
        opaque: number of instructions kept whole, by opcode and reason.
        contradictions: instructions of known opcodes that do not fit their operands.
        functions: those that calls run, callees first.
        names: of functions.
        reading: the computations that are being read, each called by the one before.
        counts: the ranks it is for.
    """

    module: HloModule
    locations: HloLocations
    by_id: dict[int, HloComputation]
    read_values: Callable[[HloFile, HloComputation, Function], list[Value]]
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    opaque: dict[str, int] = field(default_factory=dict[str, int])
    contradictions: list[str] = field(default_factory=list[str])
    functions: dict[int, Function] = field(default_factory=dict[int, Function])
    names: set[str] = field(default_factory=set[str])
    reading: list[int] = field(default_factory=list[int])
    counts: RankCounts = field(init=False)
    _reducers: dict[int, str] = field(default_factory=dict[int, str])
    _packed: dict[int, str] = field(default_factory=dict[int, str])

    def __post_init__(self) -> None:
        self.counts = RankCounts(self.module)

    @property
    def losses(self) -> int:
        """Things left out and instructions kept as they are, in number."""
        return sum(self.dropped.values()) + sum(self.opaque.values())

    def drop(self, what: str) -> None:
        """Count something left out."""
        self.dropped[what] = self.dropped.get(what, 0) + 1

    def keep(self, what: str) -> None:
        """Count an instruction that is kept as it is."""
        self.opaque[what] = self.opaque.get(what, 0) + 1

    def computation(self, number: int) -> HloComputation:
        """The computation of an id (GG0202)."""
        found = self.by_id.get(number)
        if found is None:
            raise GraphgenError("GG0202", f"it calls computation {number}, which is not there")
        return found

    def function(self, number: int) -> Function:
        """A computation that is called, as a function; each is read once."""
        found = self.functions.get(number)
        if found is None:
            computation = self.computation(number)
            if number in self.reading or len(self.reading) > MOST_CALLS:
                raise GraphgenError("GG0801", f"%{computation.name} calls itself, or nearly so")
            self.reading.append(number)
            found = Function(ir_name(computation.name or "called", self.names))
            given = self.read_values(self, computation, found)
            found.outputs = [(str(index), value) for index, value in enumerate(given)]
            self.reading.pop()
            self.functions[number] = found
        return found

    def body(self, number: int) -> Function:
        """A computation of a loop or a branch, as a function.

        Raises:
            UnmodelledError: it cannot be read; nothing of it is left.
        """
        before = [dict(counts) for counts in (self.dropped, self.opaque)]
        functions, names, depth = dict(self.functions), set(self.names), len(self.reading)
        try:
            return self.function(number)
        except GraphgenError as error:
            self.dropped, self.opaque = before
            self.functions, self.names = functions, names
            del self.reading[depth:]
            where = f"{error.where}: " if error.where else ""
            raise UnmodelledError(f"{where}{error.what}") from error

    def reducer(self, called: tuple[int, ...]) -> str:
        """Opcode of the one computation in ``called``, of two scalars, or ``assign``."""
        if len(called) != 1:
            raise UnmodelledError(f"it calls {len(called)} computations")
        found = self._reducers.get(called[0])
        if found is None:
            found = self._reducers[called[0]] = reducer_of(self.computation(called[0]))
        return found

    def direction(self, called: tuple[int, ...], *, floats: bool) -> str:
        """``LT`` or ``GT``: how the one comparator in ``called`` orders its first parameters."""
        found = [self.by_id[number] for number in called if number in self.by_id]
        direction = direction_of(found[0], floats=floats) if len(found) == 1 else ""
        if not direction:
            raise UnmodelledError("its comparator is more than LT or GT in total order")
        return direction

    def packed(self, number: int) -> str:
        """A computation with its callees; see :func:`~.subcomputations.pack`."""
        found = self._packed.get(number)
        if found is None:
            found = self._packed[number] = pack(number, self.by_id)
        return found


def ir_name(wanted: str, taken: set[str]) -> str:
    """``wanted`` in letters the IR takes, with a number where it is taken; taken from now on."""
    if not _NAME.fullmatch(wanted):
        wanted = re.sub(r"[^\w.$\-]", "_", wanted)
        wanted = wanted if _NAME.fullmatch(wanted) else f"_{wanted}"
    return claim_name(f"_{wanted}" if wanted.isdigit() else wanted, taken)
