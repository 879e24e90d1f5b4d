"""What each simple op computes, in NumPy: the reference every other execution is compared with.

``RULES`` are those of one result, ``SEVERAL`` those that may have more.
"""

from __future__ import annotations

from graphgen.eval.rule import Rule
from graphgen.eval.rules_bits import BITS
from graphgen.eval.rules_elementwise import ELEMENTWISE
from graphgen.eval.rules_linalg import LINALG
from graphgen.eval.rules_memory import MEMORY
from graphgen.eval.rules_order import SEVERAL
from graphgen.eval.rules_shape import SHAPE

RULES: dict[str, Rule] = {**ELEMENTWISE, **BITS, **SHAPE, **LINALG, **MEMORY}

__all__ = ["RULES", "SEVERAL"]
