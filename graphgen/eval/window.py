"""Windows of an array as a view with one more dimension for each of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from graphgen.eval.arithmetic import Array
from graphgen.ops.window import Window


def spread(x: Array, windows: Sequence[Window], fill: object) -> Array:
    """``x`` with the holes of its dilation and its padding filled, and cut where that is negative.

    Args:
        x: as many dimensions as windows.
        windows: one for each dimension.
        fill: the element of holes and padding.
    """
    shape: list[int] = []
    target: list[slice] = []
    source: list[slice] = []
    for size, window in zip(x.shape, windows, strict=True):
        step, low = window.base_dilation, window.low
        held = (size - 1) * step + 1 if size else 0
        shape.append(held + low + window.high)
        # The first and the last element that are not cut off.
        first = max(0, -(low // step)) if low < 0 else 0
        last = min(size - 1, (shape[-1] - 1 - low) // step)
        count = max(0, last - first + 1)
        start = low + first * step
        source.append(slice(first, first + count))
        target.append(slice(start, start + count * step, step) if count else slice(0, 0))
    out = np.full(shape, fill, x.dtype)
    out[tuple(target)] = x[tuple(source)]
    return out


def windows_view(x: Array, windows: Sequence[Window], counts: Sequence[int]) -> Array:
    """All windows of an array that :func:`spread` made: [places..., elements of the window...].

    Args:
        x: as many dimensions as windows.
        windows: one for each dimension.
        counts: how often the window fits each dimension.
    """
    sizes = [cast(int, window.size) for window in windows]
    strides = [step * w.stride for step, w in zip(x.strides, windows, strict=True)]
    strides += [step * w.window_dilation for step, w in zip(x.strides, windows, strict=True)]
    if 0 in counts:
        return np.zeros((*counts, *sizes), x.dtype)
    view = np.lib.stride_tricks.as_strided(x, (*counts, *sizes), strides, writeable=False)
    backward = [axis for axis, window in enumerate(windows, len(windows)) if window.reversal]
    return np.flip(view, tuple(backward)) if backward else view
