"""Elements that depend on a number beyond the range of its type.

A pass that is right for finite floats only says nothing about them: not where such a number is
infinite in the end, nor where a softmax or a maximum makes a finite one of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphgen.eval.arithmetic import Array
from graphgen.eval.element_kinds import has_floats
from graphgen.eval.observer import Columns
from graphgen.ir import Function, Op


class OverflowMarks:
    """An observer of an evaluation in a program's own types: numbers that overflow become NaN.

    Numbers computed of NaN are NaN, so that these elements are NaN in the results. An infinity of
    an infinity, as that of a mask, stays.
    """

    def enter(self, function: Function, ranks: Sequence[int]) -> None:
        """See :class:`Observer`."""

    def made(self, op: Op, ranks: Sequence[int], given: Columns, results: Columns) -> Columns:
        """NaN for the infinities that an op makes of finite operands."""
        if op.name == "constant" or not any(has_floats(value.dtype) for value in op.results):
            return results
        if not any(_infinite(array) for column in results for array in column):
            return results
        if any(_infinite(array) for column in given for array in column):
            return results
        return [[_marked(array) for array in column] for column in results]

    def branch(self, op: Op, number: int, ranks: Sequence[int]) -> None:
        """See :class:`Observer`."""

    def loop(self, op: Op, turns: Sequence[int]) -> None:
        """See :class:`Observer`."""


def _infinite(array: Array) -> bool:
    return array.dtype.kind not in "biu" and bool(np.isinf(array).any())


def _marked(array: Array) -> Array:
    return np.where(np.isinf(array), np.asarray(np.nan, array.dtype), array)


def marked_elements(before: Array, after: Array) -> Array | None:
    """Mask of the places where one of two arrays of one shape is NaN; ``None`` for nowhere."""
    if before.shape != after.shape:
        return None
    marks = np.asarray(before != before) | np.asarray(after != after)
    return marks if marks.any() else None
