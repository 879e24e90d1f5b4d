"""Reads ``xplane.pb`` of ``jax.profiler`` and of TensorFlow's profiler: events of HLO instructions.

A file is an ``XSpace``: planes (devices, the host) have lines (threads, streams), lines have
events, and names are in tables of the plane. Of the host's plane, the events of XLA's thunks name
their instruction in the stat ``hlo_op``; so do kernels of GPUs. On TPUs the line ``XLA Ops`` has
the instructions and ``XLA Modules`` the programs around them. The plane ``/host:metadata`` has the
HLO protobuf of each program. Source: tsl/profiler/protobuf/xplane.proto, and
xla/tsl/profiler/utils/xplane_schema.cc for the names.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.lowering.hlo_proto.wire import Message, Source
from graphgen.lowering.profiles.recording import DeviceRates, OpEvent, ProfileRecording

KIND: Final = "xplane.pb of a profiler"
_OPS, _MODULES = "XLA Ops", "XLA Modules"
_OP, _MODULE, _RUN = "hlo_op", "hlo_module", "run_id"
_PROGRAM, _ORDINAL, _HLO = "program_id", "device_ordinal", "Hlo Proto"
# An op that ends on another thread names the event there by a type and an id.
_MADE, _TAKEN = ("_pt", "_p"), ("_ct", "_c")
END: Final = "end: "
_TERA, _GIGA = "peak_teraflops_per_second", "peak_hbm_bw_gigabytes_per_second"
_BYTES = "memory_bandwidth"
_DEVICE, _ENVIRONMENT = "/device:", "Task Environment"


class _Space(IntEnum):
    PLANES = 1


class _Plane(IntEnum):
    NAME = 2
    LINES = 3
    EVENTS = 4
    STATS = 5
    OWN = 6


class _Line(IntEnum):
    NAME = 2
    NANOSECONDS = 3
    EVENTS = 4
    SHOWN = 11


class _Event(IntEnum):
    METADATA = 1
    OFFSET = 2
    DURATION = 3
    STATS = 4


class _Metadata(IntEnum):
    ID = 1
    NAME = 2
    SHOWN = 4
    STATS = 5


class _Stat(IntEnum):
    METADATA = 1
    DOUBLE = 2
    UNSIGNED = 3
    SIGNED = 4
    TEXT = 5
    BYTES = 6
    PLACE = 7


_Value = int | float | str | bytes


def looks_like_xspace(data: Source) -> bool:
    """True for bytes that begin with a plane, whose name is a path such as ``/host:CPU``."""
    if data[:1] != b"\n":
        return False
    try:
        spans = Message(data).spans(_Space.PLANES)
        name = Message(data, *spans[0]).text(_Plane.NAME) if spans else ""
    except GraphgenError:
        return False
    return name.startswith(("/host:", _DEVICE)) or name == _ENVIRONMENT


def read_xspace(data: Source) -> ProfileRecording:
    """Read a recording.

    Raises:
        GraphgenError: GG0801 for bytes of another form.
    """
    try:
        return _read(data)
    except GraphgenError as error:
        what = error.what.replace("an HLO protobuf", "a profile of XLA (xplane.pb)")
        raise GraphgenError(error.code, what, help="record it again") from error


def _read(data: Source) -> ProfileRecording:
    events: list[OpEvent] = []
    modules: dict[str, bytes] = {}
    rates: DeviceRates | None = None
    threads = 0
    for message in Message(data).messages(_Space.PLANES):
        plane = _Tables(message)
        modules |= plane.modules()
        rates = rates or plane.rates()
        events += plane.events(threads)
        threads += len(message.spans(_Plane.LINES))
    return ProfileRecording(KIND, events, modules, rates)


class _Tables:
    """One plane with its tables of names."""

    def __init__(self, message: Message) -> None:
        self.message = message
        self.name = message.text(_Plane.NAME)
        self.stats = {
            number: found.text(_Metadata.NAME) for number, found in _entries(message, _Plane.STATS)
        }
        self.kinds = dict(_entries(message, _Plane.EVENTS))
        self.names = {number: _name(found) for number, found in self.kinds.items()}

    def values(self, stats: Sequence[Message]) -> dict[str, _Value]:
        """Stats by name."""
        return {
            self.stats.get(stat.integer(_Stat.METADATA), ""): self._value(stat) for stat in stats
        }

    def _value(self, stat: Message) -> _Value:
        if stat.has(_Stat.PLACE):
            return self.stats.get(stat.integer(_Stat.PLACE), "")
        if stat.has(_Stat.TEXT):
            return stat.text(_Stat.TEXT)
        if stat.has(_Stat.BYTES):
            return stat.data(_Stat.BYTES)
        if stat.has(_Stat.DOUBLE):
            data = stat.data(_Stat.DOUBLE)
            return struct.unpack("<d", data)[0] if len(data) == 8 else 0.0
        return stat.integer(_Stat.UNSIGNED) or stat.integer(_Stat.SIGNED)

    def modules(self) -> dict[str, bytes]:
        """The HLO protobufs among the names of events."""
        if _HLO not in self.stats.values():
            return {}
        found: dict[str, bytes] = {}
        for kind in self.kinds.values():
            held = self.values(kind.messages(_Metadata.STATS)).get(_HLO)
            if isinstance(held, bytes):
                found[kind.text(_Metadata.NAME)] = held
        return found

    def rates(self) -> DeviceRates | None:
        """The figures of a device, as they stand in its plane."""
        if not self.name.startswith(_DEVICE):
            return None
        own = self.values(self.message.messages(_Plane.OWN))
        flops = _positive(own.get(_TERA)) * 1e12
        bandwidth = _positive(own.get(_GIGA)) * 1e9 or _positive(own.get(_BYTES))
        return DeviceRates(flops, bandwidth, self.name) if flops and bandwidth else None

    def events(self, first: int) -> list[OpEvent]:
        """The events of HLO instructions; threads are numbered from ``first`` on."""
        lines = self.message.messages(_Plane.LINES)
        shown = [line.text(_Line.SHOWN) or line.text(_Line.NAME) for line in lines]
        if _OPS in shown and self.name.startswith(_DEVICE):
            around = _Modules(
                self, [line for line, name in zip(lines, shown, strict=True) if name == _MODULES]
            )
            return [
                event
                for at, (line, name) in enumerate(zip(lines, shown, strict=True))
                if name == _OPS
                for event in self._ops(line, first + at, around)
            ]
        if _OP not in self.stats.values():
            return []
        found: list[tuple[OpEvent, object]] = []
        ends: dict[object, int] = {}
        for at, line in enumerate(lines):
            self._thunks(line, first + at, found, ends)
        for event, number in found:
            event.done = max(event.end, ends.get(number, event.end))
        return [event for event, _ in found]

    def _ops(self, line: Message, thread: int, around: _Modules) -> list[OpEvent]:
        found: list[OpEvent] = []
        for kind, start, end, _ in self._times(line):
            name = self.names.get(kind, "")
            program, run = around.of(start)
            found.append(OpEvent(program, name, run, self.name, thread, start, end, end))
        return found

    def _thunks(
        self,
        line: Message,
        thread: int,
        found: list[tuple[OpEvent, object]],
        ends: dict[object, int],
    ) -> None:
        """Append the ops of a line, each with the id of its end, and the ends on it."""
        for kind, start, end, event in self._times(line):
            spans = event.spans(_Event.STATS)
            if not spans:
                continue
            stats = self.values([Message(event.source, *span) for span in spans])
            op = stats.get(_OP)
            if op is None:
                if self.names.get(kind, "").startswith(END):
                    ends[tuple([stats.get(key) for key in _TAKEN])] = start
                continue
            program, device = _program(stats), f"{self.name}:{stats.get(_ORDINAL, 0)}"
            run = str(stats.get(_RUN, ""))
            made = OpEvent(program, str(op), run, device, thread, start, end, end)
            number = tuple([stats.get(key) for key in _MADE])
            found.append((made, number if None not in number else None))

    def _times(self, line: Message) -> list[tuple[int, int, int, Message]]:
        """Kind, start and end of each event in picoseconds, and the event."""
        base = 1000 * line.integer(_Line.NANOSECONDS)
        out: list[tuple[int, int, int, Message]] = []
        for event in line.messages(_Line.EVENTS):
            start = base + event.integer(_Event.OFFSET)
            end = start + max(event.integer(_Event.DURATION), 0)
            out.append((event.integer(_Event.METADATA), start, end, event))
        return out

    def times(self, line: Message) -> list[tuple[str, int, int, Message]]:
        """Name, start and end of each event of a line, and the event."""
        return [
            (self.names.get(kind, ""), start, end, event)
            for kind, start, end, event in self._times(line)
        ]


class _Modules:
    """The programs that ran on a device, by time."""

    def __init__(self, plane: _Tables, lines: Sequence[Message]) -> None:
        spans = [event for line in lines for event in plane.times(line)]
        self.spans = sorted(spans, key=lambda span: span[1])
        self.starts = [start for _, start, _, _ in self.spans]

    def of(self, at: int) -> tuple[str, str]:
        """The program that ran at an instant, and which run it was; empty outside of all."""
        place = bisect_right(self.starts, at) - 1
        if place < 0 or at >= self.spans[place][2]:
            return "", ""
        return self.spans[place][0], str(place)


def _entries(message: Message, number: int) -> list[tuple[int, Message]]:
    """A map of a plane: keys with their messages."""
    found: list[tuple[int, Message]] = []
    for entry in message.messages(number):
        value = entry.message(2)
        if value is not None:
            found.append((value.integer(_Metadata.ID) or entry.integer(1), value))
    return found


def _name(kind: Message) -> str:
    """The name of an event; of an instruction written out, ``%dot.3 = ...``, its own name."""
    shown = kind.text(_Metadata.SHOWN) or kind.text(_Metadata.NAME)
    return shown.partition(" = ")[0].lstrip("%")


def _program(stats: Mapping[str, _Value]) -> str:
    name = str(stats.get(_MODULE, ""))
    return f"{name}({stats[_PROGRAM]})" if _PROGRAM in stats else name


def _positive(value: _Value | None) -> float:
    """A figure, or 0 for one that is not there or makes no sense."""
    return float(value) if isinstance(value, int | float) and 0 < value < 1e30 else 0.0
