"""NumPy rules of reductions and products."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from graphgen.eval.arithmetic import (
    COMBINE,
    Arithmetic,
    Array,
    ends,
    is_integer,
    widened,
)
from graphgen.eval.registry import eval_rule
from graphgen.ir import Attrs


@eval_rule("reduce")
def _reduce(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    axes = attrs.integers("dimensions")
    wide, kind = widened(x[0]), attrs.text("kind")
    combine = COMBINE[kind]
    if kind not in ("maximum", "minimum"):
        made = combine.reduce(wide, axes, dtype=wide.dtype)
    else:
        low, high = (False, True) if wide.dtype == bool else ends(x[0].dtype)
        made = combine.reduce(wide, axes, initial=low if kind == "maximum" else high)
    return np.asarray(made).astype(x[0].dtype, copy=False)


def _summed_in(how: Arithmetic, operand: Array, result: np.dtype[Any]) -> np.dtype[Any]:
    """The type of the sums of a product, by the types of an operand and of the result."""
    if is_integer(result):
        return result
    return how.accumulator(np.empty(0, result) if is_integer(operand.dtype) else operand)


@eval_rule("dot_general")
def _dot_general(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    lhs, rhs = x
    lb, rb = attrs.integers("lhs_batch_dims"), attrs.integers("rhs_batch_dims")
    lc, rc = attrs.integers("lhs_contracting_dims"), attrs.integers("rhs_contracting_dims")
    lf = [i for i in range(lhs.ndim) if i not in lb and i not in lc]
    rf = [i for i in range(rhs.ndim) if i not in rb and i not in rc]
    dtype = attrs.element("dtype")
    # Integers are summed in the result's type, floats at least in f32, and so are integers whose
    # sums are floats, and the floats that 8-bit integers may carry.
    held = how.wide if how.wide is not None and how.wide in (lhs.dtype, rhs.dtype) else None
    kind = held or _summed_in(how, lhs, how.dtype(dtype))
    left = lhs.astype(kind, copy=False).transpose([*lb, *lf, *lc])
    right = rhs.astype(kind, copy=False).transpose([*rb, *rc, *rf])
    batch = left.shape[: len(lb)]
    free_left, free_right = [lhs.shape[i] for i in lf], [rhs.shape[i] for i in rf]
    depth, rows, columns = prod([lhs.shape[i] for i in lc]), prod(free_left), prod(free_right)
    out = np.matmul(left.reshape(*batch, rows, depth), right.reshape(*batch, depth, columns))
    made = out.reshape([*batch, *free_left, *free_right])
    return made.astype(held or how.dtype(dtype), copy=False)
