"""Showing that passes are right, and finding the rewrite that is not."""

from __future__ import annotations

from graphgen.passes.debug.compare import Difference
from graphgen.passes.debug.validate import Verdict, validate
from graphgen.passes.debug.workload import make_workload

__all__ = ["Difference", "Verdict", "make_workload", "validate"]
