"""NumPy rules of reductions of windows and of ``select_and_scatter``."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from graphgen.eval.arithmetic import COMBINE, Arithmetic, Array, ends, widened
from graphgen.eval.registry import eval_rule
from graphgen.eval.window import spread, windows_view
from graphgen.ir import Attrs
from graphgen.ops.reduce_window import reduced_windows, source_windows

_KEEPS = {"GE": np.greater_equal, "GT": np.greater, "LE": np.less_equal, "LT": np.less}


@eval_rule("reduce_window")
def _reduce_window(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    windows = reduced_windows(attrs)
    counts = [int(str(w.places(size, "it"))) for w, size in zip(windows, x[0].shape, strict=True)]
    kind = attrs.text("kind")
    held = spread(widened(x[0]), windows, _neutral(kind, widened(x[0]).dtype))
    view = windows_view(held, windows, counts)
    rank = x[0].ndim
    combine, wide = COMBINE[kind], held.dtype
    axes = tuple(range(rank, 2 * rank))
    made = combine.reduce(view, axes, dtype=wide, initial=wide.type(widened(x[1])))
    return np.asarray(made).astype(x[0].dtype)


def _neutral(kind: str, dtype: np.dtype[Any]) -> Array:
    """The element that changes nothing in a reduction."""
    nothing = np.zeros((), dtype)
    if kind == "and":
        return np.invert(nothing)
    if kind in ("maximum", "minimum"):
        low, high = (False, True) if dtype.kind == "b" else ends(dtype)
        return np.asarray(low if kind == "maximum" else high, dtype)
    return np.ones((), dtype) if kind == "multiply" else nothing


@eval_rule("select_and_scatter")
def _select_and_scatter(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    operand, source, init = x
    windows = source_windows(attrs)
    keeps = _KEEPS[attrs.text("direction")]
    places = np.arange(prod(operand.shape), dtype=np.int64).reshape(operand.shape)
    # Of each window, the place of every element; -1 for padding, which is never chosen.
    at = windows_view(spread(places, windows, -1), windows, source.shape)
    at = at.reshape(prod(source.shape), prod(attrs.integers("window_dimensions")))
    flat = widened(operand).reshape(-1)
    chosen = np.full(len(at), -1, np.int64)
    for column in at.T:
        held = (chosen >= 0) & np.asarray(keeps(flat[chosen], flat[column]))
        chosen = np.where((column >= 0) & ~held, column, chosen)
    out = np.full(operand.shape, init, operand.dtype).reshape(-1)
    inside = chosen >= 0
    COMBINE[attrs.text("kind")].at(out, chosen[inside], source.reshape(-1)[inside])
    return out.reshape(operand.shape)
