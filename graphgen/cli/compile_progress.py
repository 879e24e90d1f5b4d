"""Progress of compilers on stderr: rows on a terminal, else a line for each end."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from graphgen.cli.console import note
from graphgen.config.fields import integer, number, option
from graphgen.errors import GraphgenError, printable
from graphgen.lowering.compile_cache.neuron_cache import NeuronCache
from graphgen.lowering.compile_cache.shared_cache import VARIABLE, open_cache
from graphgen.lowering.neuronx_cc.driver import (
    CompiledProgram,
    CompileDriver,
    DriverSettings,
    key_of,
)
from graphgen.lowering.neuronx_cc.failure_report import predicted
from graphgen.lowering.neuronx_cc.neuron_compiler import NeuronCompiler, find_compiler
from graphgen.lowering.neuronx_cc.program_plan import (
    PlannedProgram,
    plan_programs,
    program_folder,
    write_program,
)
from graphgen.runtime.artifact.device_folder import begin_device_folder
from graphgen.runtime.artifact.device_programs import DevicePrograms
from graphgen.runtime.progress import TerminalProgress

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# Words for the states that have a row.
_SHOWN = {"compiles": "compiling", "locked": "waiting for another process"}


class CompileProgress:
    """Shows the states of programs; its methods may be called from any thread.

    Args:
        count: of the programs.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._done = 0
        self._start: dict[str, float] = {}
        self._lock = threading.Lock()
        self._rows: dict[str, TaskID] = {}
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._bar = _bar()
            self._bar.start()
            self._rows[""] = self._bar.add_task("programs", total=self.count, state="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def changed(self, name: str, state: str, remark: str) -> None:
        """Show a change.

        Args:
            name: of the program.
            state: ``waits``, ``locked``, ``compiles``, ``done``, ``failed`` or ``note``.
            remark: more words.
        """
        with self._lock:
            if state == "note":
                self._line(f"note: {name}: {remark}")
            elif state in _SHOWN:
                self._start.setdefault(name, time.monotonic())
                self._row(name, _SHOWN[state])
            elif state in ("done", "failed"):
                self._end(name, state, remark)

    def _end(self, name: str, state: str, remark: str) -> None:
        self._done += 1
        seconds = time.monotonic() - self._start.get(name, time.monotonic())
        shown = "from the cache" if remark.startswith("cache") else remark
        took = f" in {seconds:.1f} s" if name in self._start else ""
        words = {"done": shown, "failed": f"failed: {remark}"}[state]
        self._line(f"[{self._done}/{self.count}] {name}: {words}{took}")
        if self._bar is not None:
            self._bar.advance(self._rows[""])
            row = self._rows.pop(name, None)
            if row is not None:
                self._bar.remove_task(row)

    def _row(self, name: str, state: str) -> None:
        if self._bar is None:
            return
        if name not in self._rows:
            self._rows[name] = self._bar.add_task(name, total=None, state=state)
        self._bar.update(self._rows[name], state=state)

    def _line(self, text: str) -> None:
        if self._bar is None:
            print(printable(text), file=sys.stderr, flush=True)
        else:
            self._bar.console.print(printable(text), highlight=False, markup=False)


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        *(SpinnerColumn(), TextColumn("{task.description}"), BarColumn()),
        *(TextColumn("{task.fields[state]}"), TimeElapsedColumn()),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)


@dataclass(frozen=True, slots=True)
class DriverOptions:
    """The values of the flags."""

    jobs: int = option(integer(0), 0, "Compilers at a time; 0 for one a core.")
    memory: float = option(
        number(0), 0.0, "For all compilers; 0 for 4/5 of what is free.", metavar="GB"
    )
    timeout: float = option(number(0), 0.0, "Of a program; 0 for no limit.", metavar="SECONDS")
    cache_dir: str = option(
        None,
        "",
        "A folder or URL; by default NEURON_COMPILE_CACHE_URL, then /var/tmp/neuron-compile-cache.",
        metavar="DIR",
    )
    compiler: str = option(None, "", "By default neuronx-cc on PATH.", metavar="PATH")
    retry_failed: bool = option(None, False, "Compile again programs that have failed before.")
    no_check: bool = option(None, False, "Compile whatever 'graphgen check' predicts.")
    no_metadata: bool = option(None, False, "HLO without op names and source lines.")
    outline_layers: bool = option(
        None,
        False,
        "Equal layers are one function of the HLO, which the compiler is asked to compile once "
        "(-O1, modular flow).",
    )
    layer_markers: bool = option(
        None,
        False,
        "Layers begin and end with AwsNeuronModuleMarker calls, by which the compiler finds them "
        "(--recursive-layer-det=false).",
    )
    optimize_layouts: bool = option(
        None, False, "Ask the compiler for layouts of weights first; --weights stores them so."
    )
    keep_layouts: str = option(
        None,
        "",
        "Weights that --optimize-layouts leaves alone, also with * and ?.",
        metavar="W,...",
    )


NO_LIMITS = DriverOptions()


@dataclass(frozen=True, slots=True)
class CompilePlan:
    """Programs to compile, the compiler, and the cache.

    Attributes:
        programs: with their files, where there is an output.
        compiler: ``None`` where there is none, for a dry run.
        cache: of results.
    """

    programs: Sequence[PlannedProgram]
    compiler: NeuronCompiler | None
    cache: NeuronCache

    def state(self, program: PlannedProgram) -> str:
        """``done`` or ``failed`` by the cache; ``to compile``."""
        if self.compiler is None:
            return "to compile"
        found = self.cache.find(key_of(program, self.compiler.version))
        return found.state if found is not None else "to compile"


def make_plan(
    asked: DevicePrograms,
    output: Path | None,
    given: DriverOptions,
    *,
    dry_run: bool,
) -> CompilePlan:
    """Plan the programs of all modules, check them, and write their HLO and command lines.

    Raises:
        GraphgenError: GG1001 without a compiler, GG1003 for programs that it will refuse; both not
            for a dry run. GG0704, GG0705.
    """
    cache = open_cache(given.cache_dir, os.environ.get(VARIABLE))
    compiler = _compiler(given, dry_run=dry_run)
    progress = TerminalProgress()
    with progress.task("checking the programs"):
        checked = not given.no_check
        planned = [
            (module, program)
            for module in asked.modules
            for program in plan_programs(module, asked.options, checked=checked)
        ]
    programs = [program for _, program in planned]
    if not dry_run and any(item.errors for item in programs):
        raise predicted(programs)
    if output is not None:
        begin_device_folder(output)
        with progress.task("writing HLO"):
            metadata = not given.no_metadata
            programs = [
                write_program(module, item, program_folder(item, output), output, metadata=metadata)
                for module, item in planned
            ]
    return CompilePlan(programs, compiler, cache)


def optimize_layouts(programs: DevicePrograms, output: Path | None, given: DriverOptions) -> None:
    """Keep weights in the layouts that the compiler asks for, if the options say so.

    Args:
        programs: changed in place.
        output: the folder of the programs.
        given: the flags.

    Raises:
        GraphgenError: GG0705 for flags that have no effect, and as of ``find_layouts``.
    """
    names = [name for name in given.keep_layouts.split(",") if name.strip()]
    if not given.optimize_layouts:
        if names:
            what = "--keep-layouts has no effect without --optimize-layouts"
            raise GraphgenError("GG0705", what, help="add it")
        return
    if output is None:
        what = "--optimize-layouts needs a folder: its answer is kept there"
        raise GraphgenError("GG0705", what, help="give -o DIR")
    from graphgen.lowering.neuronx_cc.find_layouts import find_layouts
    from graphgen.passes.weights.weight_layouts import apply_weight_layouts

    compiler, module, kept = find_compiler(given.compiler), programs.module, programs.kept_layouts
    with TerminalProgress().task("asking for layouts of weights"):
        found = find_layouts(
            module, programs.options, output, compiler, _settings(given), [*names, *kept]
        )
    changed = apply_weight_layouts(module, found)
    note(f"{len(changed)} weights have the layout that the compiler prefers")


def _settings(given: DriverOptions) -> DriverSettings:
    return DriverSettings(
        jobs=given.jobs,
        memory=int(given.memory * 1e9),
        timeout=given.timeout,
        retry_failed=given.retry_failed,
    )


def _compiler(given: DriverOptions, *, dry_run: bool) -> NeuronCompiler | None:
    try:
        return find_compiler(given.compiler)
    except GraphgenError:
        if not dry_run or given.compiler:
            raise
        return None


def compile_plan(plan: CompilePlan, given: DriverOptions) -> Sequence[CompiledProgram]:
    """Compile the programs.

    Raises:
        GraphgenError: GG1002 with all failures.
    """
    assert plan.compiler is not None
    with CompileProgress(len(plan.programs)) as progress:
        driver = CompileDriver(plan.compiler, plan.cache, _settings(given), progress.changed)
        return driver.run(plan.programs)
