"""Numbers of replicas, partitions and ranks that a module is for."""

from __future__ import annotations

from functools import cached_property

from graphgen.lowering.hlo.proto.fields import ConfigField, InstructionField, ModuleField
from graphgen.lowering.hlo.proto.proto_module import HloModule
from graphgen.lowering.hlo.proto.replica_groups import read_groups, read_pairs


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
