"""Native kernels by plain ops."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.composites.native_kernels import decompose_native
from graphgen.eval import evaluate, numpy_dtype
from graphgen.ir import Function, dtype, tensor
from graphgen.ops.custom_calls import NativeCall


@pytest.mark.parametrize("kind", ["f32", "s32", "bf16"])
@pytest.mark.parametrize("axis", [0, -1])
def test_sums_of_all_before(kind: str, axis: int):
    function, type_ = Function("f"), tensor(dtype(kind), (3, 5))
    x = function.block.add_arg(type_, "x")
    made = decompose_native(Builder(function), NativeCall("cumsum", {"axis": axis}, (type_,)), [x])
    assert made is not None
    function.outputs = [("y", made[0])]
    given = (np.arange(15).reshape(3, 5) - 4).astype(numpy_dtype(dtype(kind)))
    found = evaluate(function, {"x": given})["y"]
    assert found.dtype == given.dtype
    np.testing.assert_array_equal(found.astype(int), given.astype(int).cumsum(axis))
