"""Tensors from stage to stage over processes, and outputs of a stage to all processes.

Both are programs of collective permutes, which JAX's distributed runtime runs on the ranks that
take part; on the CPU gloo sends what they move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from graphgen.eval import Array, numpy_dtype
from graphgen.ir import Function, Module, TensorType
from graphgen.ir.dtype import u8
from graphgen.lowering.cpu import pjrt, processes
from graphgen.lowering.cpu.program import CpuProgram, DeviceValue, compile_program

_SENT, _GIVEN = "sent", "given"


def edge_module(type_: TensorType, ranks: int) -> Module:
    """A program of two stages of ``ranks``: each rank of the first sends to one of the second."""
    # Only here, as below: an artifact that runs in one process does without the builder.
    from graphgen.build import Builder

    module = Module("edge", "target", {"rank": 2 * ranks})
    function = module.add(Function("edge", "edge"))
    with Builder(function, module) as b:
        given = b.input(_GIVEN, type_.dtype, type_.shape)
        b.output(_SENT, b.collective_permute(given, [(r, ranks + r) for r in range(ranks)]))
    return module


def broadcast_module(size: int, count: int, source: int) -> Module:
    """A program of ``count`` processes, all of which get the bytes of one; the others give zeros.

    Those that have them send them on, so that they go twice as far in each round.
    """
    from graphgen.build import Builder

    module = Module("broadcast", "target", {"process": count})
    function = module.add(Function("broadcast", "broadcast"))
    with Builder(function, module) as b:
        held, reached = b.input(_GIVEN, u8, (size,)), 1
        while reached < count:
            pairs = [
                ((source + place) % count, (source + reached + place) % count)
                for place in range(min(reached, count - reached))
            ]
            held = b.add(held, b.collective_permute(held, pairs))
            reached *= 2
        b.output(_SENT, held)
    return module


@dataclass(slots=True)
class StageLinks:
    """The ways between the stages of one pipeline.

    A way is a program of those processes that have ranks of either end; it is compiled and run
    once when its kind of tensor is first announced, so that the processes are connected before
    one of them waits for a stage.

    Attributes:
        ranks: of each stage.
        stages: number of them.
    """

    ranks: int
    stages: int
    _edges: dict[tuple[int, TensorType], tuple[CpuProgram, list[Array]]] = field(
        default_factory=dict[tuple[int, TensorType], tuple[CpuProgram, "list[Array]"]]
    )
    _broadcasts: dict[tuple[int, int], CpuProgram] = field(
        default_factory=dict[tuple[int, int], CpuProgram]
    )
    # By edge: the newest that was sent or received here since the last output was shared.
    _running: dict[int, Sequence[DeviceValue]] = field(
        default_factory=dict[int, "Sequence[DeviceValue]"]
    )

    def is_away(self, number: int) -> bool:
        """True if an edge joins several processes, and this is one of them."""
        homes = {processes.process_of(rank) for rank in self._ends(number)}
        return len(homes) > 1 and processes.index() in homes

    def announce_edge(self, number: int, type_: TensorType) -> None:
        """Compile and connect what sends the tensor from stage ``number`` to the next one."""
        if (number, type_) in self._edges or not self.is_away(number):
            return
        module = edge_module(type_, self.ranks)
        with pjrt.on_devices(self._ends(number)):
            program = compile_program(module, module.function("edge"))
        nothing = np.zeros(type_.dims, numpy_dtype(type_.dtype))
        self._edges[number, type_] = program, [nothing]
        self.send(number, type_, [])

    def announce_output(self, stage: int, type_: TensorType) -> None:
        """Compile and connect what sends an output of a stage to all processes."""
        if (stage, type_.nbytes) not in self._broadcasts:
            source = processes.process_of(stage * self.ranks)
            module = broadcast_module(type_.nbytes, processes.count(), source)
            with pjrt.on_devices(self._first_ranks):
                program = compile_program(module, module.function("broadcast"))
            self._broadcasts[stage, type_.nbytes] = program
            self.share(stage, type_, None)

    def send(
        self, number: int, type_: TensorType, pieces: Sequence[DeviceValue]
    ) -> list[DeviceValue]:
        """Start to send a tensor from stage ``number`` to the next one.

        Args:
            number: of the stage.
            type_: of the tensor.
            pieces: for each rank of the stage that is here; others take part with nothing.

        Returns:
            For each rank of the next stage that is here.
        """
        program, nothing = self._edges[number, type_]
        ends = self._ends(number)
        here = [place for place, _ in enumerate(ends) if self._is_here(ends[place])]
        with pjrt.on_devices(ends):
            given: list[Any] = [*pieces, *nothing * (len(here) - len(pieces))]
            sent = program.launch({_GIVEN: pjrt.put_here(given, len(ends))})[_SENT]
        self._running[number] = sent
        return [piece for place, piece in zip(here, sent, strict=True) if place >= self.ranks]

    def share(self, stage: int, type_: TensorType, value: DeviceValue | None) -> Array:
        """An output of a stage in all processes, which all have to call this.

        It begins when the work of this process has ended. XLA runs programs on as many threads as
        there are cores: a broadcast that waits for a later stage would hold one that the stages
        here may need to compute what the later one waits for.

        Args:
            stage: that gives it.
            type_: of the output.
            value: of the stage's first rank here; ``None`` in processes without one.
        """
        for started in chain(*self._running.values(), () if value is None else (value,)):
            started.block_until_ready()
        self._running.clear()
        held = np.zeros(type_.nbytes, np.uint8)
        if value is not None and self._is_here(stage * self.ranks):
            held = np.ascontiguousarray(np.asarray(value)).reshape(-1).view(np.uint8)
        program = self._broadcasts[stage, type_.nbytes]
        with pjrt.on_devices(self._first_ranks):
            (sent,) = program.launch({_GIVEN: pjrt.put_here([held], processes.count())})[_SENT]
        return np.asarray(sent).view(numpy_dtype(type_.dtype)).reshape(type_.dims)

    @property
    def _first_ranks(self) -> range:
        """The first rank of each process."""
        return range(0, self.ranks * self.stages, self.ranks * self.stages // processes.count())

    def _ends(self, number: int) -> range:
        """The ranks of a stage and of the next one."""
        return range(number * self.ranks, (number + 2) * self.ranks)

    def _is_here(self, rank: int) -> bool:
        return processes.process_of(rank) == processes.index()


@dataclass(frozen=True, slots=True)
class StageOutput:
    """An output that one stage gives and every process reads, in the same order as the others.

    Attributes:
        links: of the pipeline.
        stage: that gives it.
        type: of the output.
        value: of the stage's first rank; ``None`` in processes without it.
    """

    links: StageLinks
    stage: int
    type: TensorType
    value: DeviceValue | None

    def read(self) -> Array:
        """Wait for it."""
        return self.links.share(self.stage, self.type, self.value)


def on_host(value: DeviceValue | StageOutput) -> Array:
    """The output of one rank, once the launch has ended."""
    return value.read() if isinstance(value, StageOutput) else np.asarray(value)
