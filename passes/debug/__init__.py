"""Showing that passes are right, and finding the rewrite that is not."""

from __future__ import annotations

from passes.debug.compare import Difference
from passes.debug.evaluator import Evaluator, NumpyEvaluator
from passes.debug.runner import Runner
from passes.debug.script import Script, script_for
from passes.debug.validate import Verdict, validate

__all__ = [
    "Difference",
    "Evaluator",
    "NumpyEvaluator",
    "Runner",
    "Script",
    "Verdict",
    "script_for",
    "validate",
]
