"""Modules as files: read in any form, write as IR text, choose programs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from graphgen.cli.console import note, write_json
from graphgen.cli.files import STANDARD, check_output, standard_input, write_bytes, write_text
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module
from graphgen.json_value import Json
from graphgen.read_file import is_file
from graphgen.text import print_module

if TYPE_CHECKING:
    from graphgen.eval import Array
    from graphgen.lowering.open import Source
    from graphgen.passes.core import Pass


HELP = "FILE.gg, .pb (HLO protobuf), .hlo (HLO text) or .mlir (StableHLO); - is stdout, as IR text."


def check_form(output: str) -> str:
    """The ending that selects the form; refused before any work (GG0704, GG0705)."""
    from graphgen.lowering.program_file import FORMS

    if output == STANDARD:
        return ".gg"
    check_output(output)
    ending = Path(output).suffix
    if ending not in FORMS:
        known = ", ".join(f"{end} ({name})" for end, name in FORMS.items())
        what = f"'{output}' does not say in which form to write"
        raise GraphgenError("GG0705", what, help=f"endings: {known}")
    return ending


def write_program(module: Module, function: Function, output: str) -> None:
    """Write a module; of any form but IR text, one program (GG0401 for what has no such form)."""
    from graphgen.lowering.program_file import program_bytes

    write_bytes(output, program_bytes(module, function, check_form(output)))
    if output != STANDARD:
        takes, gives = len(function.args), len(function.outputs)
        shown = f"@{function.name}, {function.block.size} ops, {takes} inputs, {gives} outputs"
        note(f"wrote {output}: {shown}")


def read_module(name: str) -> Module:
    """Read and verify the module in a file of any known form; ``-`` is standard input.

    Raises:
        GraphgenError: as :func:`open_module_file`.
    """
    return open_module_file(name)[1]


def open_module_file(name: str) -> tuple[Source, Module, Mapping[str, Array]]:
    """Read a file of any known form; ``-`` is standard input.

    Returns:
        The file, its verified module, and the weights and first states that it holds, by name.

    Raises:
        GraphgenError: GG0705 the file cannot be read, GG0201 it is not a module, GG0802 a folder
            has no program, and errors of the readers and the verifier, naming the file.
    """
    from graphgen.lowering.open import Source, open_with_values, source_of

    if name == STANDARD:
        source = Source("<stdin>", standard_input())
        return source, *open_with_values(source)
    try:
        source = source_of(name)
        return source, *open_with_values(source)
    except GraphgenError as error:
        # A folder of several programs says so itself, with their names.
        asked = error.code in _NOT_A_MODULE and not error.note
        if asked and (named := _other_kind(name)) is not None:
            raise named from error
        raise


_NOT_A_MODULE = ("GG0201", "GG0802")


def _other_kind(name: str) -> GraphgenError | None:
    """The error that names what a file or folder is, and who reads it; ``None`` for a module."""
    from graphgen.runtime.file_kind import FileKind, kind_of_file

    readers = {
        FileKind.ARTIFACT: "graphgen inspect {name} lists its programs",
        FileKind.CHECKPOINT: "graphgen build {name} -o model.gg writes its graph; graphgen inspect "
        "{name} describes it",
        FileKind.DEVICE_PROFILE: "graphgen profile {name} reads it",
        FileKind.RECORDING: "graphgen profile {name} reads it",
        FileKind.XLA_DUMP: "name one of its modules; graphgen inspect {name} lists them",
    }
    try:
        kind = kind_of_file(Path(name))
    except (GraphgenError, OSError):
        return None
    if kind is FileKind.FOLDER and is_file(Path(name) / "config.json"):
        # A configuration without weights has a graph, too.
        kind = FileKind.CHECKPOINT
    if kind not in readers:
        return None
    help = readers[kind].format(name=shlex.quote(name))
    return GraphgenError("GG0201", f"this is {kind.value}, not a module", where=name, help=help)


def read_lowered(name: str, target: str, dims: str = "") -> Module:
    """Read a module and run the rest of the default pipeline for ``target`` on it.

    A module without programs stays as it is. A note states default sizes.

    Args:
        name: of the file.
        target: what to legalize for.
        dims: sizes of symbols, as ``--dims`` gives them.
    """
    from graphgen.cli.shared_options import pipeline_sizes
    from graphgen.passes.core import run_pipeline
    from graphgen.passes.partial_pipeline import remaining

    module = read_module(name)
    passes = remaining(module, target, pipeline_sizes(module, dims)) if module.programs() else []
    tell_sizes(module, passes)
    run_pipeline(module, passes)
    return module


def tell_sizes(module: Module, passes: Sequence[Pass]) -> None:
    """Print a note on the default sizes of symbols, if there are symbols without a size."""
    from graphgen.analysis import free_symbols
    from graphgen.passes.programs.bucket_sizes import SERVING, named_sizes
    from graphgen.passes.programs.specialize import Specialize

    for item in passes:
        if isinstance(item, Specialize):
            given = named_sizes(item.dims)
            left = free_symbols(module.programs()) & SERVING.keys() - given.keys()
            options = {
                option: getattr(item, option)
                for name, option in SERVING.items()
                if name in left and option in ("batch", "context", "tokens")
            }
            if options:
                sizes = " ".join(f"{option}={[*size]}" for option, size in options.items())
                note(f"sizes by default: {sizes}; --dims B=2,S=64 or -p sets others")


def programs_or_functions(module: Module, name: str | None = None) -> list[Function]:
    """The function called ``name`` (GG0202), else all programs, else all functions."""
    if name is not None:
        return [module.function(name.removeprefix("@"))]
    return module.programs() or list(module.functions.values())


def choose_program(module: Module, name: str | None) -> Function:
    """The function to work on: the one named, else the only program.

    Raises:
        GraphgenError: GG0202 no such function, GG0705 there are several programs, or none.
    """
    if name is not None:
        return module.function(name.removeprefix("@"))
    programs = module.programs()
    if not programs:
        names = ", ".join(module.functions) or "nothing"
        raise GraphgenError("GG0705", "the module has no program", help=f"it has {names}")
    if len(programs) > 1:
        names = ", ".join(function.name for function in programs)
        raise GraphgenError(
            "GG0705",
            f"the module has {len(programs)} programs: {names}",
            help=f"choose one: --program {programs[0].name}",
        )
    return programs[0]


def write_module(
    module: Module, output: str, *, as_json: bool, more: dict[str, Json] | None = None
) -> None:
    """Write a module's IR text, and report on it: on stderr, or as JSON on stdout.

    Args:
        module: the module.
        output: a file, or ``-`` for standard output.
        as_json: report as JSON; ``output`` is a file then.
        more: further keys of the JSON.

    Raises:
        GraphgenError: GG0704 when it cannot be written.
    """
    write_text(output, print_module(module))
    if as_json:
        functions: list[Json] = [
            {"name": function.name, "phase": function.phase, "ops": function.block.size}
            for function in module.functions.values()
        ]
        facts: dict[str, Json] = {"file": output, "module": module.name, "level": module.level}
        write_json({**facts, "mesh": {**module.mesh}, "functions": functions, **(more or {})})
    elif output != STANDARD:
        names = ", ".join(f"@{function.name}" for function in module.programs())
        note(f"wrote {output}: {names}, {module.op_count()} ops, level {module.level}")
