"""NumPy rules of the ops that move a window over their operand."""

from __future__ import annotations

from graphgen.eval.windows import rules_convolution, rules_reduction

MODULES = (rules_convolution, rules_reduction)
