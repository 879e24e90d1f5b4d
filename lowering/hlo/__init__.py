"""HLO dialect: one row per op, for ``neuronx-cc`` and for every version of XLA.

``dialect.py`` has the rows; ``emit.py`` and ``read.py`` are the two directions.
"""

from __future__ import annotations

from graphgen.lowering.hlo.emit import emit_hlo, hlo_chunks
from graphgen.lowering.hlo.read import read_hlo
from graphgen.lowering.hlo_proto.proto_module import looks_like_proto
from graphgen.lowering.hlo_text.hlo_parser import looks_like_text, parse_hlo_text
from graphgen.lowering.hlo_text.hlo_printer import print_hlo_text

__all__ = [
    "emit_hlo",
    "hlo_chunks",
    "looks_like_proto",
    "looks_like_text",
    "parse_hlo_text",
    "print_hlo_text",
    "read_hlo",
]
