"""StableHLO text."""

from __future__ import annotations

from lowering.stablehlo.emit import donated, emit_stablehlo
from lowering.stablehlo.table import TABLE

__all__ = ["TABLE", "donated", "emit_stablehlo"]
