"""Links between the parts of a machine: chips of a node, nodes of a cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinkLevel:
    """Links of one kind, each between two parts of the same whole.

    Ranks are numbered part by part, so that rank ``r`` is in part ``r // part``, and the last axis
    of a mesh is the one whose ranks are nearest to each other.

    Attributes:
        name: ``node`` for links between its chips, ``server`` for those between the nodes of an
            UltraServer, ``network`` for those between nodes or servers.
        part: ranks of a part.
        unit: ranks of the whole; 0 for all that there are.
        bandwidth: bytes per second that a part sends to the others.
        hop_seconds: latency of one step.
    """

    name: str
    part: int
    unit: int
    bandwidth: float
    hop_seconds: float
