"""An application's programs for a Neuron target, laid out and compiled as AWS's tools do."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir

from graphgen.atomic_write import copy_inside, foreign_owner, private_folder, write_inside
from graphgen.errors import GraphgenError, printable
from graphgen.lowering.compile_cache.shared_cache import VARIABLE, open_cache
from graphgen.lowering.hlo import hlo_chunks
from graphgen.lowering.neuronx_cc.driver import CompileDriver, DriverSettings
from graphgen.lowering.neuronx_cc.failure_report import predicted
from graphgen.lowering.neuronx_cc.neuron_compiler import NeuronCompiler, find_compiler
from graphgen.lowering.neuronx_cc.program_plan import (
    COMMAND,
    LOG,
    NEFF,
    PlanOptions,
    plan_programs,
    write_program,
)
from graphgen.runtime.aws_nxdi.base_model import PHASES, ModelWrapper
from graphgen.runtime.model import BuiltModel
from graphgen.runtime.progress import Progress
from graphgen.runtime.session.buckets import CHUNK, ProgramTable

# Where AWS's tools compile, among temporary files, and the variable that names another place.
_WORK, _WORK_VARIABLE = "nxd_model", "BASE_COMPILE_WORK_DIR"


@dataclass(frozen=True, slots=True)
class NeuronPrograms:
    """The programs of an application for a Neuron target.

    Attributes:
        built: the module for the target.
        models: the sub-models.
        options: of the compiler.
        debug: write op types, op names and source lines into the HLO.
    """

    built: BuiltModel
    models: Sequence[ModelWrapper]
    options: PlanOptions
    debug: bool

    def homes(self) -> Mapping[str, tuple[str, ModelWrapper]]:
        """The folder ``TAG/_tp0_bkN`` and the sub-model of each program.

        N counts the programs of a tag by batch, bucket and tokens.
        """
        found: dict[str, tuple[str, ModelWrapper]] = {}
        table = ProgramTable(self.built.module)
        for model in self.models:
            phase = PHASES[model.tag]
            # Chunks of a prompt are context encoding, too.
            phases = (phase, CHUNK) if phase == "prefill" else (phase,)
            sizes = sorted(
                (size for size in table.sizes if size.phase in phases),
                key=lambda size: (size.batch, size.bucket, size.tokens),
            )
            for number, size in enumerate(sizes):
                found[size.name] = (f"{model.tag}/_tp0_bk{number}", model)
        return found

    def write(self, folder: Path, compiled: Mapping[str, Path]) -> None:
        """Write ``TAG/_tp0_bkN/model/graph.hlo`` and the compiler's arguments of every program.

        Args:
            folder: of all of them.
            compiled: of each compiled program, the folder that it was compiled in.

        Raises:
            GraphgenError: GG0401 for a program that HLO cannot express, GG0704.
        """
        for name, (home, model) in self.homes().items():
            function = self.built.module.function(name)
            chunks = hlo_chunks(self.built.module, function, metadata=self.debug)
            file = folder / home / "model" / "graph.hlo"
            write_inside(
                folder, file, lambda file, chunks=chunks: file.writelines(chunks), parents=True
            )
            arguments = f"{model.compiler_args}\n".encode()
            write_inside(folder, folder / home / "compiler_args.txt", arguments)
            if name in compiled:
                for item in (COMMAND, LOG, NEFF):
                    made = compiled[name] / item
                    if made.is_file() and not made.is_symlink():
                        copy_inside(made, folder, folder / home / item)


def compile_if_possible(
    programs: NeuronPrograms, output: Path, progress: Progress
) -> Callable[[Path], None]:
    """Compile the programs where ``neuronx-cc`` is installed; without it a note says so.

    They are compiled in ``BASE_COMPILE_WORK_DIR`` (by default AWS's ``nxd_model`` among temporary
    files), where the logs of failures stay, with the cache of ``NEURON_COMPILE_CACHE_URL``.

    Args:
        programs: to compile.
        output: the folder that they are for; it names that of the work.
        progress: notified of it.

    Returns:
        A function that writes the programs into a folder, with NEFFs if there is a compiler.

    Raises:
        GraphgenError: GG0703 for a work folder of another user, GG1001 for a compiler that does
            not run, GG1002 with all failures, GG1003
            for programs that the rules of ``graphgen check`` refuse, GG0704.
    """
    compiler = _compiler()
    if compiler is None:
        return lambda folder: programs.write(folder, {})
    mark = hashlib.sha256(str(output.absolute()).encode()).hexdigest()[:8]
    work = _work_folder() / f"{output.name}-{mark}"
    module, homes = programs.built.module, programs.homes()
    planned = plan_programs(module, programs.options)
    if any(item.errors for item in planned):
        raise predicted(planned)
    written = [
        write_program(module, item, work / homes[item.name][0], work, metadata=programs.debug)
        for item in planned
    ]
    cache = open_cache("", os.environ.get(VARIABLE))
    with progress.task(f"compiling {len(written)} programs with neuronx-cc"):
        made = CompileDriver(compiler, cache, DriverSettings()).run(written)
    compiled = {item.program.name: item.program.folder for item in made}
    return lambda folder: programs.write(folder, compiled)


def _work_folder() -> Path:
    """The folder of compilations, which no other user can put files into (GG0703, GG0704)."""
    given = os.environ.get(_WORK_VARIABLE)
    root = Path(given or Path(gettempdir()) / _WORK)
    if not given:
        # Any user can make a folder of this name first.
        private_folder(root)
    owner = foreign_owner(root)
    if owner:
        what = f"the work folder {root} {owner}"
        raise GraphgenError("GG0703", what, help=f"set {_WORK_VARIABLE} to a folder of your own")
    return root


def _compiler() -> NeuronCompiler | None:
    """The compiler on ``PATH``, if there is one (GG1001 if it does not run)."""
    if shutil.which("neuronx-cc") is None:
        try:
            find_compiler()
        except GraphgenError as error:
            what = f"note: {error.what}: HLO is written, and not compiled"
            print(printable(what), file=sys.stderr)
        return None
    return find_compiler()
