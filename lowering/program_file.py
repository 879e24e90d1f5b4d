"""Programs as files: the form by the ending of the name, and the bytes of each form."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Function, Module
from graphgen.text import print_module

FORMS = {".gg": "IR text", ".pb": "HLO protobuf", ".hlo": "HLO text", ".mlir": "StableHLO"}


def program_bytes(module: Module, function: Function, ending: str) -> Sequence[bytes | memoryview]:
    """A program in one of :data:`FORMS`; IR text is of the whole module.

    Raises:
        GraphgenError: GG0401 for a program that the form cannot express.
    """
    if ending == ".gg":
        return [print_module(module).encode()]
    if ending == ".mlir":
        from graphgen.lowering.stablehlo import emit_stablehlo

        return [emit_stablehlo(module, function).encode()]
    if ending == ".hlo":
        from graphgen.lowering.hlo import emit_hlo
        from graphgen.lowering.hlo_text.hlo_printer import print_hlo_text

        return [print_hlo_text(emit_hlo(module, function)).encode()]
    from graphgen.lowering.hlo import hlo_chunks

    return hlo_chunks(module, function)
