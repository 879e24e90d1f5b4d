"""Rows in the order of a sort: what is followed through the sort itself."""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.ir import Function, tensor
from graphgen.ir.dtype import s32
from graphgen.passes.raising.row_order import Axis, Followed, SortedAxis, under_order


def test_sorted_numbers_are_the_numbers_and_their_order_is_not():
    function = Function("f")
    b = Builder(function)
    numbers = function.block.add_arg(tensor(s32, (6,)), "numbers")
    ordered, order = b.sort([numbers, b.iota(s32, [6], 0)], 0)
    assert ordered.op is not None
    axes = Axis(3), Axis(2)
    rows = SortedAxis(6, ordered.op, axes)
    assert under_order(Followed(ordered, ((rows,),))) == Followed(numbers, (axes,))
    assert under_order(Followed(order, ((rows,),))) is None
    # Nothing is known of the order in which another sort puts them.
    again, _ = b.sort([numbers, b.iota(s32, [6], 0)], 0)
    assert under_order(Followed(again, ((rows,),))) is None
