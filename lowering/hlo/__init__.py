"""HLO protobufs: written by the contract of ``neuronx-cc``, read in every vintage."""

from __future__ import annotations

from lowering.hlo.emit import emit_hlo, hlo_chunks
from lowering.hlo.emit_ops import TABLE
from lowering.hlo.module import looks_like_proto
from lowering.hlo.read import read_hlo

__all__ = ["TABLE", "emit_hlo", "hlo_chunks", "looks_like_proto", "read_hlo"]
