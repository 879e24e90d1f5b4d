"""HLO protobufs: written by the contract of ``neuronx-cc``, read in every vintage."""

from __future__ import annotations

from lowering.hlo.emit import emit_hlo, hlo_chunks
from lowering.hlo.emit_ops import TABLE

__all__ = ["TABLE", "emit_hlo", "hlo_chunks"]
