"""The memory of one program: reserved bytes, the peak with its buffers, XLA's allocations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.lowering.hlo_proto.proto_module import open_hlo
from graphgen.lowering.hlo_proto.wire import Source
from graphgen.lowering.xla_dump.assign_buffers import (
    AssignedBuffer,
    assign_buffers,
    buffer_kind,
)
from graphgen.lowering.xla_dump.memory_texts import (
    CONSTANT,
    OUTPUT,
    PARAMETER,
    TEMP,
    THREAD_LOCAL,
    Allocation,
    XlaPeak,
)
from graphgen.lowering.xla_dump.schedule_values import LiveValue, ScheduledModule


@dataclass(frozen=True, slots=True)
class LiveBuffer:
    """A buffer of the program.

    Attributes:
        name: of the value that begins it.
        shape: of that value.
        nbytes: its size.
        padding: bytes of it that no element is in.
        kind: ``parameter``, ``output``, ``constant``, ``temp`` or ``thread-local``.
        start, end: the first and the last time at which something of it lives.
        layer: the name in the traced program of what makes it.
        times: first and last time of each of its values.
    """

    name: str
    shape: str
    nbytes: int
    padding: int
    kind: str
    start: int
    end: int
    layer: str
    times: tuple[tuple[int, int], ...] = ()

    def lives_at(self, time: int) -> bool:
        """Something of it lives at this time."""
        return any(start <= time <= end for start, end in self.times)

    def to_json(self) -> dict[str, Json]:
        """Its facts."""
        keys = ("name", "shape", "nbytes", "padding", "kind", "start", "end", "layer")
        return {("bytes" if key == "nbytes" else key): getattr(self, key) for key in keys}


@dataclass(slots=True)
class MemoryUse:
    """Memory of one program.

    Attributes:
        name: of the module.
        scheduled: the module states its schedule.
        instructions: names of the instructions by time.
        buffers: all buffers.
        reserved: bytes of all allocations, computed here.
        by_kind: the same by kind.
        donated: name of each parameter whose buffer an output takes, with its bytes.
        live: bytes that live at each time.
        assigned: XLA's allocations, where its files are at hand.
        xla_peak: XLA's live ranges, where their file is at hand.
        stated: XLA's total of bytes; ``None`` where no file states it.
    """

    name: str
    scheduled: bool
    instructions: list[str]
    buffers: list[LiveBuffer]
    reserved: int
    by_kind: dict[str, int]
    donated: list[tuple[str, int]]
    live: list[int]
    assigned: list[Allocation] = field(default_factory=list[Allocation])
    xla_peak: XlaPeak | None = None
    stated: int | None = None

    @property
    def peak(self) -> int:
        """The first time with the most live bytes."""
        return self.live.index(max(self.live)) if self.live else 0

    def at(self, time: int) -> list[LiveBuffer]:
        """The buffers that live at a time, the largest first."""
        found = [buffer for buffer in self.buffers if buffer.lives_at(time)]
        return sorted(found, key=lambda buffer: (-buffer.nbytes, buffer.name))

    @property
    def total(self) -> int:
        """XLA's total where it is known, else the one computed here."""
        return self.reserved if self.stated is None else self.stated


def memory_of(source: Source) -> MemoryUse:
    """The memory of an HLO module, computed from its schedule.

    Raises:
        GraphgenError: GG0801 for a damaged module, or one whose parts do not fit.
    """
    try:
        module = ScheduledModule(open_hlo(source))
        assigned = assign_buffers(module)
    except LookupError as error:
        what = f"the schedule of this module is damaged: {error} is not there"
        raise GraphgenError("GG0801", what) from error
    buffers = _buffers(module)
    kinds: dict[str, int] = {}
    for item in assigned:
        kinds[item.kind] = kinds.get(item.kind, 0) + item.nbytes
    parameters = {
        value.value.made.name: item.nbytes
        for item in assigned
        if item.kind == PARAMETER and item.lives_out
        for value in item.values[:1]
    }
    return MemoryUse(
        module.module.name,
        module.scheduled,
        [item.name for item in module.order],
        buffers,
        sum(kinds.values()),
        kinds,
        [*parameters.items()],
        _live(assigned, len(module.order)),
    )


def _buffers(module: ScheduledModule) -> list[LiveBuffer]:
    found = [_buffer(group, buffer_kind(module, group)[0]) for group in module.groups().values()]
    return [item for item in found if item.nbytes]


def _buffer(group: Sequence[LiveValue], kind: str) -> LiveBuffer:
    first = min(group, key=lambda value: (value.start, value.end))
    largest = max(group, key=lambda value: value.nbytes)
    times = tuple(sorted([(value.start, value.end) for value in group]))
    return LiveBuffer(
        first.label,
        largest.shape.text,
        largest.nbytes,
        largest.padding,
        kind,
        times[0][0],
        max([end for _, end in times]),
        first.made.layer,
        times,
    )


def _live(assigned: Sequence[AssignedBuffer], count: int) -> list[int]:
    """Bytes in use at each time; what two values share counts once."""
    steps = [0] * (count + 2)
    for item in assigned:
        if item.kind == THREAD_LOCAL:
            continue
        free: dict[int, int] = {}
        for placed in sorted(item.values, key=lambda each: each.value.start):
            # An op that writes over its operand has its place from the next time on.
            start = max(placed.value.start, free.get(placed.offset, 0))
            end = placed.value.end
            if start <= end:
                steps[start] += placed.value.nbytes
                steps[min(end, count) + 1] -= placed.value.nbytes
                free[placed.offset] = end + 1
    return [*accumulate(steps)][: max(count, 1)]


def _joined(times: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges without overlaps."""
    out: list[tuple[int, int]] = []
    for start, end in times:
        if out and start <= out[-1][1] + 1:
            out[-1] = out[-1][0], max(end, out[-1][1])
        else:
            out.append((start, end))
    return out


# Kinds, the first of which go last.
_ORDER = (PARAMETER, CONSTANT, OUTPUT, TEMP)


def to_fit(found: MemoryUse, most: int) -> tuple[list[LiveBuffer], int]:
    """Buffers that would have to go so that no more than ``most`` bytes live at once.

    At the fullest instant the largest temporary buffer goes, then the same again; outputs,
    constants and parameters go where nothing else is left.

    Returns:
        The buffers in the order in which they go, and the live bytes that remain.
    """
    kept = [*found.buffers]
    gone: list[LiveBuffer] = []
    live = [*found.live]
    while live and max(live) > most:
        time = live.index(max(live))
        there = [buffer for buffer in kept if buffer.lives_at(time)]
        if not there:
            break
        largest = max(there, key=lambda item: (_ORDER.index(item.kind), item.nbytes, item.end))
        gone.append(largest)
        kept.remove(largest)
        for start, end in _joined(largest.times):
            for place in range(start, min(end, len(live) - 1) + 1):
                live[place] -= largest.nbytes
    return gone, max(live, default=0)
