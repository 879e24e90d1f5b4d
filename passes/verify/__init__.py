"""Verification: numeric validation of passes, equivalence, bisection and reduction of failures.

Read ``validate.py`` first; ``workload.py`` makes the calls that programs are compared over.
"""

from __future__ import annotations

from graphgen.passes.verify.compare import Deviation
from graphgen.passes.verify.validate import Verdict, validate
from graphgen.passes.verify.workload import make_workload

__all__ = ["Deviation", "Verdict", "make_workload", "validate"]
