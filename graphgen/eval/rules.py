"""Evaluation rules of the ops in NumPy, the reference of every backend.

Importing the modules registers their rules.
"""

from __future__ import annotations

from graphgen.eval import (
    collectives,
    composites,
    numerical,
    rules_bits,
    rules_elementwise,
    rules_indexing,
    rules_linalg,
    rules_shape,
    rules_sorting,
    windows,
)
from graphgen.eval.mixtures import experts_rule
from graphgen.eval.op_rules import COLLECTIVES, COMPOSITES, RULES, SEVERAL
from graphgen.eval.token_trees import tree_rules

MODULES = (
    rules_elementwise,
    rules_bits,
    rules_shape,
    rules_linalg,
    rules_indexing,
    rules_sorting,
    composites,
    tree_rules,
    collectives,
    *windows.MODULES,
    *numerical.MODULES,
    experts_rule,
)

__all__ = ["COLLECTIVES", "COMPOSITES", "MODULES", "RULES", "SEVERAL"]
