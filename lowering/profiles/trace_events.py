"""Reads ``trace.json`` of ``jax.profiler``: Chrome's trace events.

Events of HLO instructions have the argument ``hlo_op``, or are on a thread named ``XLA Ops``. The
file has neither programs nor the figures of devices, and profilers leave out events beyond a
million. Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from graphgen.errors import GraphgenError
from graphgen.json_value import Json, parse_json
from graphgen.limits import PROFILE_BYTES
from graphgen.lowering.profiles.recording import OpEvent, ProfileRecording
from graphgen.lowering.profiles.xspace import END
from graphgen.numbers import is_finite

KIND: Final = "trace.json of a profiler"
_OPS, _EVENTS = "XLA Ops", "traceEvents"
# Picoseconds of a microsecond, in which the file has times.
_MICRO = 1_000_000
# Times further away are damage: ten years.
_FARTHEST = 3.2e14


def looks_like_trace(head: bytes) -> bool:
    """True for the beginning of JSON that has trace events."""
    return head[:1] == b"{" and f'"{_EVENTS}"'.encode() in head


def read_trace(data: bytes) -> ProfileRecording:
    """Read a recording.

    Raises:
        GraphgenError: GG0705 for other or damaged data.
    """
    try:
        content: object = parse_json(data, most=PROFILE_BYTES)
    except ValueError as error:
        raise _bad(str(error)) from error
    rows = cast("Mapping[str, Json]", content).get(_EVENTS) if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise _bad(f"it has no list {_EVENTS}")
    events = [row for row in rows if isinstance(row, dict)]
    return ProfileRecording(KIND, _op_events(events))


def _bad(what: str) -> GraphgenError:
    return GraphgenError(
        "GG0705", f"this is not a trace of a profiler: {what}", help="record it again"
    )


_Thread = tuple[str, str]


def _op_events(rows: Sequence[Mapping[str, Json]]) -> list[OpEvent]:
    names = _names(rows)
    numbers: dict[_Thread, int] = {}
    found: list[OpEvent] = []
    ends: dict[str, list[int]] = {}
    for row in rows:
        if row.get("ph") != "X":
            continue
        start, length = _time(row.get("ts")), _time(row.get("dur"))
        name, thread = str(row.get("name", "")), _thread(row)
        held = row.get("args")
        stats = held if isinstance(held, dict) else {}
        if "hlo_op" not in stats and names.get(thread) != _OPS:
            if name.startswith(END):
                ends.setdefault(name.removeprefix(END), []).append(start)
            continue
        program = str(stats.get("hlo_module", ""))
        if program and "program_id" in stats:
            program = f"{program}({stats['program_id']})"
        device = f"{thread[0]}:{stats.get('device_ordinal', 0)}"
        number = numbers.setdefault(thread, len(numbers))
        op, run = str(stats.get("hlo_op", name)), str(stats.get("run_id", ""))
        end = start + max(length, 0)
        found.append(OpEvent(program, op, run, device, number, start, end, end))
    _finish(found, ends)
    return found


def _finish(events: Sequence[OpEvent], ends: Mapping[str, list[int]]) -> None:
    """Give each event the end of its op, which may be on another thread; those have no ids here."""
    by_op: dict[str, list[OpEvent]] = {}
    for event in events:
        by_op.setdefault(event.op, []).append(event)
    for op, same in by_op.items():
        times = sorted(ends.get(op, []))
        if len(times) == len(same):
            for event, time in zip(sorted(same, key=lambda one: one.start), times, strict=True):
                event.done = max(event.end, time)


def _names(rows: Sequence[Mapping[str, Json]]) -> dict[_Thread, str]:
    """The names of threads."""
    found: dict[_Thread, str] = {}
    for row in rows:
        held = row.get("args")
        if row.get("ph") == "M" and row.get("name") == "thread_name" and isinstance(held, dict):
            found[_thread(row)] = str(held.get("name", ""))
    return found


def _thread(row: Mapping[str, Json]) -> _Thread:
    return str(row.get("pid", "")), str(row.get("tid", ""))


def _time(value: Json) -> int:
    """Picoseconds of microseconds; 0 for another value."""
    if not is_finite(value) or abs(value) > _FARTHEST:
        return 0
    return round(value * _MICRO)
