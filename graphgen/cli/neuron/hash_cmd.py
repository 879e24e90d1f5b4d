"""``graphgen hash``: the key under which a compiled program can be kept."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from graphgen.cli.console import Json, table, write_json, write_stdout
from graphgen.targets import DEFAULT_ACCELERATOR


def hash(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A module: .gg, StableHLO, HLO; - is stdin.")
    ],
    target: Annotated[
        str, typer.Option("--target", metavar="TARGET", help="cpu, inf2, trn1, trn2 or trn3.")
    ] = DEFAULT_ACCELERATOR,
    lnc: Annotated[
        int, typer.Option("--lnc", min=0, help="Cores to a logical core; 0 for the default.")
    ] = 0,
    flags: Annotated[
        str, typer.Option("--flags", metavar="TEXT", help="Flags given to the compiler.")
    ] = "",
    compiler: Annotated[
        str, typer.Option("--compiler", metavar="TEXT", help="The compiler's name and version.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say under which key each program's compilation can be kept and found again.

    The key is the same from any folder, checkout and process, with or without source lines; any
    change of what is computed, of the interface, the target, the flags or the version changes it.
    A module that is not lowered yet is lowered first.

    \b
    Examples:
      graphgen hash decode.pb --target trn2 --compiler neuronx-cc-2.27
      graphgen hash mini.gg --target trn1 --flags='--auto-cast=none -O1' --json
    """
    from graphgen.cli.module_file import read_module
    from graphgen.cli.pass_list import load_passes
    from graphgen.lowering.canonical_hash import Compilation, canonical_hash
    from graphgen.passes.core import run_pipeline
    from graphgen.passes.remaining import remaining
    from graphgen.targets import accelerator, find_target, target_names

    if target not in target_names() or find_target(target).is_accelerator:
        lnc = accelerator(target, lnc).lnc
    load_passes()
    module = read_module(file)
    if module.programs():
        run_pipeline(module, remaining(module, target))
    how = Compilation(target, lnc, flags, compiler)
    functions = module.programs() or list(module.functions.values())
    found = {function.name: canonical_hash(module, function, how) for function in functions}
    if as_json:
        programs: list[Json] = [{"name": name, "hash": key} for name, key in found.items()]
        write_json({"target": target, "lnc": lnc, "programs": programs})
    else:
        rows = [[name, key] for name, key in found.items()]
        write_stdout(table(["program", "hash"], rows, sys.stdout))
