"""Simulate one step of a program on all ranks, where several ranks may share a core.

A rank does its tasks in order. A collective is a ring of ranks, or several side by side: in each
round a rank handles a message, for which it needs that of the rank before it of the round before. A
core runs its work in the order in which it can begin (list scheduling): with more ranks than cores,
ranks wait for each other there, too.

Times are those of a core that is at work: waiting takes none. Nothing here is measured or fitted.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.ir import Function, Op
from graphgen.ops import Trait, has_trait


@dataclass(frozen=True, slots=True)
class Task:
    """Work of each rank.

    Attributes:
        name: in a trace.
        seconds: of the core, before the first round.
        rounds: of messages in the ring; 0 for what a rank does alone.
        round_seconds: of the core, for each round.
        wire_seconds: from the end of a round to the arrival of its message.
        rings: the ranks of each ring in their order; empty for one of all ranks.
    """

    name: str
    seconds: float
    rounds: int = 0
    round_seconds: float = 0.0
    wire_seconds: float = 0.0
    rings: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class TaskSpan:
    """A part of a task on its core: all before the first round, or one round."""

    name: str
    rank: int
    core: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class SimulatedStep:
    """A step.

    Attributes:
        seconds: until the last rank has ended.
        busy: seconds in which each core is at work.
        spans: in the order in which they begin to be possible.
    """

    seconds: float
    busy: tuple[float, ...]
    spans: tuple[TaskSpan, ...]


def simulate_step(tasks: Sequence[Task], ranks: int, cores: int) -> SimulatedStep:
    """The step of a program that all ranks run, rank ``r`` on core ``r % cores``.

    Args:
        tasks: of each rank.
        ranks: how many.
        cores: how many.
    """
    return _Run(tasks, ranks, cores).step()


@dataclass(frozen=True, slots=True)
class _TaskPart:
    """A part of a task, and the number of the part that it needs of the rank before in its ring."""

    name: str
    seconds: float
    needs: int | None
    wire: float
    rings: tuple[tuple[int, ...], ...]

    def before(self, rank: int, ranks: int) -> int:
        """The rank before one of ``ranks``."""
        for ring in self.rings:
            if rank in ring:
                return ring[ring.index(rank) - 1]
        return (rank - 1) % ranks


@dataclass(slots=True)
class _Run:
    """The state of a simulation.

    Attributes:
        ends: of each rank, of the parts that it has done.
        ready: (time, order, rank) of parts that can begin.
        waiting: ranks by the (rank, part) that they need.
    """

    tasks: Sequence[Task]
    ranks: int
    cores: int
    ends: list[list[float]] = field(default_factory=list[list[float]])
    ready: list[tuple[float, int, int]] = field(default_factory=list[tuple[float, int, int]])
    waiting: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    order: int = 0

    def step(self) -> SimulatedStep:
        parts = _parts(self.tasks)
        self.ends = [[] for _ in range(self.ranks)]
        free, busy, spans = [0.0] * self.cores, [0.0] * self.cores, list[TaskSpan]()
        for rank in range(self.ranks):
            self._offer(parts, rank)
        while self.ready:
            begin, _, rank = heapq.heappop(self.ready)
            core, part = rank % self.cores, parts[len(self.ends[rank])]
            start = max(begin, free[core])
            free[core] = end = start + part.seconds
            busy[core] += part.seconds
            spans.append(TaskSpan(part.name, rank, core, start, end))
            self.ends[rank].append(end)
            self._offer(parts, rank)
            waits = self.waiting.pop((rank, len(self.ends[rank]) - 1), None)
            if waits is not None:
                self._offer(parts, waits)
        last = max((ends[-1] for ends in self.ends if ends), default=0.0)
        return SimulatedStep(last, tuple(busy), tuple(spans))

    def _offer(self, parts: Sequence[_TaskPart], rank: int) -> None:
        """Let the next part of a rank begin, or wait for the message that it needs."""
        done = self.ends[rank]
        if len(done) == len(parts):
            return
        part, begin = parts[len(done)], done[-1] if done else 0.0
        if part.needs is not None:
            left = part.before(rank, self.ranks)
            if len(self.ends[left]) <= part.needs:
                self.waiting[left, part.needs] = rank
                return
            begin = max(begin, self.ends[left][part.needs] + part.wire)
        self.order += 1
        heapq.heappush(self.ready, (begin, self.order, rank))


def _parts(tasks: Sequence[Task]) -> list[_TaskPart]:
    """The parts of all tasks: each round but the first needs the one before it."""
    parts: list[_TaskPart] = []
    for task in tasks:
        parts.append(_TaskPart(task.name, task.seconds, None, 0.0, ()))
        for number in range(task.rounds):
            needs = len(parts) - 1 if number else None
            wire = task.wire_seconds
            parts.append(_TaskPart(task.name, task.round_seconds, needs, wire, task.rings))
    return parts


def chrome_trace(step: SimulatedStep) -> str:
    """JSON of the Trace Event Format: a process for each core, a thread for each rank."""
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": core, "args": {"name": f"core {core}"}}
        for core in range(len(step.busy))
    ]
    events += [_event(span) for span in step.spans]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def _event(span: TaskSpan) -> dict[str, object]:
    return {
        "ph": "X",
        "name": span.name,
        "pid": span.core,
        "tid": span.rank,
        "ts": round(1e6 * span.start, 3),
        "dur": round(1e6 * (span.end - span.start), 3),
    }


# Messages that follow each other in a ring of n ranks, by n - 1: gloo's algorithms.
_TURNS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}


@dataclass(frozen=True, slots=True)
class HostFigures:
    """Seconds of one core.

    Attributes:
        ops: of one run of each op that runs alone, by :func:`op_key`.
        kernel: of a small kernel, with values that are in the cache.
        launch: of a launch without arguments.
        argument: of each argument of a launch.
        exchange: of a collective beside its rounds.
        turn: of one round of a collective without bytes.
        turn_byte: of each byte of a round.
    """

    ops: Mapping[str, float]
    kernel: float
    launch: float
    argument: float
    exchange: float
    turn: float
    turn_byte: float


def op_key(op: Op) -> str:
    """Equal for ops that take the same time."""
    types = [value.type.text for value in (*op.operands, *op.results)]
    kernel = op.attrs.text("kernel") if "kernel" in op.attrs else ""
    return f"{op.name} {kernel} {types}"


def runs_alone(op: Op) -> bool:
    """True for ops that are kernels of their own, whatever stands beside them."""
    return op.name in ("call", "dot_general", "gather", "reduce")


def program_tasks(function: Function, figures: HostFigures) -> Iterator[Task]:
    """The tasks of a rank, in order.

    Views and constants take nothing. Of the ops between two that run alone, XLA makes one kernel
    for each value that such an op, or the end of the program, reads.

    Args:
        function: the program of a rank.
        figures: of the host; the ops that run alone are among them.
    """
    yield Task("launch", figures.launch + figures.argument * len(function.args))
    for op in function.block:
        if has_trait(op, Trait.COLLECTIVE):
            yield _exchange(op, figures)
        elif runs_alone(op):
            yield Task(_name(op), figures.ops[op_key(op)])
        elif _is_kernel(function, op):
            yield Task(_name(op), figures.kernel)


def _name(op: Op) -> str:
    return op.attrs.text("kernel") if "kernel" in op.attrs else op.name


def _is_kernel(function: Function, op: Op) -> bool:
    """True for the last op of those that become one kernel."""
    if has_trait(op, Trait.VIEW) or not op.operands:
        return False
    value = op.results[0]
    readers = [user for user in value.users if not has_trait(user, Trait.VIEW)]
    ends = any(runs_alone(user) or has_trait(user, Trait.COLLECTIVE) for user in readers)
    return ends or function.returns(value)


def _exchange(op: Op, figures: HostFigures) -> Task:
    """A collective in a ring of each group of ranks, of whose bytes a round has 1/n."""
    groups = op.attrs.groups("replica_groups")
    ranks = len(groups[0])
    whole = max(op.operands[0].type.nbytes, op.results[0].type.nbytes)
    turn = figures.turn + figures.turn_byte * whole / ranks
    return Task(op.name, figures.exchange, _TURNS[op.name] * (ranks - 1), turn, rings=groups)
