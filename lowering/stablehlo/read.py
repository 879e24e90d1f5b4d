"""Reading StableHLO: text in any form, bytecode, portable artifacts.

The text that our emitter writes, and most of what other compilers print, is read by a parser of
our own, without JAX. Bytecode, and short forms that parser does not know, go through jaxlib's MLIR
where it is installed, which prints them in the generic form.
"""

from __future__ import annotations

from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.lowering.stablehlo.read_grammar import read_tree
from graphgen.lowering.stablehlo.read_module import read_module
from graphgen.lowering.stablehlo.read_tokens import Tokens, Unread

BYTECODE = b"ML\xefR"


def looks_like_stablehlo(head: bytes) -> bool:
    """Whether the first bytes of a file are MLIR's: bytecode, or text that begins like a module."""
    if head.startswith(BYTECODE):
        return True
    lines = (line.strip() for line in head.decode("utf-8", "replace").splitlines())
    first = next((line for line in lines if line and not line.startswith("//")), "")
    return first.startswith(("module", '"builtin.module"', "#", "!", "func.func"))


def read_stablehlo(data: str | bytes, filename: str = "<stablehlo>") -> Module:
    """The module in StableHLO text, bytecode or a portable artifact.

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
    except Unread as unread:
        return _read_text(_generic(data, filename, unread.error), filename, own_lines=False)


def _read_text(text: str, filename: str, *, own_lines: bool = True) -> Module:
    parsed = read_tree(text, filename)
    return read_module(parsed, Tokens(text, filename), own_lines=own_lines)


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
    """The same module in the generic form, through jaxlib."""
    from graphgen.lowering.stablehlo.read_jaxlib import generic_text

    try:
        return generic_text(data, filename)
    except ModuleNotFoundError as error:
        raise unread or GraphgenError(
            "GG0705", "MLIR bytecode needs jaxlib, which is not installed", where=filename
        ) from error
