"""NumPy rules of constants, broadcasts and layout ops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphgen.eval.arithmetic import (
    Arithmetic,
    Array,
)
from graphgen.eval.registry import eval_rule, static
from graphgen.eval.window import spread
from graphgen.ir import Attrs
from graphgen.ops.window import Window


@eval_rule("constant")
def _constant(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    return how.literal(attrs.literal("value"))


@eval_rule("iota")
def _iota(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    shape, dimension = static(attrs, "shape"), attrs.integer("dimension")
    ramp = np.arange(shape[dimension]).astype(how.dtype(attrs.element("dtype")))
    view = [1] * len(shape)
    view[dimension] = shape[dimension]
    return np.broadcast_to(ramp.reshape(view), shape)


@eval_rule("broadcast_in_dim")
def _broadcast_in_dim(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    shape, dimensions = static(attrs, "shape"), attrs.integers("dimensions")
    view = [1] * len(shape)
    for size, target in zip(x[0].shape, dimensions, strict=True):
        view[target] = size
    order = sorted(range(len(dimensions)), key=dimensions.__getitem__)
    made = x[0].transpose(order).reshape(view)
    return made if made.shape == shape else np.broadcast_to(made, shape)


@eval_rule("reshape")
def _reshape(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    return x[0].reshape(static(attrs, "shape"))


@eval_rule("transpose")
def _transpose(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    return x[0].transpose(attrs.integers("permutation"))


@eval_rule("reverse")
def _reverse(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    return np.flip(x[0], attrs.integers("dimensions"))


@eval_rule("slice")
def _slice(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    starts, limits = static(attrs, "start_indices"), static(attrs, "limit_indices")
    strides = attrs.integers("strides") or (1,) * x[0].ndim
    return x[0][tuple(slice(*bounds) for bounds in zip(starts, limits, strides, strict=True))]


@eval_rule("concatenate")
def _concatenate(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    return np.concatenate(list(x), attrs.integer("dimension"))


@eval_rule("pad")
def _pad(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    low, high = attrs.integers("low"), attrs.integers("high")
    between = attrs.integers("interior") or (0,) * len(low)
    windows = [Window(1, 1, a, b, n + 1) for a, b, n in zip(low, high, between, strict=True)]
    return spread(x[0], windows, x[1])
