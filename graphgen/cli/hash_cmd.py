"""``graphgen hash``: compile cache keys of programs."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import emit
from graphgen.cli.module_file import programs_or_functions, read_lowered
from graphgen.cli.shared_options import AsJson, CompilerFlags, Dims, Lnc, ModuleFile, TargetName
from graphgen.json_value import Json
from graphgen.report.table import Table
from graphgen.targets import DEFAULT_ACCELERATOR

COMMAND: Final = Command("neuron", "Print the compile cache keys of programs.")


def hash(
    file: ModuleFile,
    target: TargetName = DEFAULT_ACCELERATOR,
    lnc: Lnc = 0,
    dims: Dims = "",
    flags: CompilerFlags = "",
    compiler: Annotated[
        str, typer.Option("--compiler", metavar="TEXT", help="The compiler's name and version.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Print the key under which each program's compilation is cached.

    The key is the same from any folder, checkout and process, with or without source lines; any
    change of what is computed, of the interface, the target, the flags or the version changes it.
    A module that is not lowered yet is lowered first.

    \b
    Examples:
      graphgen hash decode.pb --target trn2 --compiler neuronx-cc-2.27
      graphgen hash mini.gg --target trn1 --flags='--auto-cast=none -O1' --json
    """
    from graphgen.lowering.canonical_hash import Compilation, canonical_hash
    from graphgen.targets import accelerator, find_target, target_names

    if target not in target_names() or find_target(target).is_accelerator:
        lnc = accelerator(target, lnc).lnc
    module = read_lowered(file, target, dims)
    how = Compilation(target, lnc, flags, compiler)
    rows = [(f.name, canonical_hash(module, f, how)) for f in programs_or_functions(module)]
    programs: list[Json] = [{"name": name, "hash": key} for name, key in rows]
    emit(
        as_json,
        lambda: {"target": target, "lnc": lnc, "programs": programs},
        lambda: Table(["program", "hash"], rows),
    )
