"""The files that ``--on xla`` and plugins compile as they stand, and the note on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from graphgen.cli.backend_option import AUTO
from graphgen.cli.console import note
from graphgen.cli.files import STANDARD
from graphgen.json_value import Json
from graphgen.lowering.backends.backend_names import CPU, NUMPY, compiles_files

if TYPE_CHECKING:
    from graphgen.exec.backend import Backend, RunOnRanks
    from graphgen.ir import Function, Module
    from graphgen.lowering.backends.program_files import ProgramFiles, ReadFile
    from graphgen.lowering.open import Source


def file_for(on: str, source: Source, module: Module) -> ReadFile | None:
    """A file that was read, if a backend of ``--on`` compiles files; ask before the module changes.

    Args:
        on: names of backends between commas.
        source: the file.
        module: as it was read.
    """
    if not any(map(compiles_files, on.split(","))):
        return None
    from graphgen.lowering.backends.program_files import describe_source

    return describe_source(source, module)


def backend_for(
    on: str, file: ReadFile | None, module: Module, function: Function, *, changed: bool
) -> Backend:
    """The backend of ``--on``, which compiles a file as it stands if it can.

    Args:
        on: name of the backend.
        file: what :func:`file_for` gives.
        module: what was read from it, ready to be run.
        function: its program.
        changed: sizes were bound, for one, so that it is not the file's program any more.
    """
    from graphgen.lowering.backends.named import backend_called

    return backend_called(on, 1, program_files(file, module, function, changed=changed))


def program_files(
    file: ReadFile | None, module: Module, function: Function, *, changed: bool
) -> ProgramFiles:
    """The file that stands for a program, if it can; arguments as of :func:`backend_for`."""
    from graphgen.lowering.backends.program_files import ProgramFiles

    files = ProgramFiles()
    if file is not None:
        files.add(file, module, function, changed=changed)
    return files


def compiled_text(backend: Backend) -> str | None:
    """The words for what a backend compiled in its last run; ``None`` for NumPy."""
    from graphgen.exec import NumpyBackend
    from graphgen.lowering.backends.named import XlaBackend
    from graphgen.lowering.backends.program_files import WRITTEN_AGAIN

    if isinstance(backend, XlaBackend):
        return backend.compiled[0]
    return None if isinstance(backend, NumpyBackend) else WRITTEN_AGAIN


def files_of(on: str, name: str, module: Module) -> ProgramFiles | None:
    """The file that a backend compiles for a module before passes; ``None`` where it takes none.

    Args:
        on: name of the backend.
        name: of the file, or of a model.
        module: what was read from it, ready to be run.
    """
    from graphgen.cli.model_argument import is_model
    from graphgen.cli.module_file import open_module_file

    if not compiles_files(on) or name == STANDARD or is_model(name):
        return None
    from graphgen.lowering.backends.program_files import ProgramFiles, describe_source

    source, read, _ = open_module_file(name)
    origin, files = describe_source(source, read), ProgramFiles()
    for function in module.programs():
        files.add(origin, module, function, changed=False)
    return files


def note_passes_compiled(backend: Backend | None, name: str) -> None:
    """Say what a backend compiled of a module and of what passes made of it."""
    from graphgen.lowering.backends.named import XlaBackend
    from graphgen.lowering.backends.program_files import THE_FILE, WRITTEN_AGAIN

    if not isinstance(backend, XlaBackend):
        return
    said = f"{THE_FILE} before passes, {WRITTEN_AGAIN} after them"
    note(f"{name} compiled: {said if backend.file_runs else WRITTEN_AGAIN}")


def chosen_backend(on: str, *modules: Module) -> str:
    """The backend of ``--on``; of ``auto`` XLA, where NumPy does not know an op of a module."""
    if on != AUTO:
        return on
    codes = sorted({code for module in modules for code in _only_in_xla(module)})
    if codes:
        note(f"compiling with XLA, which knows {', '.join(codes)}")
    return CPU if codes else NUMPY


def _only_in_xla(module: Module) -> set[str]:
    """Opcodes and targets of custom calls that XLA runs and NumPy does not."""
    from graphgen.analysis.overview import opaque_opcodes
    from graphgen.eval.evaluate import IN_NUMPY
    from graphgen.ops.admitted_calls import only_xla_runs

    ops = [op for function in module.functions.values() for op in function.block]
    targets = [op.attrs.text("target") for op in ops if op.name == "custom_call"]
    return {*opaque_opcodes(module), *filter(only_xla_runs, targets)} - IN_NUMPY


def note_all_compiled(backends: Mapping[str, Backend | None]) -> dict[str, Json]:
    """Say what each backend compiled in its last run, and return the words by name.

    Args:
        backends: by the name that the note has; ``None`` for NumPy, which is left out.
    """
    used = {name: backend for name, backend in backends.items() if backend is not None}
    for name, backend in used.items():
        note_compiled(backend, name)
    return {name: compiled_text(backend) for name, backend in used.items()}


def note_compiled(backend: RunOnRanks, name: str = "") -> None:
    """Say what a backend compiled in its last run, where that can be a file, and why it is not.

    Args:
        backend: what ran a program.
        name: of the backend or of the file, where there are several.
    """
    from graphgen.lowering.backends.named import XlaBackend
    from graphgen.lowering.profiles.own_run import XlaRecorder

    if isinstance(backend, XlaBackend | XlaRecorder):
        said, why = backend.compiled
        note(f"{f'{name} ' if name else ''}compiled: {said}{f' ({why})' if why else ''}")
