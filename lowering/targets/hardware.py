"""The accelerators: cores, memory, bandwidth and instances, each figure with its source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import cast

from graphgen.errors import GraphgenError

_Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of accelerator; a *core* is what one rank runs on.

    Attributes:
        name: as ``neuronx-cc --target`` has it: ``inf2``, ``trn1``, ``trn2``, ``trn3``.
        chip, core: what they are called.
        lnc: physical cores that make one logical core, which is one rank.
        cores_per_chip: logical cores.
        hbm_bytes: memory of a logical core.
        hbm_bandwidth: bytes per second of a logical core.
        flops: dense operations per second of a logical core, by element type of the operands.
        vector_flops: f32 operations per second of a logical core outside the matrix unit.
        link_bandwidth: bytes per second a chip exchanges with the others.
        instances: chips of each instance type.
        tp_degrees: the degrees AWS lists for the runtime; empty where no list is published.
        code_bytes: memory of a core the programs themselves take.
        sbuf_bytes: a logical core's own memory, next to its units.
        hop_seconds: latency of one step of a collective.
        sources: where each figure comes from, by attribute of this class.
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
    sources: Mapping[str, str]

    def cores(self, instance: str) -> int:
        """Logical cores of an instance type."""
        return self.instances[instance] * self.cores_per_chip


@cache
def hardware() -> _Json:
    """All figures with their sources, as they are stored."""
    text = files("graphgen.lowering.targets").joinpath("hardware.json").read_text(encoding="utf-8")
    return cast(_Json, json.loads(text))


def target_names() -> tuple[str, ...]:
    """The accelerators there are figures for."""
    return tuple(cast(_Json, hardware()["targets"]))


def target(name: str, lnc: int = 0) -> Target:
    """The accelerator called ``name``.

    Args:
        name: one of :func:`target_names`.
        lnc: physical cores a logical core is made of; 0 for the target's default.

    Raises:
        GraphgenError: GG0302 unknown target, or cores that cannot be joined like that.
    """
    known = cast(Mapping[str, _Json], hardware()["targets"])
    if name not in known:
        raise GraphgenError(
            "GG0302", f"unknown target '{name}'", help=f"there are {', '.join(known)}"
        )
    return _read(name, known[name], lnc)


def _read(name: str, facts: _Json, lnc: int) -> Target:
    allowed = cast(list[int], _value(facts, "lnc_allowed"))
    lnc = lnc or cast(int, _value(facts, "lnc_default"))
    if lnc not in allowed:
        raise GraphgenError(
            "GG0302", f"{name} has no logical cores of {lnc}", help=f"--lnc takes {allowed}"
        )
    physical = cast(int, _value(facts, "cores_per_chip"))
    rates = cast(Mapping[str, _Json], facts["tflops_per_core"])
    common = cast(_Json, hardware()["common"])
    return Target(
        name=name,
        chip=str(facts["chip"]),
        core=str(facts["core"]),
        lnc=lnc,
        cores_per_chip=physical // lnc,
        hbm_bytes=cast(int, _value(facts, "hbm_bytes_per_chip")) * lnc // physical,
        hbm_bandwidth=cast(float, _value(facts, "hbm_bw_per_chip")) * lnc / physical,
        flops={kind: cast(float, rate["value"]) * 1e12 * lnc for kind, rate in rates.items()},
        vector_flops=cast(float, _value(facts, "vector_tflops_per_core")) * 1e12 * lnc,
        link_bandwidth=cast(float, _value(facts, "neuronlink_bw_per_chip")),
        instances=cast(Mapping[str, int], facts["chips"]),
        tp_degrees=tuple(cast(list[int], _value(facts, "tp_degrees")))
        if "tp_degrees" in facts
        else (),
        code_bytes=cast(int, _value(common, "code_bytes_per_core")),
        sbuf_bytes=cast(int, _value(facts, "sbuf_bytes_per_core")) * lnc,
        hop_seconds=cast(float, _value(common, "hop_seconds")),
        sources=_sources(facts, common),
    )


def _value(facts: _Json, key: str) -> object:
    return cast(_Json, facts[key])["value"]


def _sources(facts: _Json, common: _Json) -> Mapping[str, str]:
    def source(holder: _Json, key: str) -> str:
        return str(cast(_Json, holder[key])["source"]) if key in holder else ""

    rates = cast(Mapping[str, _Json], facts["tflops_per_core"])
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
