"""Verification: numeric validation of passes, equivalence, bisection and reduction of failures.

Read ``validate.py`` first. ``workload`` makes the calls that programs are compared over,
``compare`` compares the numbers of two runs, ``coverage`` records what the calls reached.
"""

from __future__ import annotations

from graphgen.passes.equiv.deviation import Deviation
from graphgen.passes.validate.validate import PassChecks, validate
from graphgen.passes.validate.verdict import Verdict
from graphgen.passes.workload.make_workload import make_workload

__all__ = ["Deviation", "PassChecks", "Verdict", "make_workload", "validate"]
