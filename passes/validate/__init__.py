"""Validation of passes, blame, bisection, reduction of failures, checks of single rewrites.

``validate.py`` runs a pipeline and compares the module after every pass.
"""

from __future__ import annotations

from graphgen.passes.equiv.deviation import Deviation
from graphgen.passes.validate.validate import PassChecks, validate
from graphgen.passes.validate.verdict import Verdict
from graphgen.passes.workload.make_workload import make_workload

__all__ = ["Deviation", "PassChecks", "Verdict", "make_workload", "validate"]
