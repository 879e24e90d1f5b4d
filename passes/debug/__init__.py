"""Showing that passes are right, and finding the rewrite that is not."""

from __future__ import annotations

from graphgen.passes.debug.compare import Difference
from graphgen.passes.debug.evaluator import Evaluator, NumpyEvaluator
from graphgen.passes.debug.runner import Runner
from graphgen.passes.debug.script import Script, script_for
from graphgen.passes.debug.validate import Verdict, validate

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
