"""Patterns of ops: one structure and one matcher for ``graphgen grep`` and for rewrite rules.

``grep`` parses its text into the nodes of ``nodes.py`` and matches them as they stand. Rules write
the same nodes as Python expressions; for them the matcher looks through layout and rounding, takes
the operands of commutative ops in any order, and records how far the best attempt came.
"""

from graphgen.pattern.conditions import Known, compare, matches
from graphgen.pattern.matcher import Attempt, Bindings, Match, Matcher, find, match_rule
from graphgen.pattern.nodes import (
    AnyOf,
    Condition,
    NumberPattern,
    OpPattern,
    Pattern,
    apply,
    number,
    related,
    total,
    variables,
)
from graphgen.pattern.text import KINDS, parse_pattern

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
    "related",
    "total",
    "variables",
]
