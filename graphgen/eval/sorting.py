"""NumPy rules of sorting ops, which have several results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphgen.eval.arithmetic import Arithmetic, Array, is_integer, name_of, widened
from graphgen.eval.registry import multi_result_rule
from graphgen.ir import Attrs

# Floats whose bytes do not begin with a sign.
_WITHOUT_SIGN_BIT = {"f4e2m1fn", "f6e2m3fn", "f6e3m2fn", "f8e8m0fnu"}


def places_in_order(x: Array, axis: int, *, descending: bool) -> Array:
    """Along ``axis``, where the elements in order come from; equal ones stay as they are.

    Floats are ordered by their bits, which is IEEE 754's total order: those of a negative number
    are turned, all but the sign.
    """
    if x.dtype.kind in "iu":
        key = x
    elif is_integer(x.dtype):
        key = widened(x)
    else:
        if name_of(x.dtype) in _WITHOUT_SIGN_BIT:
            x = x.astype(np.float32)
        bits = np.ascontiguousarray(x).view(np.dtype(f"i{x.dtype.itemsize}"))
        key = np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)
    return np.argsort(np.invert(key) if descending else key, axis, kind="stable")


@multi_result_rule("sort")
def _sort(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    axis, descending = attrs.integer("dimension"), attrs["descending"] is True
    order = places_in_order(x[0], axis, descending=descending)
    return [np.take_along_axis(item, order, axis) for item in x]
