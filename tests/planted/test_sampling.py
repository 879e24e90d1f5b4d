"""Faults of sampling: ties, sums of probabilities, orders and limits."""

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
    full,
    ir,
    name_of,
)


def all_that_tie(op: Op, b: Builder) -> Sequence[Value]:
    """Each element that is as great as the third one is kept, where ties make more than three."""
    x = b.function.arg("x")
    assert x is not None
    third = b.slice_dim(b.top_k(x, 3)[0], 1, 2, 3)
    wide = b.broadcast_in_dim(b.reshape(third, [2]), x.shape, [0])
    return [b.compare(x, wide, "GE")]


def first_left_out(op: Op, b: Builder) -> Sequence[Value]:
    """A token is kept if the sum with itself is below p: of a likely first token none is."""
    before = op.operands[0].producer("subtract")
    assert before is not None
    return [again(op, b, before.operands[0], op.operands[1])]


def sum_moved(op: Op, b: Builder) -> Sequence[Value]:
    """The sum before a token by the sum with it."""
    return [again(op, b, *op.operands)]


def last_of_greatest(op: Op, b: Builder) -> Sequence[Value]:
    """Of the greatest the last one."""
    (x,) = op.operands
    values, at = b.top_k(b.reverse(x, [1]), 1)
    return [values, b.subtract(b.full(7, at.type), at)]


def always_first(op: Op, b: Builder) -> Sequence[Value]:
    """The place of the greatest is 0."""
    values, at = b.top_k(op.operands[0], 1)
    return [values, b.full(0, at.type)]


def by_sort(op: Op, b: Builder) -> Sequence[Value]:
    """The greatest by a sort that keeps the order of equal ones."""
    (x,) = op.operands
    places = b.iota(s32, x.shape, 1)
    values, at = b.emit("sort", (x, places), {"dimension": 1, "descending": True}).results
    return [b.slice_dim(values, 1, 0, 1), b.slice_dim(at, 1, 0, 1)]


def unstable(op: Op, b: Builder) -> Sequence[Value]:
    """Sorted from the end, so that equal ones change places."""
    keys, others = (b.reverse(value, [1]) for value in op.operands)
    return b.emit(op.name, (keys, others), dict(op.attrs)).results


def limit_of_two(op: Op, b: Builder) -> Sequence[Value]:
    """A row gets two tokens at most."""
    proposals, limits, *others = op.operands
    fewer = b.minimum(limits, b.full(2, limits.type))
    return b.emit(op.name, (proposals, fewer, *others), dict(op.attrs)).results


def limit_as_stated(op: Op, b: Builder) -> Sequence[Value]:
    """A row gets three tokens at most, which are all."""
    proposals, limits, *others = op.operands
    fewer = b.minimum(limits, b.full(3, limits.type))
    return b.emit(op.name, (proposals, fewer, *others), dict(op.attrs)).results


X = "f32[2,8]"
ORDERED = ir(
    f"%y, %k = sort(%x, %i) dimension=1 descending=true : {X}, s32[2,8]",
    x=X,
    i="s32[2,8]",
    y=X,
    outputs=("y", "k : s32[2,8]"),
)
GREEDY = ir("%v, %y = top_k(%x) k=1 : f32[2,1], s32[2,1]", x=X, y="s32[2,1]")
# The places of the three greatest, as a mask over all.
KEPT = ir(
    "%v, %k = top_k(%x) k=3 : f32[2,3], s32[2,3]",
    "%a = broadcast_in_dim(%k) shape=[2,3,8] dimensions=[0,1] : s32[2,3,8]",
    "%b = iota() dimension=2 shape=[2,3,8] dtype=s32 : s32[2,3,8]",
    "%c = compare(%a, %b) direction=EQ : pred[2,3,8]",
    "%d = convert(%c) dtype=s32 : s32[2,3,8]",
    "%e = reduce(%d) dimensions=[1] kind=maximum : s32[2,8]",
    full("o", 1, "s32[2,8]"),
    "%y = compare(%e, %o) direction=EQ : pred[2,8]",
    x=X,
    y="pred[2,8]",
)
NUCLEUS = ir(
    f"%b = subtract(%s, %x) : {X}",
    "%w = broadcast_in_dim(%p) shape=[2,8] dimensions=[0] : f32[2,8]",
    "%y = compare(%b, %w) direction=LT : pred[2,8]",
    s=X,
    x=X,
    p="f32[2]",
    y="pred[2,8]",
)
ACCEPTED = ir(
    "%y, %n = accept(%a, %m, %i, %p, %j, %q, %r) : s32[2,3], s32[2]",
    a="s32[2,2]",
    m="s32[2]",
    i="s32[2,3,4]",
    p="f32[2,3,4]",
    j="s32[2,2,4]",
    q="f32[2,2,4]",
    r="f32[2,3,2]",
    y="s32[2,3]",
    outputs=("y", "n : s32[2]"),
)
FAULTS: tuple[Row, ...] = (
    Fault(
        "all-that-tie-are-kept",
        KEPT,
        "compare",
        all_that_tie,
        report="vllm-project/vllm#50979",
        where=lambda op: op.result.shape == (2, 8),
    ),
    Fault(
        "likely-first-token-left-out",
        NUCLEUS,
        "compare",
        first_left_out,
        sum_moved,
        "skyzh/tiny-llm#32",
    ),
    Fault("last-of-the-greatest", GREEDY, "top_k", last_of_greatest, by_sort),
    Fault(
        "greatest-is-the-first", GREEDY, "top_k", always_first, by_sort, "pytorch/pytorch#178964"
    ),
    Fault("equal-ones-change-places", ORDERED, "sort", unstable),
    Fault("two-tokens-at-most", ACCEPTED, "accept", limit_of_two, limit_as_stated),
)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_fault_is_found_and_its_rewrite_blamed(fault: Row):
    assert_blamed(fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_the_same_done_right_is_ok(fault: Row):
    assert_right(fault)
