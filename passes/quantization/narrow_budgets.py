"""Rounding budgets of weights, rows and caches in narrow numbers, by their element type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from graphgen.ir import DType
from graphgen.ir.dtype import f8e4m3, f8e4m3fn, f8e5m2, s4, s8

# The error of one product, over its size: for int8 a step is 1/127 of the largest weight, about 4.5
# deviations of a tensor, so 4.5 / (127 * sqrt(12)) = 0.010; a float of m bits of mantissa is off by
# 2**-m / sqrt(12) * sqrt(E[1 / x**2]), x in [1, 2) spread evenly in its logarithm: 0.0266 for
# f8e4m3, 0.053 for f8e5m2. On the path of two layers are 15 products: sqrt(15) as much. The largest
# of some thousand errors over the largest logit is more than that where attention turns to other
# tokens: in 250 random cells of the matrix, by median 0.7 times, at most 3.0 times for one scale a
# tensor of int8, and 2.2 times for 8-bit floats. The budget is 3.5 times, which a lognormal fit of
# each kind exceeds in less than one of 5,000. int4 has a step of 1 / 7.5 of the largest of 64
# weights, about 2.4 deviations: 0.092.
NARROW_BUDGETS: Final[Mapping[DType, float]] = {
    s8: 0.14,
    f8e4m3: 0.36,
    f8e4m3fn: 0.36,
    f8e5m2: 0.72,
    s4: 1.25,
}
