"""The NumPy reference: what a program computes, slowly and plainly."""

from __future__ import annotations

from graphgen.eval.arithmetic import MEANING, NATIVE, Arithmetic, Array, numpy_dtype
from graphgen.eval.collectives import COLLECTIVES
from graphgen.eval.composites import COMPOSITES
from graphgen.eval.evaluate import (
    arguments_of,
    checked,
    evaluate,
    evaluate_output,
    evaluate_ranks,
    evaluate_values,
    rank_index,
)
from graphgen.eval.ring_buffer import RingOccupancy
from graphgen.eval.rules import RULES, SEVERAL

__all__ = [
    "COLLECTIVES",
    "COMPOSITES",
    "MEANING",
    "NATIVE",
    "RULES",
    "SEVERAL",
    "Arithmetic",
    "Array",
    "RingOccupancy",
    "arguments_of",
    "checked",
    "evaluate",
    "evaluate_output",
    "evaluate_ranks",
    "evaluate_values",
    "numpy_dtype",
    "rank_index",
]
