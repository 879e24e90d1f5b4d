"""Compare the ranks in AWS's attributes with the ranks of this process."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.errors import GraphgenError
from graphgen.runtime.distributed.process_group import LaunchPlace


@dataclass(frozen=True, slots=True)
class StatedRanks:
    """Ranks as a NeuronConfig of one machine states them; ``None`` for what it leaves out.

    Attributes:
        world: ``world_size``, the ranks of all stages.
        first: ``start_rank_id``.
        count: ``local_ranks_size``.
    """

    world: int | None = None
    first: int | None = None
    count: int | None = None

    def check(self, ranks: int, place: LaunchPlace | None) -> None:
        """Refuse values that are not true (GG0705).

        In a launch they are those of the machine, or of the process where they are the same in all
        processes of a machine. Without one they are all ranks.

        Args:
            ranks: of all stages.
            place: of this process in a launch.
        """
        if self.world not in (None, ranks):
            raise GraphgenError(
                "GG0705",
                f"world_size = {self.world}, but the ranks of all stages are {ranks}",
                help="leave it out, or change the number of ranks or of stages",
            )
        if place is None:
            fitting, where, remedy = [(0, ranks)], "the only process", _LAUNCH
        elif ranks % place.count:
            # Refused where the processes divide the ranks.
            return
        else:
            of_machine, of_process = ranks // place.nodes, ranks // place.count
            first = place.node * of_machine
            fitting = [(first, of_machine), (place.index * of_process, of_process)]
            where = f"machine {place.node} of {place.nodes}"
            remedy = f"leave them out, or give {first} and {of_machine} there"
        if any(self._is(*pair) for pair in fitting):
            return
        first, count = fitting[0]
        raise GraphgenError(
            "GG0705",
            f"{self._text}, but {where} has {count} of {ranks} ranks, from {first} on",
            help=remedy,
        )

    def _is(self, first: int, count: int) -> bool:
        return self.first in (None, first) and self.count in (None, count)

    @property
    def _text(self) -> str:
        given = {"start_rank_id": self.first, "local_ranks_size": self.count}
        return " and ".join(
            f"{name} = {value}" for name, value in given.items() if value is not None
        )


_LAUNCH = (
    "leave them out, or start a process on each machine: graphgen launch --nnodes N --node-rank I "
    "--master-addr HOST --master-port PORT -- serve ..."
)
