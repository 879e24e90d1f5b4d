"""NumPy rules of reductions and products."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphgen.eval.arithmetic import (
    Arithmetic,
    Array,
    ends,
    widened,
)
from graphgen.eval.op_rules import eval_rule
from graphgen.ir import Attrs


@eval_rule("reduce")
def _reduce(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    axes = attrs.integers("dimensions")
    low, high = ends(x[0].dtype)
    wide = widened(x[0])
    kind = attrs.text("kind")
    if kind == "add":
        return np.asarray(np.sum(wide, axes, dtype=wide.dtype)).astype(x[0].dtype)
    combine, first = (np.maximum, low) if kind == "maximum" else (np.minimum, high)
    return np.asarray(combine.reduce(wide, axes, initial=first)).astype(x[0].dtype)


@eval_rule("dot_general")
def _dot_general(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    lhs, rhs = x
    lb, rb = attrs.integers("lhs_batch_dims"), attrs.integers("rhs_batch_dims")
    lc, rc = attrs.integers("lhs_contracting_dims"), attrs.integers("rhs_contracting_dims")
    lf = [i for i in range(lhs.ndim) if i not in lb and i not in lc]
    rf = [i for i in range(rhs.ndim) if i not in rb and i not in rc]
    dtype = attrs.element("dtype")
    # Integers are summed in the result's type, floats at least in f32, and so are the floats that
    # 8-bit integers may carry.
    held = how.wide if how.wide is not None and how.wide in (lhs.dtype, rhs.dtype) else None
    kind = held or (how.dtype(dtype) if dtype.is_integer else how.accumulator(lhs))
    left = lhs.astype(kind).transpose([*lb, *lf, *lc])
    right = rhs.astype(kind).transpose([*rb, *rc, *rf])
    batch = left.shape[: len(lb)]
    free_left, free_right = [lhs.shape[i] for i in lf], [rhs.shape[i] for i in rf]
    depth = int(np.prod([lhs.shape[i] for i in lc], dtype=np.int64))
    rows, columns = (int(np.prod(f, dtype=np.int64)) for f in (free_left, free_right))
    out = np.matmul(left.reshape(*batch, rows, depth), right.reshape(*batch, depth, columns))
    return out.reshape([*batch, *free_left, *free_right]).astype(held or how.dtype(dtype))
