"""Builder methods of the ops that move a window over their operand."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build.elementwise_methods import ElementwiseMethods
from graphgen.ir import AttrValue, DType, Value
from graphgen.ops.windows.window import or_default

# Elements before and after each dimension.
Padding = Sequence[tuple[int, int]]


def edges(padding: Padding) -> dict[str, AttrValue]:
    """The attributes ``low`` and ``high`` of a list of pairs."""
    low, high = ([pair[side] for pair in padding] for side in (0, 1))
    return {"low": or_default(low, 0), "high": or_default(high, 0)}


class WindowMethods(ElementwiseMethods):
    """Methods that append convolutions and reductions of windows."""

    def reduce_window(
        self,
        x: Value,
        init: Value,
        kind: str,
        sizes: Sequence[int],
        strides: Sequence[int] = (),
        padding: Padding = (),
    ) -> Value:
        """Combine the elements of each window, and ``init``, by add, maximum, ...

        Args:
            x: the operand.
            init: a scalar that enters each window once.
            kind: as for ``reduce``.
            sizes: of the window, one number a dimension, as for the others.
            strides: from one place of the window to the next; 1 by default.
            padding: elements before and after each dimension; 0 by default.
        """
        attrs: dict[str, AttrValue] = {
            "window_dimensions": tuple(sizes),
            "window_strides": or_default(strides, 1),
            "kind": kind,
        }
        return self._one("reduce_window", x, init, **attrs, **edges(padding))

    def convolution(
        self,
        lhs: Value,
        rhs: Value,
        dim_labels: str,
        *,
        strides: Sequence[int] = (),
        padding: Padding = (),
        lhs_dilation: Sequence[int] = (),
        rhs_dilation: Sequence[int] = (),
        reversal: Sequence[int] = (),
        feature_groups: int = 1,
        batch_groups: int = 1,
        dtype: DType | None = None,
    ) -> Value:
        """Sum of products of the kernel ``rhs`` with each window of ``lhs``.

        Args:
            lhs: the input.
            rhs: the kernel.
            dim_labels: dimensions of both and of the result, as in ``bf0_oi0->bf0`` (PyTorch's)
                or ``b01f_01io->b01f`` (JAX's, of images).
            strides: one number a spatial dimension, as for the others; 1 by default.
            padding: zeros before and after each spatial dimension; 0 by default.
            lhs_dilation: from one element of the input to the next; 1 by default.
            rhs_dilation: from one element of the kernel to the next; 1 by default.
            reversal: 1 where the kernel is read backward.
            feature_groups: parts of the features that have kernels of their own.
            batch_groups: parts of the batch that have kernels of their own.
            dtype: of the result, by default that of ``lhs``.
        """
        return self._one(
            "convolution",
            lhs,
            rhs,
            dim_labels=dim_labels,
            window_strides=or_default(strides, 1),
            **edges(padding),
            lhs_dilation=or_default(lhs_dilation, 1),
            rhs_dilation=or_default(rhs_dilation, 1),
            window_reversal=or_default([int(item) for item in reversal], 0),
            feature_group_count=feature_groups,
            batch_group_count=batch_groups,
            dtype=dtype or lhs.dtype,
        )
