"""Times of a profile by layer and by op, beside the bounds of ``graphgen cost``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphgen.analysis.layers import scope_of
from graphgen.analysis.loops import ops_run
from graphgen.ir import Function, Module, Value
from graphgen.lowering.cost.roofline import RooflineCost, cost_of_op
from graphgen.lowering.neuron.profile.device_profile import DeviceInstruction, DeviceProfile, busy
from graphgen.targets import Accelerator

_OUTSIDE, _UNKNOWN = "outside of layers", "not in the program"


@dataclass(frozen=True, slots=True)
class MeasuredTime:
    """The time of a layer or an op.

    Attributes:
        name: of the layer, or of the HLO instruction.
        layer: of an op; empty for a layer.
        instructions: that ran.
        seconds: in which at least one of them ran.
        bound: seconds that it takes at least, by the device's published rates; ``None`` for what
            is not in the program, or without one.
    """

    name: str
    layer: str
    instructions: int
    seconds: float
    bound: float | None

    @property
    def share(self) -> float | None:
        """The bound as a part of the time; ``None`` without either."""
        return self.bound / self.seconds if self.bound is not None and self.seconds else None


@dataclass(frozen=True, slots=True)
class MeasuredTimes:
    """All of a profile; layers in order of their first instruction, ops by time."""

    layers: Sequence[MeasuredTime]
    ops: Sequence[MeasuredTime]


def measured_times(
    profile: DeviceProfile,
    module: Module | None = None,
    function: Function | None = None,
    device: Accelerator | None = None,
) -> MeasuredTimes:
    """Group the instructions of a profile.

    Args:
        profile: with instructions.
        module: of the program that ran; bounds are left out without it.
        function: the program, whose values have the names of its HLO instructions.
        device: that it ran on.
    """
    costs: dict[str, RooflineCost] = {}
    layers: dict[str, str] = {}
    if module is not None and function is not None and device is not None:
        seen: set[Value] = set()
        for op, times in ops_run(module, function.block):
            name = op.results[0].name or ""
            costs[name] = costs.get(name, RooflineCost()) + cost_of_op(
                module, op, device, seen
            ).times(times)
            layers[name] = scope_of(op) or _OUTSIDE
    by_op: dict[str, list[DeviceInstruction]] = {}
    by_layer: dict[str, list[DeviceInstruction]] = {}
    for item in sorted(profile.instructions, key=lambda item: item.start):
        by_op.setdefault(item.op, []).append(item)
        home = layers.get(item.op) or item.layer or (_UNKNOWN if costs else _OUTSIDE)
        by_layer.setdefault(home, []).append(item)
    return MeasuredTimes(
        [
            _time(name, "", items, _layer_bound(name, layers, costs))
            for name, items in by_layer.items()
        ],
        sorted(
            [
                _time(name or _UNKNOWN, layers.get(name, ""), items, _bound(costs.get(name)))
                for name, items in by_op.items()
            ],
            key=lambda item: -item.seconds,
        ),
    )


def _time(
    name: str, layer: str, items: Sequence[DeviceInstruction], bound: float | None
) -> MeasuredTime:
    return MeasuredTime(name, layer, len(items), busy(items) / 1e9, bound)


def _layer_bound(
    layer: str, layers: Mapping[str, str], costs: Mapping[str, RooflineCost]
) -> float | None:
    found = [costs[name] for name, home in layers.items() if home == layer]
    total = RooflineCost()
    for cost in found:
        total += cost
    return total.seconds if found else None


def _bound(cost: RooflineCost | None) -> float | None:
    return None if cost is None else cost.seconds
