"""NumPy rule of convolution: its windows laid side by side, times the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import cast

import numpy as np

from graphgen.eval.arithmetic import Arithmetic, Array
from graphgen.eval.registry import eval_rule
from graphgen.eval.window import spread, windows_view
from graphgen.ir import Attrs
from graphgen.ops.convolution import dims_of
from graphgen.ops.window import CONVOLUTION, Window, windows_of


@eval_rule("convolution")
def _convolution(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Array:
    given, kernel, result = dims_of(attrs.text("dim_labels"))
    dtype = attrs.element("dtype")
    # As in `dot_general`: integers are summed in the result's type, small floats in f32.
    held = how.wide if how.wide is not None and how.wide in (x[0].dtype, x[1].dtype) else None
    kind = held or (how.dtype(dtype) if dtype.is_integer else how.accumulator(x[0]))
    lhs = x[0].astype(kind).transpose(given.order)
    rhs = x[1].astype(kind).transpose(kernel.order)
    groups, parts = attrs.integer("feature_group_count"), attrs.integer("batch_group_count")
    windows = windows_of(attrs, rhs.shape[2:], CONVOLUTION)
    # Batch groups and feature groups are the same: [groups, batch, features of one, spatial...].
    batch, features = lhs.shape[0] // parts, lhs.shape[1] // groups
    lhs = lhs.reshape(parts, batch, groups, features, *lhs.shape[2:])
    lhs = np.moveaxis(lhs, 2, 1).reshape(parts * groups, batch, features, *lhs.shape[4:])
    out = _grouped(lhs, rhs, windows)
    wanted = np.argsort(result.order)
    return out.transpose(tuple(wanted)).astype(held or how.dtype(dtype))


def _grouped(lhs: Array, rhs: Array, windows: Sequence[Window]) -> Array:
    """[batch, output features, places...] of [groups, batch, ...] and [i, o, ...]."""
    groups, batch, features = lhs.shape[:3]
    whole = [Window(1)] * 3
    places = [
        cast(int, w.places(size, "it")) for w, size in zip(windows, lhs.shape[3:], strict=True)
    ]
    held = spread(lhs, [*whole, *windows], 0)
    view = windows_view(held, [*whole, *windows], [groups, batch, features, *places])
    view = view.reshape(*view.shape[: 3 + len(places)], *rhs.shape[2:])
    # [groups, batch, places..., features, window...]
    count = len(places)
    order = [0, 1, *range(3, 3 + count), 2, *range(3 + count, 3 + 2 * count)]
    depth, made = prod(rhs.shape[2:]) * features, rhs.shape[1] // groups
    rows = view.transpose(order).reshape(groups, batch * prod(places), depth)
    taps = np.moveaxis(rhs, 1, -1).reshape(depth, groups, made).transpose(1, 0, 2)
    out = np.matmul(rows, taps).reshape(groups, batch, *places, made)
    # The output features of all groups, one group after the other.
    moved = out.transpose(1, 0, out.ndim - 1, *range(2, out.ndim - 1))
    return moved.reshape(batch, groups * made, *places)
