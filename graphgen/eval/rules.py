"""Evaluation rules of the ops in NumPy, the reference of every backend.

Importing the modules registers their rules.
"""

from __future__ import annotations

from graphgen.eval import bits as rules_bits
from graphgen.eval import collective as collectives
from graphgen.eval import composite as composites
from graphgen.eval import elementwise as rules_elementwise
from graphgen.eval import experts as experts_rule
from graphgen.eval import indexing as rules_indexing
from graphgen.eval import linalg as rules_linalg
from graphgen.eval import numerical, windows
from graphgen.eval import shape as rules_shape
from graphgen.eval import sorting as rules_sorting
from graphgen.eval import token_tree as tree_rules
from graphgen.eval.registry import COLLECTIVES, COMPOSITES, RULES, SEVERAL

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
