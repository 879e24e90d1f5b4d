"""``graphgen triage``: say which compiler is wrong for a program, with a small reproducer."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.compiled_file import note_all_compiled
from graphgen.cli.console import emit, note
from graphgen.cli.minify_cmd import MinifyProgress
from graphgen.cli.module_file import open_module_file
from graphgen.cli.open_sizes import with_sizes
from graphgen.cli.run_cmd import Inputs, bound_program
from graphgen.cli.shared_options import AsJson, Dims, ModuleFile, OnlyProgram, Seed
from graphgen.cli.step_progress import StepProgress
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module
from graphgen.json_value import Json
from graphgen.read_file import is_folder, is_there

if TYPE_CHECKING:
    from graphgen.eval import Array
    from graphgen.exec.backend import Backend
    from graphgen.lowering.backends.program_files import ProgramFiles
    from graphgen.lowering.backends.triage import CompilerVerdict, Triage
    from graphgen.lowering.backends.triage_report import FileReproducer

COMMAND: Final = Command("debug", "Say which compiler is wrong for a program.", error_status=2)

Backends = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="NAMES",
        help="Compilers beside NumPy: cpu, xla, iree, pjrt:PLATFORM; xla and an installed iree.",
    ),
]
Tolerance = Annotated[
    float | None,
    typer.Option(
        "--tolerance",
        min=0.0,
        help="Largest difference relative to an output's largest number; by element type.",
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="DIR", help="Folder of reproducers; FILE.triage."),
]


def triage(
    file: ModuleFile,
    program: OnlyProgram = None,
    dims: Dims = "",
    inputs: Inputs = None,
    on: Backends = "",
    seed: Seed = 0,
    tolerance: Tolerance = None,
    output: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Say which compiler is wrong for a program. Exit status 1 if one is.

    The file is compiled as it stands, in a child process, and compared with NumPy, which evaluates
    op by op. Minified programs, and files in forms that the compiler does not take, are written
    again by graphgen. Inputs that are not given are drawn several times: numbers of a model, small
    places, whole ranges of integers, ends of ranges. A compiler that differs, refuses the program
    or crashes is at fault. For each at fault the program is minified, and written to DIR/BACKEND
    with its inputs and a report. The written files are read again and run, and the report says
    whether they fail again.

    \b
    Examples:
      graphgen triage module.mlir
      graphgen triage dump.pb --inputs captured.npz --on xla --json
      graphgen triage m.gg --program decode --dims B=1,R=1,C=8,M=8 --on iree,pjrt:neuron -o found
    """
    from graphgen.exec.inputs import read_arrays
    from graphgen.lowering.backends.program_files import ProgramFiles
    from graphgen.lowering.backends.triage import Triage
    from graphgen.lowering.backends.triage_report import (
        at_fault,
        verdict_json,
        verdict_table,
        write_reproducers,
    )

    files = ProgramFiles()
    backends = _backends(on, files)
    folder = output or Path(f"{Path(file).stem or 'module'}.triage")
    _check_folder(folder)
    arrays = read_arrays(inputs) if inputs is not None else {}
    module, function = _opened(file, program, dims, arrays, files)
    with StepProgress() as progress:
        judge = Triage(backends, seed, tolerance, progress.step)
        verdicts = judge.run(module, function, arrays)
    compiled = note_all_compiled(backends)
    found = {each.name: _small(judge, module, function, each, files) for each in at_fault(verdicts)}
    homes = {name: name.replace(":", "-") for name in found}
    for home in write_reproducers(folder, found, homes):
        note(f"wrote {home}")
    facts: dict[str, Json] = {"module": module.name, "program": function.name, "seed": seed}
    facts["verdicts"] = [
        {**verdict_json(each, found.get(each.name)), "compiled": compiled[each.name]}
        for each in verdicts
    ]
    emit(as_json, lambda: facts, lambda: verdict_table(verdicts, found))
    if found:
        raise typer.Exit(1)


def _opened(
    file: str,
    program: str | None,
    dims: str,
    arrays: Mapping[str, Array],
    files: ProgramFiles,
) -> tuple[Module, Function]:
    """The program of a file with every symbol bound, which the file stands for."""
    from graphgen.lowering.backends.program_files import describe_source
    from graphgen.lowering.runnable import runnable

    source, read, _ = open_module_file(file)
    origin = describe_source(source, read)
    whole = runnable(read)
    sized = with_sizes(whole, program, dims, arrays, default=True)
    fixed = sized is not whole
    module, function = bound_program(sized, None if fixed else program, "" if fixed else dims)
    files.add(origin, module, function, changed=fixed)
    return module, function


def _backends(names: str, files: ProgramFiles) -> Mapping[str, Backend]:
    """The backends of ``--on``; by default those that are here."""
    from graphgen.lowering.backends.backend_names import IREE, NUMPY, XLA
    from graphgen.lowering.backends.named import backend_called, has_iree

    if not names:
        names = f"{XLA},{IREE}" if has_iree() else XLA
    made = {name: backend_called(name, files=files) for name in names.split(",")}
    if NUMPY in made:
        raise GraphgenError(
            "GG0705",
            "--on numpy: NumPy is what the others are compared with",
            help="name compilers, as in --on xla,iree",
        )
    return made


def _check_folder(folder: Path) -> None:
    """Refuse a file in the place of the folder (GG0704)."""
    if is_there(folder) and not is_folder(folder):
        raise GraphgenError("GG0704", f"{folder} is a file", help="give -o another folder")


def _small(
    judge: Triage,
    module: Module,
    function: Function,
    verdict: CompilerVerdict,
    files: ProgramFiles,
) -> FileReproducer:
    """The reproducer of a verdict."""
    from graphgen.lowering.backends.triage_report import reproducer_of

    note(f"{verdict.name} {verdict.state}: minifying")
    progress = MinifyProgress(module.op_count())
    try:
        smallest, shown = judge.minified(module, function, verdict, progress.done, progress.asked)
    finally:
        progress.end()
    return reproducer_of(judge, smallest, shown, lambda name, data: _read(name, data, files))


def _read(name: str, content: bytes, files: ProgramFiles | None = None) -> tuple[Module, Function]:
    """A program as a file of its own is read, which it is compiled from."""
    from graphgen.lowering.backends.program_files import ProgramFiles

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        return _opened(str(path), None, "", {}, files or ProgramFiles())
