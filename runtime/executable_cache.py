"""Cache of compiled programs: in memory, and optionally in a folder for the next run."""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.lowering.cpu import CpuProgram, compile_program, load_program
from graphgen.lowering.cpu.program import program_key, serialize_program
from graphgen.runtime.progress_callback import Progress
from graphgen.whole_file import write_whole


@dataclass(frozen=True, slots=True)
class ExecutableReport:
    """The cost of one program.

    Attributes:
        name: the function's name.
        ops: ops in it.
        seconds: time to compile or to load it.
        loaded: loaded from the folder instead of compiled.
    """

    name: str
    ops: int
    seconds: float
    loaded: bool


@dataclass(slots=True)
class ExecutableCache:
    """The programs of a module.

    Attributes:
        module: at level ``target``.
        folder: the folder of compiled programs; ``None`` for memory only.
        progress: notified of compilations.
        texts: SHA-256 of each program's StableHLO without locations, where known in advance.
        reports: one for each program used so far, in order.
        warm_ups: seconds of each program's first launch.
    """

    module: Module
    progress: Progress
    folder: Path | None = None
    texts: dict[str, str] = field(default_factory=dict[str, str])
    reports: list[ExecutableReport] = field(default_factory=list[ExecutableReport])
    warm_ups: dict[str, float] = field(default_factory=dict[str, float])
    _programs: dict[str, CpuProgram] = field(default_factory=dict[str, CpuProgram])

    def get(self, name: str) -> CpuProgram:
        """The program ``name``, loaded or compiled the first time."""
        found = self._programs.get(name)
        if found is None:
            found = self._programs[name] = self._make(name)
        return found

    @property
    def is_open(self) -> bool:
        """True if further programs can be compiled here, as :meth:`beside` does."""
        return True

    def require_open(self, what: str) -> None:
        """Refuse ``what`` where its programs cannot be compiled (GG1005)."""

    def beside(self, module: Module) -> ExecutableCache:
        """The programs of another module, such as one that copies rows, kept in the same folder.

        Raises:
            GraphgenError: GG1005 where they cannot be compiled.
        """
        self.require_open(", ".join(function.name for function in module.programs()))
        return ExecutableCache(module, self.progress, self.folder)

    def compile_all(self) -> None:
        """Compile every program that is not compiled yet, with progress; a folder keeps them."""
        for function in self.module.programs():
            if not self.compiled(function.name):
                self.get(function.name)

    def compiled(self, name: str) -> bool:
        """True if :meth:`get` does not have to compile the program."""
        path = self.path(name)
        return name in self._programs or (path is not None and path.is_file())

    def _make(self, name: str) -> CpuProgram:
        function = self.module.function(name)
        start = time.perf_counter()
        path = self.path(name)
        data = _read_checked(path) if path else None
        if data is not None:
            program = load_program(self.module, function, data)
        else:
            with self.progress.task(f"compiling {name}"):
                program = compile_program(self.module, function)
            if path:
                # The folder only saves time: a read-only artifact still runs.
                with suppress(GraphgenError):
                    _write_checked(path, serialize_program(program))
        seconds = time.perf_counter() - start
        report = ExecutableReport(name, function.block.size, seconds, data is not None)
        self.reports.append(report)
        return program

    def store(self, name: str, program: CpuProgram) -> None:
        """Write a program that was compiled elsewhere to the folder (GG0704)."""
        path = self.path(name)
        assert path is not None, "the cache has no folder"
        _write_checked(path, serialize_program(program))

    def path(self, name: str) -> Path | None:
        """The file of a compiled program; ``None`` without a folder."""
        if self.folder is None:
            return None
        return self.folder / f"{name}.{program_key(self.text_hash(name))}.xla"

    def text_hash(self, name: str) -> str:
        """SHA-256 of a program's StableHLO without locations."""
        if name not in self.texts:
            # Only here: the texts of an artifact's programs are known by their hashes.
            from graphgen.lowering.stablehlo import emit_stablehlo

            text = emit_stablehlo(
                self.module, self.module.function(name), locs=False, preserved=False
            )
            self.texts[name] = hashlib.sha256(text.encode()).hexdigest()
        return self.texts[name]

    @property
    def seconds(self) -> float:
        """Time spent compiling, loading and warming up so far."""
        return sum(report.seconds for report in self.reports) + sum(self.warm_ups.values())

    def charge(self, name: str, seconds: float) -> None:
        """Count the first launch of a program as part of its compilation."""
        self.warm_ups[name] = seconds


def _read_checked(path: Path) -> bytes | None:
    """The content; ``None`` if it is missing or damaged, as it can be compiled again."""
    try:
        blob = path.read_bytes()
    except OSError:
        return None
    digest, data = blob[:32], blob[32:]
    return data if hashlib.sha256(data).digest() == digest else None


def _write_checked(path: Path, data: bytes) -> None:
    write_whole(path, hashlib.sha256(data).digest() + data, parents=True)
