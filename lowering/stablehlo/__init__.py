"""StableHLO: text out, text and bytecode in."""

from __future__ import annotations

from graphgen.lowering.stablehlo.emit import emit_stablehlo, stablehlo_lines
from graphgen.lowering.stablehlo.read import looks_like_stablehlo, read_stablehlo
from graphgen.lowering.stablehlo.table import TABLE

__all__ = [
    "TABLE",
    "emit_stablehlo",
    "looks_like_stablehlo",
    "read_stablehlo",
    "stablehlo_lines",
]
