"""Reads the JSON of ``neuron-profile view`` and of Neuron Explorer: summaries and instructions.

Two published forms: ``--output-format json`` has lists ``summary`` and ``instruction`` (times in
seconds there, in nanoseconds here), ``--output-format summary-json`` an object of metrics for each
execution. Fields that are not known are kept. NTFF itself is not public, nor are Parquet tables
read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import cast

from graphgen.analysis.layers import scope_of
from graphgen.analysis.loops import ops_run
from graphgen.atomic_write import read_regular, unreadable
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module, Value
from graphgen.json_value import Json, parse_json
from graphgen.limits import PROFILE_BYTES
from graphgen.lowering.cost.roofline import RooflineCost, cost_of_op
from graphgen.numbers import is_finite
from graphgen.targets import Accelerator

NTFF, _PARQUET = ".ntff", b"PAR1"
_SUMMARY, _INSTRUCTIONS = "summary", "instruction"
_START, _DURATION = ("timestamp", "start_ts"), ("duration", "duration_ns")
_CONVERT = (
    "neuron-profile view -n graph.neff -s profile.ntff --output-format json "
    "--output-file profile.json"
)


@dataclass(frozen=True, slots=True)
class DeviceInstruction:
    """An instruction that ran.

    Attributes:
        op: the name of the HLO instruction that it is of; empty if the profile has none.
        layer: the framework's name; empty if the profile has none.
        engine: that ran it.
        start, end: nanoseconds.
    """

    op: str
    layer: str
    engine: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """A profile.

    Attributes:
        summaries: the metrics of each execution by its name, with all fields.
        instructions: in the order of the file; none in a summary.
        other: everything else in the file.
    """

    summaries: Mapping[str, Mapping[str, Json]]
    instructions: Sequence[DeviceInstruction] = ()
    other: Mapping[str, Json] = field(default_factory=dict[str, Json])

    @property
    def seconds(self) -> float | None:
        """``total_time`` of the first execution; ``None`` if no summary has it."""
        for row in self.summaries.values():
            found = row.get("total_time")
            if isinstance(found, (int, float)):
                return float(found)
        return None


def is_profile(path: Path, head: bytes) -> bool:
    """True for a file that :func:`read_profile` reads, or refuses by the name of its form."""
    if path.suffix == NTFF or head.startswith(_PARQUET):
        return True
    if path.suffix != ".json":
        return False
    try:
        content: object = parse_json(read_regular(path, PROFILE_BYTES), most=PROFILE_BYTES)
    except (OSError, ValueError):
        return "profile" in path.name
    return isinstance(content, dict) and _looks(cast("dict[str, object]", content))


def _looks(content: Mapping[str, object]) -> bool:
    if isinstance(content.get(_SUMMARY), list) or isinstance(content.get(_INSTRUCTIONS), list):
        return True
    rows = [*content.values()]
    return bool(rows) and all(isinstance(row, dict) and "total_time" in row for row in rows)


def read_profile(path: Path) -> DeviceProfile:
    """Read a profile.

    Raises:
        GraphgenError: GG0705 for NTFF or Parquet, for a file that is not JSON, and for
            instructions without times.
    """
    try:
        data = read_regular(path, PROFILE_BYTES)
        if path.suffix == NTFF or data.startswith(_PARQUET):
            kind = "an NTFF trace" if path.suffix == NTFF else "a Parquet table"
            what = f"{path} is {kind}, whose form is not read here"
            raise GraphgenError("GG0705", what, help=f"convert it: {_CONVERT}")
        content: object = parse_json(data, most=PROFILE_BYTES)
    except (OSError, ValueError) as error:
        raise unreadable(str(path), error, "it must be the JSON of neuron-profile") from error
    if not isinstance(content, dict) or not _looks(cast("dict[str, object]", content)):
        raise _bad(path, "has neither the lists summary and instruction, nor metrics by execution")
    values = cast("dict[str, Json]", content)
    if not isinstance(values.get(_SUMMARY), list) and _INSTRUCTIONS not in values:
        return DeviceProfile(cast("Mapping[str, Mapping[str, Json]]", values))
    summaries = cast("Sequence[Json]", values.pop(_SUMMARY, []))
    if not all(isinstance(row, dict) for row in summaries):
        raise _bad(path, "has a summary that is not an object")
    by_name = {str(i): cast("Mapping[str, Json]", row) for i, row in enumerate(summaries)}
    rows = values.pop(_INSTRUCTIONS, [])
    if not isinstance(rows, list):
        raise _bad(path, f"has {_INSTRUCTIONS} that is not a list")
    return DeviceProfile(
        by_name, [_instruction(path, i, row) for i, row in enumerate(rows)], values
    )


def _instruction(path: Path, index: int, row: Json) -> DeviceInstruction:
    if not isinstance(row, dict):
        raise _bad(path, f"has an instruction {index} that is not an object")
    start, duration = _number(row, _START), _number(row, _DURATION)
    if start is None or duration is None or duration < 0:
        raise _bad(path, f"has an instruction {index} without timestamp and duration")
    name = str(row.get("hlo_name") or "").partition("=")[0].strip().lstrip("%")
    engine = str(row.get("engine") or row.get("subgroup") or row.get("label") or "")
    return DeviceInstruction(name, str(row.get("layer") or ""), engine, start, start + duration)


def _number(row: Mapping[str, Json], names: Sequence[str]) -> int | None:
    for name in names:
        found = row.get(name)
        if is_finite(found):
            return int(found)
    return None


def _bad(path: Path, what: str) -> GraphgenError:
    return GraphgenError("GG0705", f"{path} {what}", help=f"write it again: {_CONVERT}")


def busy(instructions: Sequence[DeviceInstruction]) -> int:
    """Nanoseconds in which at least one of the instructions ran; engines work side by side."""
    total, end = 0, -1
    for item in sorted(instructions, key=lambda item: item.start):
        total += max(0, item.end - max(item.start, end))
        end = max(end, item.end)
    return total


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

    def to_json(self) -> dict[str, Json]:
        """The attributes by name, and the share."""
        return {**asdict(self), "share": self.share}


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
