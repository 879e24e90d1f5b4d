"""Faults of collectives: groups, order, kinds and what is moved across them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from graphgen.build import Builder
from graphgen.ir import Op, Value
from tests.planted.faults import (
    Fault,
    Row,
    again,
    assert_blamed,
    assert_right,
    ir,
    name_of,
)


def over_all_ranks(op: Op, b: Builder) -> Sequence[Value]:
    """The groups are ignored: all ranks are one."""
    return b.emit(op.name, op.operands, {**op.attrs, "replica_groups": ((0, 1, 2, 3),)}).results


def other_groups(op: Op, b: Builder) -> Sequence[Value]:
    """Ranks in strides, where neighbours are grouped."""
    return b.emit(op.name, op.operands, {**op.attrs, "replica_groups": ((0, 2), (1, 3))}).results


def groups_in_another_order(op: Op, b: Builder) -> Sequence[Value]:
    """The groups themselves in another order, which is the same."""
    return b.emit(op.name, op.operands, {**op.attrs, "replica_groups": ((2, 3), (0, 1))}).results


def ranks_in_another_order(op: Op, b: Builder) -> Sequence[Value]:
    """The ranks of each group in another order."""
    return b.emit(op.name, op.operands, {**op.attrs, "replica_groups": ((1, 0), (3, 2))}).results


def greatest(op: Op, b: Builder) -> Sequence[Value]:
    """The greatest operand in the place of the sum."""
    return b.emit(op.name, op.operands, {**op.attrs, "kind": "maximum"}).results


def other_way(op: Op, b: Builder) -> Sequence[Value]:
    """Each rank sends to the one before it."""
    pairs = tuple((target, source) for source, target in RING)
    return [b.collective_permute(op.operands[0], pairs)]


def pairs_reversed(op: Op, b: Builder) -> Sequence[Value]:
    """The same pairs in another order."""
    return [b.collective_permute(op.operands[0], RING[::-1])]


def before_the_sum(op: Op, b: Builder) -> Sequence[Value]:
    """A function that is not linear moved before a sum over ranks."""
    total = op.operands[0].producer("all_reduce")
    assert total is not None
    inner = again(op, b, total.operands[0])
    return b.emit("all_reduce", [inner], dict(total.attrs)).results


def scattered_then_gathered(op: Op, b: Builder) -> Sequence[Value]:
    """A sum over ranks as its two halves."""
    groups = ((0, 1), (2, 3))
    part = b.reduce_scatter(op.operands[0], groups, 0)
    return [b.all_gather(part, groups, 0)]


def scattered_apart(op: Op, b: Builder) -> Sequence[Value]:
    """The halves of a sum over ranks, gathered in another order."""
    part = b.reduce_scatter(op.operands[0], ((0, 1), (2, 3)), 0)
    return [b.all_gather(part, ((1, 0), (3, 2)), 0)]


RING = ((0, 1), (1, 2), (2, 3), (3, 0))
PAIRS = "replica_groups=[[0,1],[2,3]]"


X = "f32[4,6]"
# Numbers that each rank has of its own.
OWN = f"""\
%f = convert(%rank) dtype=f32 : f32[1]
%g = reshape(%f) shape=[] : f32[]
%h = broadcast_in_dim(%g) shape=[4,6] : {X}
%a = multiply(%x, %h) : {X}
%o = add(%a, %x) : {X}"""


def on_ranks(*lines: str, y: str = X) -> str:
    """A program of four ranks, of which each multiplies ``%x`` by its number and one."""
    text = ir(OWN, *lines, rank="s32[1]", x=X, y=y)
    text = text.replace("level=logical", "level=sharded mesh=tp:4")
    return text.replace("  input %rank : s32[1]\n", "", 1)


SUM = on_ranks(f"%s = all_reduce(%o) kind=add {PAIRS} : {X}", f"%y = tanh(%s) : {X}")
JOINED = on_ranks(f"%y = all_gather(%o) dimension=0 {PAIRS} : f32[8,6]", y="f32[8,6]")
PASSED = on_ranks(
    f"%y = collective_permute(%o) source_target_pairs=[[0,1],[1,2],[2,3],[3,0]] : {X}"
)
FAULTS: tuple[Row, ...] = (
    Fault(
        "groups-ignored",
        SUM,
        "all_reduce",
        over_all_ranks,
        groups_in_another_order,
        "aws-neuron/aws-neuron-sdk#1107",
    ),
    Fault("other-groups", SUM, "all_reduce", other_groups, groups_in_another_order),
    Fault("greatest-for-sum", SUM, "all_reduce", greatest),
    Fault(
        "gathered-in-another-order",
        JOINED,
        "all_gather",
        ranks_in_another_order,
        groups_in_another_order,
    ),
    Fault("ring-the-other-way", PASSED, "collective_permute", other_way, pairs_reversed),
    Fault("function-before-the-sum", SUM, "tanh", before_the_sum),
    Fault(
        "halves-joined-in-another-order",
        SUM,
        "all_reduce",
        scattered_apart,
        scattered_then_gathered,
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_fault_is_found_and_its_rewrite_blamed(fault: Row):
    assert_blamed(fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_the_same_done_right_is_ok(fault: Row):
    assert_right(fault)
