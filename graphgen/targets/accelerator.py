"""The published figures of an accelerator: cores, memory, bandwidth and instances."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import cast

from graphgen.errors import GraphgenError
from graphgen.targets.target import Json, Target, accelerator_names, find_target


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


@dataclass(frozen=True, slots=True)
class Accelerator:
    """The hardware of a target with logical cores of a given size; one rank runs on each core.

    Attributes:
        name: of the target.
        chip, core: their names.
        lnc: physical cores per logical core.
        cores_per_chip: logical cores per chip.
        hbm_bytes: memory of a logical core.
        hbm_bandwidth: bytes per second of a logical core.
        flops: dense operations per second of a logical core, by element type of the operands.
        vector_flops: f32 operations per second of a logical core outside the matrix unit.
        link_bandwidth: bytes per second that a chip exchanges with the others.
        instances: chips per instance type.
        tp_degrees: the degrees AWS lists for the runtime; empty if no list is published.
        code_bytes: bytes of a core's device memory that the programs themselves occupy.
        sbuf_bytes: on-chip memory (SBUF) of a logical core.
        hop_seconds: latency of one step of a collective.
        levels: the links that ranks exchange something over, nearest first: those between the chips
            of a node, and with :func:`graphgen.targets.topology.over_nodes` those between nodes.
        sources: the source of each figure, by attribute of this class.
        node_ranks: ranks of a node; 0 where all ranks are on one.
        flat_collectives: whether a collective is one ring or mesh over all of its ranks, as in
            engines that make no stages of it.
    """

    name: str
    chip: str
    core: str
    lnc: int
    cores_per_chip: int
    hbm_bytes: int
    hbm_bandwidth: float
    flops: Mapping[str, float]
    vector_flops: float
    link_bandwidth: float
    instances: Mapping[str, int]
    tp_degrees: tuple[int, ...]
    code_bytes: int
    sbuf_bytes: int
    hop_seconds: float
    levels: tuple[LinkLevel, ...]
    sources: Mapping[str, str]
    node_ranks: int = 0
    flat_collectives: bool = False

    def matrix_flops(self, element: str) -> float:
        """Dense operations per second on operands of a type, by its name.

        All types of 8-bit floats have one figure; a type without a figure has that of bf16.
        """
        kind = "fp8" if element.startswith("f8") else element
        return self.flops.get(kind, self.flops["bf16"])

    def cores(self, instance: str) -> int:
        """Logical cores of an instance type."""
        return self.instances[instance] * self.cores_per_chip


@cache
def common_figures() -> Json:
    """The figures that all Neuron devices share, with their sources."""
    text = files("graphgen.targets").joinpath("neuron_common.json").read_text(encoding="utf-8")
    return cast(Json, json.loads(text))


def accelerator(name: str, lnc: int = 0) -> Accelerator:
    """The hardware of the target called ``name``.

    Args:
        name: one of :func:`accelerator_names`.
        lnc: physical cores per logical core; 0 for the target's default.

    Raises:
        GraphgenError: GG0302 for an unknown target, or cores that cannot be joined like that.
    """
    if name not in accelerator_names():
        raise GraphgenError(
            "GG0302", f"unknown target '{name}'", help=f"there are {', '.join(accelerator_names())}"
        )
    return _read(find_target(name), lnc)


def _read(target: Target, lnc: int) -> Accelerator:
    name, facts = target.name, target.hardware
    allowed = cast(list[int], figure(facts, "lnc_allowed"))
    lnc = lnc or cast(int, figure(facts, "lnc_default"))
    if lnc not in allowed:
        raise GraphgenError(
            "GG0302", f"{name} has no logical cores of {lnc}", help=f"--lnc takes {allowed}"
        )
    physical = cast(int, figure(facts, "cores_per_chip"))
    rates = cast(Mapping[str, Json], facts["tflops_per_core"])
    common = common_figures()
    link = cast(float, figure(facts, "neuronlink_bw_per_chip"))
    hop = cast(float, figure(common, "hop_seconds"))
    return Accelerator(
        name=name,
        chip=str(facts["chip"]),
        core=str(facts["core"]),
        lnc=lnc,
        cores_per_chip=physical // lnc,
        hbm_bytes=cast(int, figure(facts, "hbm_bytes_per_chip")) * lnc // physical,
        hbm_bandwidth=cast(float, figure(facts, "hbm_bw_per_chip")) * lnc / physical,
        flops={kind: cast(float, rate["value"]) * 1e12 * lnc for kind, rate in rates.items()},
        vector_flops=cast(float, figure(facts, "vector_tflops_per_core")) * 1e12 * lnc,
        link_bandwidth=link,
        instances=cast(Mapping[str, int], facts["chips"]),
        tp_degrees=tuple(cast(list[int], figure(facts, "tp_degrees")))
        if "tp_degrees" in facts
        else (),
        code_bytes=cast(int, figure(common, "code_bytes_per_core")),
        sbuf_bytes=cast(int, figure(facts, "sbuf_bytes_per_core")) * lnc,
        hop_seconds=hop,
        levels=(LinkLevel("node", physical // lnc, 0, link, hop),),
        sources=_sources(facts, common),
    )


def figure(facts: Json, key: str) -> object:
    """The value of a figure that stands with its source."""
    return cast(Json, facts[key])["value"]


def _sources(facts: Json, common: Json) -> Mapping[str, str]:
    def source(holder: Json, key: str) -> str:
        return str(cast(Json, holder[key])["source"]) if key in holder else ""

    rates = cast(Mapping[str, Json], facts["tflops_per_core"])
    return {
        "cores_per_chip": source(facts, "cores_per_chip"),
        "hbm_bytes": source(facts, "hbm_bytes_per_chip"),
        "hbm_bandwidth": source(facts, "hbm_bw_per_chip"),
        "flops": "; ".join(dict.fromkeys(str(rate["source"]) for rate in rates.values())),
        "vector_flops": source(facts, "vector_tflops_per_core"),
        "link_bandwidth": source(facts, "neuronlink_bw_per_chip"),
        "instances": str(facts["chips_source"]),
        "tp_degrees": source(facts, "tp_degrees"),
        "code_bytes": source(common, "code_bytes_per_core"),
        "sbuf_bytes": source(facts, "sbuf_bytes_per_core"),
        "hop_seconds": source(common, "hop_seconds"),
    }
