"""Faults of caches: slots, rows, rings, blocks and the order of writes and reads."""

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


def padding_in_first_slot(op: Op, b: Builder) -> Sequence[Value]:
    """A padding token, of slot -1, is written to slot 0."""
    cache, new, rows, slots = op.operands
    return [again(op, b, cache, new, rows, b.maximum(slots, b.full(0, slots.type)))]


def padding_far_outside(op: Op, b: Builder) -> Sequence[Value]:
    """A padding token is written far beyond the cache, which is dropped as well."""
    cache, new, rows, slots = op.operands
    outside = b.compare(slots, b.full(0, slots.type), "LT")
    far = b.select(outside, b.full(1000, slots.type), slots)
    return [again(op, b, cache, new, rows, far)]


def idle_row_is_last(op: Op, b: Builder) -> Sequence[Value]:
    """An idle row, of number R, is written to the last row."""
    cache, new, rows, slots = op.operands
    return [again(op, b, cache, new, b.minimum(rows, b.full(2, rows.type)), slots)]


def before_the_update(op: Op, b: Builder) -> Sequence[Value]:
    """The cache as it was before this call."""
    update = op.operands[0].producer("kv_update")
    assert update is not None
    return [again(op, b, update.operands[0], *op.operands[1:])]


def ring_rolled_early(op: Op, b: Builder) -> Sequence[Value]:
    """The ring goes on to the next slot one position before it is full."""
    x, size = op.operands
    full_ring = b.compare(x, b.full(7, x.type), "GE")
    moved = b.add(x, b.convert(full_ring, s32))
    return [again(op, b, moved, size)]


def ring_by_quotient(op: Op, b: Builder) -> Sequence[Value]:
    """The slot of a ring by its definition."""
    x, size = op.operands
    return [b.subtract(x, b.multiply(b.divide(x, size), size))]


def last_slot_lost(op: Op, b: Builder) -> Sequence[Value]:
    """Nothing is written to the last slot."""
    cache, new, rows, slots = op.operands
    last = b.compare(slots, b.full(8, slots.type), "EQ")
    return [again(op, b, cache, new, rows, b.select(last, b.full(-1, slots.type), slots))]


def reads_what_it_wrote(op: Op, b: Builder) -> Sequence[Value]:
    """Rows moved down in place, first row first, so that each is the first one."""
    x = op.operands[0]
    first = b.slice_dim(x, 0, 0, 1)
    return [b.concatenate([first] * 4, 0)]


def moved_by_slices(op: Op, b: Builder) -> Sequence[Value]:
    """Rows moved down by one."""
    x = op.operands[0]
    return [b.concatenate([b.slice_dim(x, 0, 0, 1), b.slice_dim(x, 0, 0, 3)], 0)]


def block_of_the_neighbour(op: Op, b: Builder) -> Sequence[Value]:
    """The first token of a block is read from the block before."""
    x, block = op.operands
    at_border = b.compare(b.remainder(x, block), b.full(0, x.type), "EQ")
    moved = b.subtract(x, b.convert(at_border, s32))
    return [again(op, b, moved, block)]


CACHE, NEW = "f32[3,9,2,4]", "f32[2,3,2,4]"
WRITE = ir(
    f"%y = kv_update(%c, %x, %r, %p) : {CACHE}", c=CACHE, x=NEW, r="s32[2]", p="s32[2,3]", y=CACHE
)
READ = ir(
    f"%n = kv_update(%c, %x, %r, %p) : {CACHE}",
    "%y = cache_read(%n, %r) attended=6 : f32[2,6,2,4]",
    c=CACHE,
    x=NEW,
    r="s32[2]",
    p="s32[2,3]",
    y="f32[2,6,2,4]",
)
# Positions of a cache are 0 and more.
RING = ir(
    full("z", 0, "s32[16]"),
    full("c", 8, "s32[16]"),
    "%a = maximum(%p, %z) : s32[16]",
    "%y = remainder(%a, %c) : s32[16]",
    p="s32[16]",
    y="s32[16]",
)
FAULTS: tuple[Row, ...] = (
    Fault(
        "padding-in-the-first-slot", WRITE, "kv_update", padding_in_first_slot, padding_far_outside
    ),
    Fault("idle-row-is-the-last", WRITE, "kv_update", idle_row_is_last),
    Fault("last-slot-lost", WRITE, "kv_update", last_slot_lost),
    Fault("read-before-the-update", READ, "cache_read", before_the_update),
    Fault(
        "ring-rolled-early",
        RING,
        "remainder",
        ring_rolled_early,
        ring_by_quotient,
        "huggingface/transformers#37574",
    ),
    Fault(
        "block-of-the-neighbour",
        RING.replace("remainder(%a", "divide(%a"),
        "divide",
        block_of_the_neighbour,
    ),
    Fault(
        "update-reads-what-it-wrote",
        ir(
            "%o = constant() value=s32[](1) : s32[]",
            "%z = constant() value=s32[](0) : s32[]",
            "%u = slice(%x) start_indices=[0,0] limit_indices=[3,2] : f32[3,2]",
            "%y = dynamic_update_slice(%x, %u, %o, %z) : f32[4,2]",
            x="f32[4,2]",
            y="f32[4,2]",
        ),
        "dynamic_update_slice",
        reads_what_it_wrote,
        moved_by_slices,
        "openxla/xla#49176",
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
