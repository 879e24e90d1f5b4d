"""Faults of adapters: slots, rows and sums."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import s32
from tests.planted.faults import (
    Fault,
    Row,
    again,
    assert_blamed,
    assert_right,
    ir,
    name_of,
)


def every_row(op: Op, b: Builder) -> Sequence[Value]:
    """A row without an adapter gets the nearest one."""
    x, at = op.operands
    return [again(op, b, x, b.clamp(b.literal(0, s32), at, b.literal(2, s32)))]


def outside_is_none(op: Op, b: Builder) -> Sequence[Value]:
    """Slots outside are -1, which gives zeros as well."""
    x, at = op.operands
    over = b.compare(at, b.full(3, at.type), "GE")
    return [again(op, b, x, b.select(over, b.full(-1, at.type), at))]


def last_is_first(op: Op, b: Builder) -> Sequence[Value]:
    """A slot beyond the last one starts again at the first."""
    x, at = op.operands
    return [again(op, b, x, b.remainder(at, b.full(3, at.type)))]


def of_first_row(op: Op, b: Builder) -> Sequence[Value]:
    """All rows of a batch get the adapter of the first."""
    x, at = op.operands
    first = b.broadcast_in_dim(b.slice_dim(at, 0, 0, 1), at.shape, [0])
    return [again(op, b, x, first)]


def without_base(op: Op, b: Builder) -> Sequence[Value]:
    """The product of the adapter in the place of the sum with that of the weight."""
    return [op.operands[1]]


def scaled_twice(op: Op, b: Builder) -> Sequence[Value]:
    """The product of the adapter twice."""
    x, delta = op.operands
    return [again(op, b, again(op, b, x, delta), delta)]


def sum_reversed(op: Op, b: Builder) -> Sequence[Value]:
    """The two products in the other order."""
    return [again(op, b, *op.operands[::-1])]


# Rows of x with adapters ``a`` [L,2,8] and ``b`` [L,6,2] of their slots.
ADAPTED = ir(
    "%a = take(%p, %i) dimension=0 : f32[4,2,8]",
    "%b = take(%q, %i) dimension=0 : f32[4,6,2]",
    "%h = dot_general(%a, %x) lhs_batch_dims=[0] rhs_batch_dims=[0] "
    "lhs_contracting_dims=[2] rhs_contracting_dims=[1] dtype=f32 : f32[4,2]",
    "%d = dot_general(%b, %h) lhs_batch_dims=[0] rhs_batch_dims=[0] "
    "lhs_contracting_dims=[2] rhs_contracting_dims=[1] dtype=f32 : f32[4,6]",
    "%m = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 "
    ": f32[4,6]",
    "%y = add(%m, %d) : f32[4,6]",
    x="f32[4,8]",
    w="f32[6,8]",
    p="f32[3,2,8]",
    q="f32[3,6,2]",
    i="s32[4]",
    y="f32[4,6]",
)


def second_factor(op: Op) -> bool:
    """Whether the op takes from the second factor of the adapters."""
    return op.operands[0].name == "q"


FAULTS: tuple[Row, ...] = (
    Fault(
        "nearest-adapter-for-none",
        ADAPTED,
        "take",
        every_row,
        outside_is_none,
        "huggingface/peft#2090",
    ),
    Fault(
        "slot-beyond-the-last-wraps",
        ADAPTED,
        "take",
        last_is_first,
        outside_is_none,
        where=second_factor,
    ),
    Fault(
        "adapter-of-the-first-row",
        ADAPTED,
        "take",
        of_first_row,
        outside_is_none,
        where=second_factor,
    ),
    Fault("weight-left-out", ADAPTED, "add", without_base, sum_reversed),
    Fault("adapter-added-twice", ADAPTED, "add", scaled_twice, sum_reversed),
)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_fault_is_found_and_its_rewrite_blamed(fault: Row):
    assert_blamed(fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_the_same_done_right_is_ok(fault: Row):
    assert_right(fault)
