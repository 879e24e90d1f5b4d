"""Plans and compiles the programs of ``graphgen compile``, with progress on stderr."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from graphgen.cli.console import note
from graphgen.cli.neuron.compile_progress import CompileProgress
from graphgen.cli.neuron.driver_options import DriverOptions
from graphgen.errors import GraphgenError
from graphgen.lowering.neuron.compile.cache.neuron_cache import NeuronCache
from graphgen.lowering.neuron.compile.cache.open_cache import VARIABLE, open_cache
from graphgen.lowering.neuron.compile.driver import (
    CompiledProgram,
    CompileDriver,
    DriverSettings,
    key_of,
)
from graphgen.lowering.neuron.compile.failures.failure_report import predicted
from graphgen.lowering.neuron.compile.neuron_compiler import NeuronCompiler, find_compiler
from graphgen.lowering.neuron.compile.program_plan import (
    PlannedProgram,
    plan_programs,
    program_folder,
    write_program,
)
from graphgen.runtime.neuron.device_folder import begin_device_folder
from graphgen.runtime.neuron.device_programs import DevicePrograms
from graphgen.runtime.terminal_progress import TerminalProgress


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
    from graphgen.lowering.neuron.compile.layouts.find_layouts import find_layouts
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
