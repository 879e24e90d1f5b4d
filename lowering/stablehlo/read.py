"""Reader of StableHLO: text in any form, bytecode, portable artifacts.

The text of this package's emitter, and most text of other compilers, is parsed here, without JAX.
Bytecode, and assembly forms that the parser does not know, go through jaxlib's MLIR, which prints
them in the generic form.
"""

from __future__ import annotations

from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.lowering.stablehlo.dialect import parse_assembly
from graphgen.lowering.stablehlo.read_module import read_module
from graphgen.lowering.stablehlo.text.mlir_parser import parse_mlir
from graphgen.lowering.stablehlo.text.tokens import MlirTokens, UnknownForm

BYTECODE = b"ML\xefR"


def looks_like_stablehlo(head: bytes) -> bool:
    """Test the first bytes of a file: MLIR bytecode, or text that begins like a module."""
    if head.startswith(BYTECODE):
        return True
    lines = (line.strip() for line in head.decode("utf-8", "replace").splitlines())
    first = next((line for line in lines if line and not line.startswith("//")), "")
    return first.startswith(("module", '"builtin.module"', "#", "!", "func.func"))


def read_stablehlo(data: str | bytes, filename: str = "<stablehlo>") -> Module:
    """Read the module in StableHLO text, bytecode or a portable artifact.

    Args:
        data: the contents of a file.
        filename: for error messages, and for the locations of ops that have none.

    Raises:
        GraphgenError: GG0201 syntax, GG0103 an op that is not modelled, GG0101 and GG0102 types
            that are not, GG0705 where only jaxlib could read it and it is not installed.
    """
    if isinstance(data, bytes):
        if data.startswith(BYTECODE):
            return _read_text(_generic(data, filename), filename, own_lines=False)
        data = _decoded(data, filename)
    try:
        return _read_text(data, filename)
    except UnknownForm as unread:
        if "!quant." in data:
            # jaxlib does not have MLIR's dialect of quantized types.
            unread.error.help = "print the generic form: stablehlo-opt --mlir-print-op-generic"
            raise unread.error from unread
        return _read_text(_generic(data, filename, unread.error), filename, own_lines=False)


def _read_text(text: str, filename: str, *, own_lines: bool = True) -> Module:
    parsed = parse_mlir(text, filename, parse_assembly)
    return read_module(parsed, MlirTokens(text, filename), own_lines=own_lines)


def _decoded(data: bytes, filename: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise GraphgenError(
            "GG0201",
            "this is neither text nor MLIR bytecode",
            where=f"{filename}, byte {error.start}",
        ) from error


def _generic(data: str | bytes, filename: str, unread: GraphgenError | None = None) -> str:
    """Print the module in the generic form, through jaxlib."""
    from graphgen.lowering.stablehlo.text.generic_form import generic_text

    try:
        return generic_text(data, filename)
    except ModuleNotFoundError as error:
        raise unread or GraphgenError(
            "GG0705", "MLIR bytecode needs jaxlib, which is not installed", where=filename
        ) from error
