"""Integers in digits: taken apart, stacked as f32, and put together again."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.eval import evaluate
from graphgen.ir import Function, dtype, tensor
from graphgen.passes.legalize.limb_arithmetic import digits, stacked, unstacked, whole


@pytest.mark.parametrize(("kind", "width", "count"), [("s8", 8, 1), ("s32", 8, 4), ("u32", 12, 3)])
def test_digits_are_rows_of_f32_and_give_the_integers_back(kind: str, width: int, count: int):
    function = Function("f")
    x = function.block.add_arg(tensor(dtype(kind), (2, 3)), "x")
    b = Builder(function)
    rows = stacked(b, digits(b, x, width))
    y = whole(b, unstacked(b, rows), width, x.dtype)
    function.outputs = [("rows", rows), ("y", y)]
    limits = np.iinfo(np.dtype({"s8": "i1", "s32": "i4", "u32": "u4"}[kind]))
    given = np.array([[0, 1, 77], [limits.min, limits.max, limits.max // 3]], limits.dtype)
    found = evaluate(function, {"x": given})
    assert rows.type is tensor(dtype("f32"), (count, 2, 3))
    np.testing.assert_array_equal(found["y"], given)
    places = 256.0 if width == 8 else 4096.0
    weights = places ** np.arange(count)
    sums = np.tensordot(weights, found["rows"].astype(np.float64), 1)
    np.testing.assert_array_equal(sums[0], given[0])
