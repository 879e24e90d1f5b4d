"""Output files of commands that write a module in the form of the file's name."""

from __future__ import annotations

from pathlib import Path

from graphgen.cli.console import note
from graphgen.cli.files import STANDARD, check_output, write_bytes
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module

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
