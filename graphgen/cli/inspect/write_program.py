"""Writing a module in the form that its file's name asks for."""

from __future__ import annotations

from pathlib import Path

from graphgen.cli.console import note
from graphgen.cli.files import STANDARD, check_output, write_bytes, write_text
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module

FORMS = {".gg": "IR text", ".pb": "HLO protobuf", ".hlo": "HLO text", ".mlir": "StableHLO"}
HELP = "FILE.gg, .pb (HLO protobuf), .hlo (HLO text) or .mlir (StableHLO); - is stdout, as IR text."


def check_form(output: str) -> str:
    """The ending that says the form; refused before any work (GG0704, GG0705)."""
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
    ending = check_form(output)
    if ending == ".gg":
        from graphgen.text import print_module

        write_text(output, print_module(module))
    elif ending == ".mlir":
        from graphgen.lowering.stablehlo import emit_stablehlo

        write_text(output, emit_stablehlo(module, function))
    elif ending == ".hlo":
        from graphgen.lowering.hlo import emit_hlo, print_hlo_text

        write_text(output, print_hlo_text(emit_hlo(module, function)))
    else:
        from graphgen.lowering.hlo import hlo_chunks

        write_bytes(output, hlo_chunks(module, function))
    if output != STANDARD:
        takes, gives = len(function.args), len(function.outputs)
        shown = f"@{function.name}, {function.block.size} ops, {takes} inputs, {gives} outputs"
        note(f"wrote {output}: {shown}")
