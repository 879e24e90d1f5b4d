"""Reductions of windows, and the scatter that is the gradient of their maximum."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphgen.ir import Attrs, Dim, TensorType, tensor
from graphgen.ops.attr_types import INTEGERS, choice
from graphgen.ops.factors import Factors, passthrough_factors
from graphgen.ops.linalg import REDUCTIONS, check_reduction
from graphgen.ops.opdef import attr, define, require
from graphgen.ops.traits import Types
from graphgen.ops.window import REDUCTION, Window, windows_of


def reduced_windows(attrs: Attrs) -> list[Window]:
    """The window along each dimension of the operand."""
    return windows_of(attrs, attrs.integers("window_dimensions"), REDUCTION)


def _whole(window: Window) -> bool:
    """The window is one element, and moves over each of the dimension."""
    return window == Window(1)


def _window_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """Dimensions of windows of one element are batch dimensions; the others are whole."""
    return passthrough_factors(operands, results, [_whole(w) for w in reduced_windows(attrs)])


def window_cost(operands: Types, results: Types, attrs: Attrs) -> tuple[Dim, Dim]:
    """One operation per element of each window and result."""
    return results[0].size * len(results) * _taps(attrs), 0


def _taps(attrs: Attrs) -> int:
    """The number of elements of a window."""
    return math.prod(attrs.integers("window_dimensions"))


_WINDOW = (
    attr("window_dimensions", INTEGERS),
    attr("window_strides", INTEGERS, ()),
    attr("low", INTEGERS, ()),
    attr("high", INTEGERS, ()),
)
# Those of a window with holes between its elements, and those of the operand.
WINDOW_ATTRS = (
    *_WINDOW,
    attr("base_dilations", INTEGERS, ()),
    attr("window_dilations", INTEGERS, ()),
)
_KIND = attr("kind", choice(*REDUCTIONS))


def window_places(operand: TensorType, windows: Sequence[Window]) -> list[Dim]:
    """Check the windows; how often each fits its dimension."""
    rank = len(windows)
    require(operand.rank == rank, f"window_dimensions of {rank} dimensions for {operand.text}", 0)
    pairs = enumerate(zip(operand.shape, windows, strict=True))
    return [window.places(size, f"dimension {dim}") for dim, (size, window) in pairs]


@define(
    "reduce_window",
    "operand init",
    *WINDOW_ATTRS,
    _KIND,
    factors=_window_factors,
    cost=window_cost,
)
def _reduce_window(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The elements of each window combined with ``init``.

    Each list has one number a dimension; an empty one is the default. ``low`` and ``high`` pad, or
    cut off where they are negative; ``base_dilations`` makes holes between the elements. As in XLA,
    padding and holes add nothing, and ``init`` enters each window once.

    Example:
        %y = reduce_window(%x, %zero) window_dimensions=[1,2] window_strides=[1,2] kind=add : \
f32[B,2]
    """
    operand, init = types
    check_reduction(operand, attrs.text("kind"))
    require(init is tensor(operand.dtype), f"init must be {operand.dtype.name}[]", 1)
    return (tensor(operand.dtype, window_places(operand, reduced_windows(attrs))),)


def source_windows(attrs: Attrs) -> list[Window]:
    """The windows of a ``select_and_scatter`` along each dimension of its operand."""
    sizes = attrs.integers("window_dimensions")
    rank = len(sizes)
    lists = [
        attrs.integers(key) or (default,) * rank
        for key, default in (("window_strides", 1), ("low", 0), ("high", 0))
    ]
    require(all(len(values) == rank for values in lists), f"needs {rank} numbers in each list")
    return [Window(*numbers) for numbers in zip(sizes, *lists, strict=True)]


def _source_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    found = passthrough_factors(operands, results, [_whole(w) for w in source_windows(attrs)])
    (dims,) = found.results
    return Factors(found.sizes, (dims, dims, ()), (dims,))


def _source_cost(operands: Types, results: Types, attrs: Attrs) -> tuple[Dim, Dim]:
    """A comparison per element of each window, and a combination per window."""
    return operands[1].size * (_taps(attrs) + 1), 0


@define(
    "select_and_scatter",
    "operand source init",
    *_WINDOW,
    attr("direction", choice("GE", "GT", "LE", "LT")),
    _KIND,
    factors=_source_factors,
    cost=_source_cost,
)
def _select_and_scatter(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """``init``, combined where each window of ``operand`` chooses an element with its ``source``.

    From the first element on, a window keeps the one it has while ``direction`` holds between it
    and the next. With GE and ``add`` it is the gradient of a maximum over windows.

    Example:
        %y = select_and_scatter(%x, %s, %zero) window_dimensions=[1,2] window_strides=[1,2] \
direction=GE kind=add : f32[B,4]
    """
    operand, source, init = types
    check_reduction(operand, attrs.text("kind"))
    legal = operand.dtype is source.dtype
    require(legal, f"element types differ: {operand.text} and {source.text}", 1)
    require(init is tensor(operand.dtype), f"init must be {operand.dtype.name}[]", 2)
    places = tensor(operand.dtype, window_places(operand, source_windows(attrs)))
    require(source is places, f"{places.text} windows and a source {source.text}", 1)
    return (operand,)
