"""NumPy rules of reductions and products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
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
    plan = _product(attrs, lhs.shape, rhs.shape)  # pyright: ignore[reportArgumentType] - hashed by identity
    dtype = how.dtype(attrs.element("dtype"))
    # Integers are summed in the result's type, floats at least in f32, and so are integers whose
    # sums are floats, and the floats that 8-bit integers may carry.
    held = how.wide if how.wide is not None and how.wide in (lhs.dtype, rhs.dtype) else None
    kind = held or _summed_in(how, lhs, dtype)
    left = lhs.astype(kind, copy=False).transpose(plan.left_order).reshape(plan.left)
    right = rhs.astype(kind, copy=False).transpose(plan.right_order).reshape(plan.right)
    return np.matmul(left, right).reshape(plan.shape).astype(held or dtype, copy=False)


@dataclass(frozen=True, slots=True)
class _Product:
    """A product of two arrays as one of matrices.

    Attributes:
        left_order, right_order: of the dimensions: batch, rows, depth, and batch, depth, columns.
        left, right: shapes of the matrices.
        shape: of the result.
    """

    left_order: tuple[int, ...]
    right_order: tuple[int, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    shape: tuple[int, ...]


@lru_cache(maxsize=4096)
def _product(attrs: Attrs, lhs: tuple[int, ...], rhs: tuple[int, ...]) -> _Product:
    lb, rb = attrs.integers("lhs_batch_dims"), attrs.integers("rhs_batch_dims")
    lc, rc = attrs.integers("lhs_contracting_dims"), attrs.integers("rhs_contracting_dims")
    lf = [i for i in range(len(lhs)) if i not in lb and i not in lc]
    rf = [i for i in range(len(rhs)) if i not in rb and i not in rc]
    batch = [lhs[i] for i in lb]
    rows, columns = [lhs[i] for i in lf], [rhs[i] for i in rf]
    depth = prod([lhs[i] for i in lc])
    return _Product(
        (*lb, *lf, *lc),
        (*rb, *rc, *rf),
        (*batch, prod(rows), depth),
        (*batch, depth, prod(columns)),
        (*batch, *rows, *columns),
    )
