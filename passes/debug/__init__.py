"""Showing that passes are right, and finding the rewrite that is not."""

from __future__ import annotations

from passes.debug.compare import Difference
from passes.debug.runner import Evaluate, Runner, numpy_evaluator
from passes.debug.script import Script, script_for
from passes.debug.validate import Verdict, validate

__all__ = [
    "Difference",
    "Evaluate",
    "Runner",
    "Script",
    "Verdict",
    "numpy_evaluator",
    "script_for",
    "validate",
]
