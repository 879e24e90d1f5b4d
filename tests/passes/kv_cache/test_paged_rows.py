"""Plain rows into blocks and back."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.eval import Array, evaluate
from graphgen.ir import Function, TensorType, tensor
from graphgen.ir.dtype import f32
from graphgen.passes.kv_cache.paged_layout import PagedRows


def packed(layout: PagedRows, plain: Array, table: Array) -> Array:
    """The blocks of f32 rows."""
    function = Function("f")

    def given(name: str, type_: TensorType):
        return function.block.add_arg(type_, name)

    rows, slots = given("rows", tensor(f32, plain.shape)), given("table", layout.table)
    function.outputs = [("blocks", layout.pack(Builder(function), rows, slots))]
    return evaluate(function, {"rows": plain, "table": table})["blocks"]


@pytest.mark.parametrize("slots", [6, 8])
def test_the_last_block_of_a_row_may_be_part_of_one(slots: int):
    plain = np.arange(1, 2 * slots * 3 + 1, dtype=np.float32).reshape(2, slots, 1, 3)
    table = np.array([[4, 0], [2, -1]], np.int32)
    found = packed(PagedRows(2, slots, 4, 5), plain, table)
    wanted = np.zeros((5, 4, 1, 3), np.float32)
    wanted[4], wanted[2] = plain[0, :4], plain[1, :4]
    wanted[0, : slots - 4] = plain[0, 4:]
    np.testing.assert_array_equal(found, wanted)
