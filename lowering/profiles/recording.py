"""Recordings of profilers: events of ops, by program, run and thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# Times are whole picoseconds, as XLA's profiler has them.
PICO = 1_000_000_000_000


@dataclass(slots=True)
class OpEvent:
    """An op that ran once.

    Attributes:
        program: the module that it is of, ``jit_step(6)``; empty if the recording does not say.
        op: the name of its HLO instruction.
        run: which run of the program; empty if the recording does not say.
        device: that ran it.
        thread: the thread, stream or engine, unique in the recording.
        start, end: picoseconds; between them the thread worked on it.
        done: when its result was there, after the end where other threads went on with it.
    """

    program: str
    op: str
    run: str
    device: str
    thread: int
    start: int
    end: int
    done: int


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """The speed of a device.

    Attributes:
        flops: operations a second.
        bandwidth: bytes of memory a second.
        source: where the figures are from.
    """

    flops: float
    bandwidth: float
    source: str


@dataclass(frozen=True, slots=True)
class ProfileRecording:
    """A recording.

    Attributes:
        kind: what wrote it, in words.
        events: of all programs.
        modules: HLO protobufs by program, where the recording has them.
        rates: of the device, where the recording states them.
        alone: whether each op ran by itself, not as a part of the compiled program.
        wholes: seconds of runs that were measured as a whole, where the events have no runs.
        notes: about what is missing.
    """

    kind: str
    events: Sequence[OpEvent]
    modules: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    rates: DeviceRates | None = None
    alone: bool = False
    wholes: Sequence[float] = ()
    notes: Sequence[str] = ()
