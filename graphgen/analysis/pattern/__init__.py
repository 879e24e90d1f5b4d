"""Patterns of ops: one structure and one matcher for ``graphgen grep`` and for rewrite rules.

Read :mod:`graphgen.analysis.pattern.pattern_nodes` first. ``grep`` parses its text into those nodes
and matches them as they stand. Rules write the same nodes as Python expressions; for them the
matcher looks through layout and rounding, takes the operands of commutative ops in any order, and
records how far the best attempt came.
"""

from graphgen.analysis.pattern.conditions import Known, compare, matches
from graphgen.analysis.pattern.matcher import Attempt, Bindings, Matcher, match_rule
from graphgen.analysis.pattern.pattern_nodes import (
    AnyOf,
    Condition,
    NumberPattern,
    OpPattern,
    Pattern,
    apply,
    number,
    total,
    variables,
)
from graphgen.analysis.pattern.pattern_text import KINDS, parse_pattern
from graphgen.analysis.pattern.search import Match, find

__all__ = [
    "KINDS",
    "AnyOf",
    "Attempt",
    "Bindings",
    "Condition",
    "Known",
    "Match",
    "Matcher",
    "NumberPattern",
    "OpPattern",
    "Pattern",
    "apply",
    "compare",
    "find",
    "match_rule",
    "matches",
    "number",
    "parse_pattern",
    "total",
    "variables",
]
