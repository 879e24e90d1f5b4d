"""Infrastructure of passes: rules, rewriter, journal, contracts, fuel, pipelines from text.

``pass_.py`` and ``rule.py`` are what a pass is written with.
"""

from __future__ import annotations

from graphgen.passes.core.instrument import PassReport
from graphgen.passes.core.pass_ import Pass
from graphgen.passes.core.pipeline import run_pipeline
from graphgen.passes.core.registry import PASSES, find_pass, parse_pipeline, register
from graphgen.passes.core.rewriter import Rewriter
from graphgen.passes.core.rule import NoMatch, Rule, no_match, rule
from graphgen.passes.core.settings import debug

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
    "register",
    "rule",
    "run_pipeline",
]
