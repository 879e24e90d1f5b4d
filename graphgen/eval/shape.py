"""NumPy rules of constants, broadcasts and layout ops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from graphgen.eval.arithmetic import (
    Arithmetic,
    Array,
)
from graphgen.eval.registry import eval_rule, static
from graphgen.eval.window import spread
from graphgen.ir import Attrs
from graphgen.ops.window import Window

# Plans of ops that are kept: programs are evaluated many times, on arrays of the same shapes.
_MANY = 4096


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
    shape, order, view = _broadcast_view(attrs, x[0].shape)  # pyright: ignore[reportArgumentType] - hashed by identity
    made = (x[0] if order is None else x[0].transpose(order)).reshape(view)
    return made if view == shape else np.broadcast_to(made, shape)


@lru_cache(maxsize=_MANY)
def _broadcast_view(
    attrs: Attrs, given: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...] | None, tuple[int, ...]]:
    """Of a broadcast the shape of its result, the order of the operand's dimensions if they move,
    and the shape that then broadcasts.
    """
    shape, dimensions = static(attrs, "shape"), attrs.integers("dimensions")
    view = [1] * len(shape)
    for size, target in zip(given, dimensions, strict=True):
        view[target] = size
    order = tuple(sorted(range(len(dimensions)), key=dimensions.__getitem__))
    return shape, None if order == tuple(range(len(order))) else order, tuple(view)


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
    return x[0][_slices(attrs, x[0].ndim)]  # pyright: ignore[reportArgumentType] - hashed by identity


@lru_cache(maxsize=_MANY)
def _slices(attrs: Attrs, rank: int) -> tuple[slice, ...]:
    starts, limits = static(attrs, "start_indices"), static(attrs, "limit_indices")
    strides = attrs.integers("strides") or (1,) * rank
    return tuple([slice(*bounds) for bounds in zip(starts, limits, strides, strict=True)])


@eval_rule("concatenate")
def _concatenate(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    return np.concatenate(list(x), attrs.integer("dimension"))


@eval_rule("pad")
def _pad(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    low, high = attrs.integers("low"), attrs.integers("high")
    between = attrs.integers("interior") or (0,) * len(low)
    windows = [Window(1, 1, a, b, n + 1) for a, b, n in zip(low, high, between, strict=True)]
    return spread(x[0], windows, x[1])
