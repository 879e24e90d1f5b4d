"""NumPy reference evaluation of programs.

Read ``evaluate.py`` first; ``op_rules.py`` is the registry of the rules in ``rules_*.py``.
"""

from __future__ import annotations

from graphgen.eval.arithmetic import MEANING, NATIVE, Arithmetic, Array, numpy_dtype
from graphgen.eval.evaluate import (
    arguments_of,
    checked,
    evaluate,
    evaluate_op,
    evaluate_output,
    evaluate_ranks,
    evaluate_values,
    rank_index,
)
from graphgen.eval.observer import Columns, Observer, ObserverChain
from graphgen.eval.rules import COLLECTIVES, COMPOSITES, RULES, SEVERAL

__all__ = [
    "COLLECTIVES",
    "COMPOSITES",
    "MEANING",
    "NATIVE",
    "RULES",
    "SEVERAL",
    "Arithmetic",
    "Array",
    "Columns",
    "Observer",
    "ObserverChain",
    "arguments_of",
    "checked",
    "evaluate",
    "evaluate_op",
    "evaluate_output",
    "evaluate_ranks",
    "evaluate_values",
    "numpy_dtype",
    "rank_index",
]
