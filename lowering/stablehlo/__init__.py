"""StableHLO: one row per op, emitter of text, reader of text and bytecode, Shardy."""

from __future__ import annotations

from graphgen.lowering.stablehlo.dialect import BY_OP
from graphgen.lowering.stablehlo.emit import emit_stablehlo, stablehlo_lines, stablehlo_places
from graphgen.lowering.stablehlo.read import looks_like_stablehlo, read_stablehlo

__all__ = [
    "BY_OP",
    "emit_stablehlo",
    "looks_like_stablehlo",
    "read_stablehlo",
    "stablehlo_lines",
    "stablehlo_places",
]
