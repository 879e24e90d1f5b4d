"""NumPy reference of every op.

``evaluate.py`` runs a function; ``registry.py`` is the table of the rules, which the other files
hold under the names of the files in ``graphgen/ops``.
"""

from __future__ import annotations

from graphgen.eval.arithmetic import MEANING, NATIVE, WITH_INTEGERS, Arithmetic, Array, numpy_dtype
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
    "WITH_INTEGERS",
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
