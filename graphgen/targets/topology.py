"""Accelerators over several nodes: the links between nodes, and the placement of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from graphgen.errors import GraphgenError
from graphgen.targets.accelerator import (
    Accelerator,
    LinkLevel,
    accelerator,
    accelerator_names,
    common_figures,
    figure,
)
from graphgen.targets.target import Json, find_target


def over_nodes(device: Accelerator, nodes: int, instance: str = "", ranks: int = 0) -> Accelerator:
    """The accelerator with the links between its nodes; itself for one node.

    Ranks fill one node after the other. Traffic between nodes takes the links of an UltraServer, if
    the instance is part of one, and EFA beyond it.

    Args:
        device: the accelerator.
        nodes: how many.
        instance: the type of each node; empty for the first one with figures of a network.
        ranks: of a program that is spread evenly over the nodes; 0 to fill each node.

    Raises:
        GraphgenError: GG0302 for an instance without figures of a network; GG0705 for ranks that
            the nodes cannot share.
    """
    if nodes == 1:
        return device
    networks = _networks(device)
    name = instance or next(iter(networks), "")
    if name not in networks:
        known = f"there are {', '.join(networks)}" if networks else "take one node"
        what = f"'{name}'" if name else f"any instance of {device.name}"
        raise GraphgenError("GG0302", f"no network is published for {what}", help=known)
    share = _share(device, nodes, name, ranks)
    facts = networks[name]
    (inside,) = device.levels
    levels = [replace(inside, unit=share)]
    part = share
    server = cast(Json | None, facts.get("server"))
    if server is not None:
        together, each = cast(int, server["nodes"]), cast(float, server["bytes_per_second_a_chip"])
        part = share * min(together, nodes)
        speed = each * share / device.cores_per_chip
        levels.append(LinkLevel("server", share, part, speed, inside.hop_seconds))
    if nodes * share > part:
        speed = cast(float, facts["bytes_per_second"]) * part / share
        hop = cast(float, figure(common_figures(), "network_hop_seconds"))
        levels.append(LinkLevel("network", part, 0, speed, hop))
    return replace(
        device,
        levels=tuple(levels),
        node_ranks=share,
        sources={**device.sources, "levels": _source(facts)},
    )


def node_levels(
    target: str, nodes: int, instance: str = "", ranks: int = 0
) -> tuple[LinkLevel, ...]:
    """The links that the ranks of a program have over nodes, nearest first.

    For a target without figures, the CPU, they have no rates: bytes and steps can be counted.

    Args:
        target: the name of a target.
        nodes: how many, at least two.
        instance: of an accelerator, as for :func:`over_nodes`.
        ranks: of the program, that the nodes share evenly.

    Raises:
        GraphgenError: as :func:`over_nodes`.
    """
    if target in accelerator_names():
        return over_nodes(accelerator(target), nodes, instance, ranks).levels
    if ranks % nodes:
        raise GraphgenError(
            "GG0705",
            f"{nodes} nodes cannot share {ranks} ranks",
            help="let the number of ranks be a multiple of the nodes",
        )
    share = ranks // nodes
    return (
        LinkLevel("node", 1, share, float("inf"), 0.0),
        LinkLevel("network", share, 0, float("inf"), 0.0),
    )


def _networks(device: Accelerator) -> Mapping[str, Json]:
    """Figures of the links between nodes, by type of instance."""
    return cast(Mapping[str, Json], find_target(device.name).hardware.get("networks", {}))


def _share(device: Accelerator, nodes: int, instance: str, ranks: int) -> int:
    """Ranks of a node (GG0705)."""
    cores = device.cores(instance)
    if not ranks:
        return cores
    if ranks % nodes or ranks // nodes > cores:
        raise GraphgenError(
            "GG0705",
            f"{nodes} nodes of {cores} logical cores ({instance}) cannot share {ranks} ranks",
            help="let the number of ranks be a multiple of the nodes, which have room for it",
        )
    return ranks // nodes


def _source(facts: Json) -> str:
    server = cast(Json, facts.get("server", {}))
    hop = cast(Json, common_figures()["network_hop_seconds"])
    texts = (facts["source"], server.get("source"), hop["source"])
    return "; ".join(dict.fromkeys(str(text) for text in texts if text))
