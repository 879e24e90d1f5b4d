"""Flags for several nodes, and the links between them in words."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from graphgen.errors import GraphgenError
from graphgen.targets import Accelerator

Nodes = Annotated[
    int, typer.Option("--nodes", min=1, help="Nodes that the ranks are spread over, in order.")
]
OF_EACH_NODE = "Of each node; by default trn2.48xlarge etc."
InstanceName = Annotated[str, typer.Option("--instance", metavar="TYPE", help=OF_EACH_NODE)]
CollectiveForm = Annotated[
    Literal["staged", "flat"],
    typer.Option("--collectives", help="Each in stages, or one ring or mesh over all ranks."),
]
FLAT = "flat"


def check_instance(nodes: int, instance: str) -> None:
    """Refuse a type of instance that would have no effect (GG0705)."""
    if instance and nodes == 1:
        what = "--instance has no meaning for one node"
        raise GraphgenError("GG0705", what, help="give --nodes N too")


def levels_text(device: Accelerator) -> str:
    """A line for each level of links; none for a single node."""
    if not device.node_ranks:
        return ""
    parts = {device.cores_per_chip: "chip", device.node_ranks: "node"}
    lines = [
        f"links of the {level.name}: {level.bandwidth / 1e9:.0f} GB/s of each "
        f"{parts.get(level.part, 'server')} of {level.part} ranks, "
        f"and {1e6 * level.hop_seconds:g} us a step\n"
        for level in device.levels
    ]
    return "".join(lines)
