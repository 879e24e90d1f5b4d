"""Compiles planned programs: out of the cache, or by compilers that run beside each other.

Each program ends in a NEFF or an explained failure; all failures are raised together, after all
programs have ended. A finished compilation is in the cache at once, so that a driver that was
killed goes on where it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from typing import Literal

from graphgen.atomic_write import copy_inside
from graphgen.errors import GraphgenError
from graphgen.lowering.canonical_hash import Compilation, canonical_hash
from graphgen.lowering.compile_cache.cache_entry import DAY, CacheEntry, CacheRecord
from graphgen.lowering.compile_cache.cache_entry import NEFF as CACHED_NEFF
from graphgen.lowering.compile_cache.neuron_cache import CacheKey, NeuronCache
from graphgen.lowering.neuron.folders import MODULES
from graphgen.lowering.neuronx_cc.compiler_failure import CompilerFailure
from graphgen.lowering.neuronx_cc.failure_report import failed, failed_before
from graphgen.lowering.neuronx_cc.neuron_compiler import NeuronCompiler
from graphgen.lowering.neuronx_cc.program_compiler import ProgramCompiler, tidy
from graphgen.lowering.neuronx_cc.program_plan import HLO, NEFF, PlannedProgram
from graphgen.lowering.neuronx_cc.worker import MemoryBudget, Processes, available_memory
from graphgen.lowering.open import open_module


def same_program(hlo: Path, entry: Path) -> bool:
    """True if the HLO in the folder of an entry is the program of a file.

    Names of instructions, ids and metadata may differ. An entry that cannot be read is another one.
    """
    theirs = next((entry / name for name in MODULES if (entry / name).is_file()), None)
    if theirs is None:
        return False
    try:
        return _hash(theirs) == _hash(hlo)
    except GraphgenError:
        return False


def _hash(path: Path) -> list[str]:
    module = open_module(path)
    functions = module.programs() or list(module.functions.values())
    return [canonical_hash(module, item, Compilation("")) for item in functions]


State = Literal["waits", "locked", "compiles", "done", "failed", "note"]
# Notified of each change: the program, its state, and a remark.
Notify = Callable[[str, State, str], object]


@dataclass(frozen=True, slots=True)
class DriverSettings:
    """Limits and choices of the driver.

    Attributes:
        jobs: at a time; 0 for one a core.
        memory: bytes for all of them; 0 for four fifths of the bytes that are free.
        timeout: seconds of each; 0 for no limit.
        retry_failed: compile again programs that have failed before.
        failure_seconds: for which a failure is believed.
        environment: of the compilers; by default that of this process.
    """

    jobs: int = 0
    memory: int = 0
    timeout: float = 0.0
    retry_failed: bool = False
    failure_seconds: float = DAY
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """A program with its NEFF.

    Attributes:
        program: as it was planned.
        neff: the file.
        origin: ``compiled``, ``cache``, or ``cache of another tool``.
        seconds: that the compilation took, whenever that was; 0 where it is not known.
        peak_bytes: memory of the compiler; 0 where it is not known.
    """

    program: PlannedProgram
    neff: Path
    origin: str
    seconds: float
    peak_bytes: int


def key_of(program: PlannedProgram, version: str) -> CacheKey:
    """The key of a program in the cache, for a version of the compiler."""
    return CacheKey(version, program.key, tuple(program.command.words))


class CompileDriver:
    """Compiles the programs of one output folder.

    Args:
        compiler: the compiler.
        cache: of compilations.
        settings: how compilers are run.
        notify: receives the changes; it may be called from any thread.
    """

    def __init__(
        self,
        compiler: NeuronCompiler,
        cache: NeuronCache,
        settings: DriverSettings,
        notify: Notify = lambda program, state, remark: None,
    ) -> None:
        self.compiler = compiler
        self.cache = cache
        self.settings = settings
        self.notify = notify
        self._processes = Processes()
        budget = MemoryBudget(settings.memory or available_memory() * 4 // 5)
        self._compiler = ProgramCompiler(
            compiler, self._processes, budget, settings.timeout, settings.environment
        )

    def run(self, programs: Sequence[PlannedProgram]) -> list[CompiledProgram]:
        """Compile programs whose files are written; the largest ones first.

        Returns:
            One result a program, in the order given.

        Raises:
            GraphgenError: GG1002 with all failures, GG0704 if the output cannot be written.
        """
        jobs = self.settings.jobs or os.cpu_count() or 1
        ordered = sorted(programs, key=lambda item: -item.hlo_bytes)
        for program in ordered:
            self.notify(program.name, "waits", "")
        with ThreadPoolExecutor(jobs) as pool, self._interruptible(pool):
            futures = {item.name: pool.submit(self._one, item) for item in ordered}
            ended = [futures[program.name].result() for program in programs]
        failures = [item for item in ended if isinstance(item, CompilerFailure)]
        if failures:
            raise failed(failures, len(programs))
        return [item for item in ended if isinstance(item, CompiledProgram)]

    @contextmanager
    def _interruptible(self, pool: ThreadPoolExecutor) -> Generator[None]:
        """End the compilers, and start none, when the block is left by an exception."""
        try:
            yield
        except BaseException:
            self._processes.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise

    def _one(self, program: PlannedProgram) -> CompiledProgram | CompilerFailure:
        ended = self._found(program) or self._made(program)
        if isinstance(ended, CompilerFailure):
            self.notify(program.name, "failed", ended.what)
        else:
            self.notify(program.name, "done", ended.origin)
        return ended

    def _found(self, program: PlannedProgram) -> CompiledProgram | CompilerFailure | None:
        """The outcome that the cache has."""
        key = key_of(program, self.compiler.version)
        try:
            entry = self.cache.find(key)
            others = [] if entry else self.cache.of_other_tools(key.version, key.flags)
        except GraphgenError as error:
            # Of a store that does not answer.
            self.notify(program.name, "note", f"the cache is not used: {error.what}")
            return None
        if entry is not None and not (entry.is_bound or self._same(program, entry)):
            # Of another tool, or an earlier version: only its HLO says what it is of.
            entry = None
        if entry is not None and entry.state == "failed":
            return None if self.settings.retry_failed else failed_before(program.name, entry)
        if entry is not None:
            return self._from_cache(program, entry, "cache")
        for other in others:
            if self._same(program, other):
                return self._from_cache(program, other, "cache of another tool")
        return None

    def _same(self, program: PlannedProgram, entry: CacheEntry) -> bool:
        return same_program(program.folder / HLO, entry.folder)

    def _from_cache(
        self, program: PlannedProgram, entry: CacheEntry, origin: str
    ) -> CompiledProgram:
        record = entry.record or CacheRecord()
        neff = program.folder / NEFF
        cache = entry.folder.parents[1]
        copy_inside(entry.folder / CACHED_NEFF, program.output, neff, cache)
        return CompiledProgram(program, neff, origin, record.seconds, record.peak_bytes)

    def _made(self, program: PlannedProgram) -> CompiledProgram | CompilerFailure:
        """Compile, unless another process did so while this one waited for the lock."""
        key = key_of(program, self.compiler.version)
        with ExitStack() as held:
            try:
                held.enter_context(self.cache.locked(key, lambda: self._waits(program)))
            except GraphgenError as error:
                self.notify(program.name, "note", f"the cache is not used: {error.what}")
                return self._compiled(program, None)
            return self._found(program) or self._compiled(program, key)

    def _waits(self, program: PlannedProgram) -> None:
        self._processes.check()
        self.notify(program.name, "locked", "another process compiles it")

    def _compiled(
        self, program: PlannedProgram, key: CacheKey | None
    ) -> CompiledProgram | CompilerFailure:
        """Compile; keep the outcome under ``key`` where there is one."""
        self.notify(program.name, "compiles", "")
        memory = self.cache.measured(program.key) or program.memory
        ended = self._compiler.compile(program, memory)
        if isinstance(ended, CompilerFailure):
            if key is not None and ended.lasting:
                self._keep(program, lambda: self._keep_failure(program, key, ended))
            return ended
        result = ended.result
        record = CacheRecord(program.name, {}, result.seconds, result.peak_bytes)
        if key is not None:
            hlo = program.folder / HLO
            self._keep(program, lambda: self.cache.put(key, hlo, ended.neff, record))
        neff = program.folder / NEFF
        copy_inside(ended.neff, program.output, neff)
        tidy(program)
        return CompiledProgram(program, neff, "compiled", result.seconds, result.peak_bytes)

    def _keep(self, program: PlannedProgram, put: Callable[[], object]) -> None:
        """Put an outcome into the cache; one that cannot be written costs time, not the result."""
        try:
            put()
        except GraphgenError as error:
            self.notify(program.name, "note", f"not kept in the cache: {error.what}")

    def _keep_failure(
        self, program: PlannedProgram, key: CacheKey, failure: CompilerFailure
    ) -> None:
        ends = time() + self.settings.failure_seconds
        record = CacheRecord(program.name, failure=failure.to_json(), expires=ends)
        log = Path(failure.log).read_text("utf-8", "replace")
        self.cache.put_failure(key, program.folder / HLO, log, record)
