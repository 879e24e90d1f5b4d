"""One compilation: the compiler in a folder of its own, and its end, checked or explained."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from graphgen.atomic_write import require_no_link, write_inside
from graphgen.errors import GraphgenError
from graphgen.lowering.compile_cache.cache_entry import neff_damage
from graphgen.lowering.neuronx_cc.compiler_failure import CompilerFailure, FailedRun, explain
from graphgen.lowering.neuronx_cc.neuron_compiler import NeuronCompiler
from graphgen.lowering.neuronx_cc.program_plan import HLO, LOG, NEFF, PlannedProgram
from graphgen.lowering.neuronx_cc.worker import MemoryBudget, Processes, RunResult

WORK, _OUTPUT = "unfinished", "output.txt"
_FLOATS = "--experimental-unsafe-fp8e4m3fn-as-fp8e4m3"
# Of programs with 8-bit floats, for the compiler and for who runs the program.
FLOAT8_VARIABLES = {"XLA_HANDLE_SPECIAL_SCALAR": "1", "UNSAFE_FP8FNCAST": "1"}


@dataclass(frozen=True, slots=True)
class Finished:
    """A compilation that gave a program.

    Attributes:
        neff: the file, in a folder that :func:`tidy` removes.
        result: the end of the process.
    """

    neff: Path
    result: RunResult


def has_float8(program: PlannedProgram) -> bool:
    """True for a program with 8-bit floats."""
    return any(item.option.name == _FLOATS for item in program.command.options)


class ProgramCompiler:
    """Compiles programs, as many at a time as memory allows.

    Args:
        compiler: the compiler.
        processes: those that end together.
        budget: of memory.
        timeout: seconds of a compilation; 0 for no limit.
        environment: of the compilers.
    """

    def __init__(
        self,
        compiler: NeuronCompiler,
        processes: Processes,
        budget: MemoryBudget,
        timeout: float,
        environment: Mapping[str, str],
    ) -> None:
        self.compiler = compiler
        self.processes = processes
        self.budget = budget
        self.timeout = timeout
        # The options are on the command line, with those of this variable among them.
        self.environment = {k: v for k, v in environment.items() if k != "NEURON_CC_FLAGS"}

    def compile(self, program: PlannedProgram, memory: int) -> Finished | CompilerFailure:
        """Compile a program.

        One that is killed while others run is compiled once more, alone.

        Args:
            program: with its files.
            memory: bytes that the compiler is expected to take.

        Raises:
            GraphgenError: GG0703 or GG0704 if its folder cannot be written, GG1001 for a compiler
                that does not run.
        """
        with self.budget.holding(memory):
            result = self._run(program)
        if _killed(result) and not self.processes.stopped:
            with self.budget.holding(self.budget.total):
                result = self._run(program)
        return self._end(program, result)

    def _run(self, program: PlannedProgram) -> RunResult:
        work = program.folder / WORK
        more = FLOAT8_VARIABLES if has_float8(program) else {}
        try:
            shutil.rmtree(work, ignore_errors=True)
            require_no_link(program.output, work)
            work.mkdir(parents=True)
            os.link(program.folder / HLO, work / HLO)
        except OSError as error:
            what = f"cannot write '{work}': {error.strerror or error}"
            raise GraphgenError("GG0704", what) from error
        words = [str(self.compiler.path), *program.words()]
        environment = {**self.environment, **more}
        try:
            return self.processes.run(words, work, work / _OUTPUT, self.timeout, environment)
        except OSError as error:
            what = f"{self.compiler.path} cannot be run: {error.strerror or error}"
            raise GraphgenError("GG1001", what) from error

    def _end(self, program: PlannedProgram, result: RunResult) -> Finished | CompilerFailure:
        work = program.folder / WORK
        log = program.folder / LOG
        text = _joined(work)
        write_inside(program.output, log, text.encode("utf-8", "replace"))
        damage = neff_damage(work / NEFF) if result.status == 0 else ""
        if result.status == 0 and not damage:
            if self.compiler.is_same():
                return Finished(work / NEFF, result)
            return _replaced(program, self.compiler)
        return explain(
            FailedRun(
                program.name,
                result,
                text,
                program.command,
                program.findings,
                program.folder / HLO,
                damage,
                str(log),
                self.timeout,
            )
        )


def tidy(program: PlannedProgram) -> None:
    """Remove the folder that the compiler worked in; its log is kept beside it."""
    shutil.rmtree(program.folder / WORK, ignore_errors=True)


def _killed(result: RunResult) -> bool:
    ends = (-signal.SIGKILL, 128 + signal.SIGKILL)
    return result.status in ends and not result.timed_out


def _joined(work: Path) -> str:
    """The log, and the lines of the output that are not in it."""
    texts = [
        (work / name).read_text("utf-8", "replace")
        for name in (LOG, _OUTPUT)
        if (work / name).is_file()
    ]
    lines = [line for text in texts for line in text.splitlines()]
    return "\n".join([*dict.fromkeys(lines), ""])


def _replaced(program: PlannedProgram, compiler: NeuronCompiler) -> CompilerFailure:
    return CompilerFailure(
        program.name,
        "version",
        f"{compiler.path} is no longer the version {compiler.version} that it was at first",
        "compile again: under the version it has now",
        log=str(program.folder / LOG),
    )
