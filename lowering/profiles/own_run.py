"""Times of own runs: by XLA's profiler, or of each op alone in NumPy."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.analysis import called, inlined
from graphgen.eval import NATIVE, Array, evaluate_ranks
from graphgen.eval.observer import Columns
from graphgen.exec.backend import NumpyBackend
from graphgen.ir import Function, Module, Op
from graphgen.lowering.backends.program_files import THE_FILE, WRITTEN_AGAIN, ProgramFiles
from graphgen.lowering.cpu.backend import alone_for_xla, without_channels
from graphgen.lowering.cpu.given_file import UnfitFileError
from graphgen.lowering.cpu.isolated_run import ISOLATED
from graphgen.lowering.cpu.program import WrittenProgram, file_program, write_program
from graphgen.lowering.profiles.recording import OpEvent, ProfileRecording
from graphgen.lowering.profiles.xspace import read_xspace
from graphgen.text.printer import value_names

_Arguments = Sequence[Mapping[str, Array]]


@dataclass(slots=True)
class XlaRecorder:
    """Runs programs as they stand on XLA under its profiler; a backend.

    Attributes:
        repeats: runs that are recorded, after one that is not.
        files: that stand for programs.
        recording: of the last program.
        compiled: what the last run compiled, and why that was not the file, both in words.
    """

    repeats: int
    files: ProgramFiles = field(default_factory=ProgramFiles)
    recording: ProfileRecording | None = None
    compiled: tuple[str, str] = (WRITTEN_AGAIN, "")

    def __call__(
        self, module: Module, function: Function, inputs: _Arguments
    ) -> list[dict[str, Array]]:
        """Run on all ranks (GG0401 where XLA refuses the program, or ends its process)."""
        file = self.files.find(module, function)
        if file is not None:
            self.compiled = THE_FILE, ""
            try:
                return self._recorded(file_program(module, function, file), inputs)
            except UnfitFileError as error:
                self.files.remove(module, function, error.what)
        self.compiled = WRITTEN_AGAIN, self.files.reason(module, function)
        alone, ready = alone_for_xla(module, function, as_is=True)
        without_channels(alone)
        return self._recorded(write_program(alone, ready), inputs)

    def _recorded(self, written: WrittenProgram, inputs: _Arguments) -> list[dict[str, Array]]:
        outputs, data = ISOLATED.record(written, inputs, self.repeats)
        self.recording = read_xspace(data)
        return outputs


@dataclass(slots=True)
class NumpyRecorder:
    """Evaluates programs op by op in NumPy, and keeps the time of each op; a backend.

    Attributes:
        repeats: runs that are measured, after one that is not.
        recording: of the last program.
        flat: a module of that program without calls, whose names are those of the recording.
    """

    repeats: int
    recording: ProfileRecording | None = None
    flat: Module | None = None

    def __call__(
        self, module: Module, function: Function, inputs: _Arguments
    ) -> list[dict[str, Array]]:
        """Evaluate on all ranks, whose times are counted together."""
        whole = inlined(module, function)
        outputs = NumpyBackend()(module, function, inputs)
        wholes: list[float] = []
        for _ in range(self.repeats):
            start = time.perf_counter()
            evaluate_ranks(whole, inputs, NATIVE, module=module)
            wholes.append(time.perf_counter() - start)
        self.flat = Module(module.name, module.level, dict(module.mesh), {}, dict(module.interface))
        for each in called(module, whole):
            self.flat.add(each)
        self.flat.add(whole)
        watch = _Stopwatch(module, _named(self.flat))
        for run in range(self.repeats):
            watch.run = str(run)
            evaluate_ranks(whole, inputs, NATIVE, module=module, observer=watch)
        events = [
            OpEvent(module.name, op, run, "", 0, 1000 * start, 1000 * end, 1000 * end)
            for op, run, start, end in watch.events
        ]
        kind = "ops one by one in NumPy"
        self.recording = ProfileRecording(kind, events, alone=True, wholes=wholes)
        return outputs


def _named(module: Module) -> dict[Op, str]:
    """Give the results of all ops names that no two functions share, and return those of the ops.

    Ops without results are left out.
    """
    taken: set[str] = set()
    found: dict[Op, str] = {}
    for function in reversed(module.functions.values()):
        names = value_names(function)
        for op in function.block:
            for value in op.results:
                name = names[value].removeprefix("%")
                while name in taken:
                    name = f"{function.name}.{name}"
                taken.add(name)
                value.name = name
            if op.results:
                found[op] = op.results[0].name or ""
    return found


@dataclass(slots=True)
class _Stopwatch:
    """An observer of the time between the end of an op and that of the next."""

    module: Module
    names: Mapping[Op, str]
    run: str = ""
    last: int = 0
    events: list[tuple[str, str, int, int]] = field(default_factory=list[tuple[str, str, int, int]])

    def enter(self, function: Function, ranks: Sequence[int]) -> None:
        """A function begins."""
        self.last = time.perf_counter_ns()

    def made(self, op: Op, ranks: Sequence[int], given: Columns, results: Columns) -> Columns:
        """An op has run."""
        now = time.perf_counter_ns()
        if op in self.names:
            self.events.append((self.names[op], self.run, self.last, now))
        self.last = time.perf_counter_ns()
        return results

    def branch(self, op: Op, number: int, ranks: Sequence[int]) -> None:
        """A branch begins."""
        self.last = time.perf_counter_ns()

    def loop(self, op: Op, turns: Sequence[int]) -> None:
        """A loop has ended."""
        self.last = time.perf_counter_ns()
