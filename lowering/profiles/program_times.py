"""The times of a program's ops in a recording: of each run, and on average."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from graphgen.lowering.profiles.recording import PICO, OpEvent, ProfileRecording

_Span = tuple[int, int]


@dataclass(slots=True)
class OpTime:
    """The time of one op.

    Attributes:
        name: of its HLO instruction.
        times: how often it ran, in all runs together.
        seconds: of one run of the program on average, without what ran inside of it.
        inside: seconds of one run in which ops ran inside of it, as those of a loop's body.
    """

    name: str
    times: int
    seconds: float
    inside: float


@dataclass(frozen=True, slots=True)
class ProgramTimes:
    """The times of one program.

    Attributes:
        program: its name.
        runs: seconds from the first op's start to the last op's end, of each run in order.
        ops: in the order of their first events.
        counted: runs that the times of the ops are the mean of.
        alone: see :class:`ProfileRecording`.
        devices: that ran it.
    """

    program: str
    runs: Sequence[float]
    ops: Sequence[OpTime]
    counted: int
    alone: bool = False
    devices: int = 1

    @property
    def seconds(self) -> float:
        """The mean of the runs."""
        return sum(self.runs) / len(self.runs) if self.runs else 0.0

    @property
    def total(self) -> float:
        """The sum of the ops of one run."""
        return sum([op.seconds for op in self.ops])


@dataclass(slots=True)
class _Sums:
    """The times of an op in all runs, in picoseconds."""

    times: int = 0
    own: int = 0
    inside: int = 0


def program_times(recording: ProfileRecording) -> list[ProgramTimes]:
    """The times of each program of a recording, the one that took longest first."""
    by_program: dict[str, list[OpEvent]] = {}
    for event in recording.events:
        by_program.setdefault(event.program, []).append(event)
    found = [_times(name, events, recording) for name, events in by_program.items()]
    return sorted(found, key=lambda one: -sum(one.runs))


def _times(name: str, events: Sequence[OpEvent], recording: ProfileRecording) -> ProgramTimes:
    runs: dict[tuple[str, str], list[OpEvent]] = {}
    for event in events:
        runs.setdefault((event.device, event.run), []).append(event)
    sums: dict[str, _Sums] = {}
    wholes: list[tuple[int, float]] = []
    for (_, number), found in runs.items():
        for run in [found] if number else _split(found):
            start = min([event.start for event in run])
            wholes.append((start, (max([event.done for event in run]) - start) / PICO))
            _add(run, sums)
    count = len(wholes)
    spans = recording.wholes or [seconds for _, seconds in sorted(wholes)]
    ops = [
        OpTime(op, one.times, one.own / PICO / count, one.inside / PICO / count)
        for op, one in sums.items()
    ]
    devices = len({device for device, _ in runs})
    return ProgramTimes(name, spans, ops, count, recording.alone, devices)


def _split(events: Sequence[OpEvent]) -> list[list[OpEvent]]:
    """The runs of events that do not say which run they are of.

    Ops of the entry run once a run, so the first of those that ran least often begins each run.
    """
    counts = Counter(event.op for event in events)
    least = min(counts.values())
    ordered = sorted(events, key=lambda event: event.start)
    first = next(event.op for event in ordered if counts[event.op] == least)
    starts = [event.start for event in ordered if event.op == first][1:]
    found: list[list[OpEvent]] = [[] for _ in range(len(starts) + 1)]
    for event in ordered:
        found[bisect_right(starts, event.start)].append(event)
    return found


def _add(run: Sequence[OpEvent], sums: dict[str, _Sums]) -> None:
    """Add the ops of one run."""
    own: dict[str, list[_Span]] = {}
    inside: dict[str, list[_Span]] = {}
    for thread in _by_thread(run):
        for event, parts in _nested(thread):
            own.setdefault(event.op, []).extend(parts[0])
            inside.setdefault(event.op, []).extend(parts[1])
    whole: list[_Span] | None = None
    for event in run:
        sums.setdefault(event.op, _Sums()).times += 1
        if event.done <= event.end:
            continue
        late = (event.end, event.done)
        if not inside[event.op]:
            own[event.op].append(late)
            continue
        # A loop waits for its body, whose ops other threads ran.
        if whole is None:
            whole = _union([(one.start, one.done) for one in run if not inside[one.op]])
        covered = _common(late, whole)
        inside[event.op].extend(covered)
        own[event.op].extend(_without(late, covered))
    for op, spans in own.items():
        sums[op].own += _length(spans)
        sums[op].inside += _length(inside[op])


def _by_thread(run: Iterable[OpEvent]) -> list[list[OpEvent]]:
    found: dict[int, list[OpEvent]] = {}
    for event in run:
        found.setdefault(event.thread, []).append(event)
    return [sorted(events, key=lambda one: (one.start, -one.end)) for events in found.values()]


@dataclass(slots=True)
class _Open:
    event: OpEvent
    held: list[_Span] = field(default_factory=list[_Span])


def _nested(events: Sequence[OpEvent]) -> list[tuple[OpEvent, tuple[list[_Span], list[_Span]]]]:
    """Each event of a thread with the spans of its own, and those of events inside of it."""
    stack: list[_Open] = []
    found: list[tuple[OpEvent, tuple[list[_Span], list[_Span]]]] = []

    def close(one: _Open) -> None:
        span = (one.event.start, one.event.end)
        found.append((one.event, (_without(span, one.held), one.held)))

    for event in events:
        while stack and event.end > stack[-1].event.end:
            close(stack.pop())
        if stack:
            stack[-1].held.append((event.start, event.end))
        stack.append(_Open(event))
    while stack:
        close(stack.pop())
    return found


def _union(spans: Iterable[_Span]) -> list[_Span]:
    """Spans that do not overlap, in order."""
    found: list[_Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _length(spans: Iterable[_Span]) -> int:
    return sum([end - start for start, end in _union(spans)])


def _common(span: _Span, spans: Sequence[_Span]) -> list[_Span]:
    """The parts of a span that others cover; they are in order and do not overlap."""
    cut = [(max(start, span[0]), min(end, span[1])) for start, end in spans]
    return [(start, end) for start, end in cut if start < end]


def _without(span: _Span, held: Sequence[_Span]) -> list[_Span]:
    """The parts of a span that no others cover."""
    found: list[_Span] = []
    at = span[0]
    for start, end in _union(held):
        if start > at:
            found.append((at, min(start, span[1])))
        at = max(at, end)
    if at < span[1]:
        found.append((at, span[1]))
    return found
