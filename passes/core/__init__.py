"""What passes are made of: rules, the rewriter, the pass class, pipelines."""

from __future__ import annotations

from passes.core.pass_ import Pass
from passes.core.pipeline import paused_gc, run_pipeline
from passes.core.registry import PASSES, find_pass, parse_pipeline, register
from passes.core.rewriter import Rewriter
from passes.core.rule import NoMatch, Rule, no_match, rule
from passes.core.settings import debug
from passes.core.watch import PassReport

__all__ = [
    "PASSES",
    "NoMatch",
    "Pass",
    "PassReport",
    "Rewriter",
    "Rule",
    "debug",
    "find_pass",
    "no_match",
    "parse_pipeline",
    "paused_gc",
    "register",
    "rule",
    "run_pipeline",
]
