"""Faults that one position, row, slot, id or layer of a model shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from graphgen.build import Builder
from graphgen.ir import Module, Op, Value
from graphgen.ir.dtype import s32
from tests.oracles.planted_bugs import model
from tests.planted.faults import (
    Fault,
    Row,
    again,
    assert_blamed,
    assert_right,
    in_scope,
    mini,
    name_of,
)

SPECIALIZED = "specialize{batch=[3],context=[8],tokens=[16]}"
OF_FIVE = "specialize{batch=[5],context=[8],tokens=[8]}"


def at_position(number: int) -> Callable[[Op, Builder], Sequence[Value]]:
    """A mask that hides slot 0 from the token of one position."""

    def made(op: Op, b: Builder) -> Sequence[Value]:
        mask, kind = again(op, b, *op.operands), op.result.type
        positions = b.broadcast_in_dim(op.operands[0], kind.shape, [0, 1])
        there = b.compare(positions, b.full(number, positions.type), "EQ")
        slots = b.iota(s32, kind.shape, 2)
        first = b.compare(slots, b.full(0, slots.type), "EQ")
        return [b.and_(mask, b.not_(b.and_(there, first)))]

    return made


def row_reads_another(number: int) -> Callable[[Op, Builder], Sequence[Value]]:
    """One row of a batch reads the row before it."""

    def made(op: Op, b: Builder) -> Sequence[Value]:
        x, rows = op.operands
        size = rows.shape[0]
        assert isinstance(size, int)
        at = b.iota(s32, [size], 0)
        here = b.compare(at, b.full(number, at.type), "EQ")
        before = b.concatenate([b.slice_dim(rows, 0, 0, 1), b.slice_dim(rows, 0, 0, size - 1)], 0)
        return [again(op, b, x, b.select(here, before, rows))]

    return made


def slot_not_written(number: int) -> Callable[[Op, Builder], Sequence[Value]]:
    """Nothing is written to one slot."""

    def made(op: Op, b: Builder) -> Sequence[Value]:
        cache, new, rows, slots = op.operands
        here = b.compare(slots, b.full(number, slots.type), "EQ")
        return [again(op, b, cache, new, rows, b.select(here, b.full(-1, slots.type), slots))]

    return made


def far_positions_wrap(op: Op, b: Builder) -> Sequence[Value]:
    """Rotated by the position without its higher bits, from 1024 on."""
    x, cos, _ = op.operands
    table = cos.producer("rope_table")
    assert table is not None
    near = b.and_(table.operands[0], b.full(1023, table.operands[0].type))
    tables = b.emit("rope_table", [near], dict(table.attrs)).results
    return [again(op, b, x, *tables)]


def far_positions_kept(op: Op, b: Builder) -> Sequence[Value]:
    """Rotated by tables of the same positions."""
    x, cos, _ = op.operands
    table = cos.producer("rope_table")
    assert table is not None
    tables = b.emit("rope_table", table.operands, dict(table.attrs)).results
    return [again(op, b, x, *tables)]


def last_id_is_another(op: Op, b: Builder) -> Sequence[Value]:
    """The last row of the table is never read."""
    table, ids = op.operands
    size = table.shape[0]
    assert isinstance(size, int)
    return [again(op, b, table, b.minimum(ids, b.full(size - 2, ids.type)))]


def ids_clamped(op: Op, b: Builder) -> Sequence[Value]:
    """Ids are clamped to the table, as the op does it."""
    table, ids = op.operands
    size = table.shape[0]
    assert isinstance(size, int)
    return [again(op, b, table, b.minimum(ids, b.full(size - 1, ids.type)))]


def small(pipeline: str) -> Callable[[], Module]:
    """A Llama that is smaller than the mini twin, after some passes."""
    return lambda: model(pipeline)


ATTENTION_1 = in_scope("model.layers.1.self_attn")
LLAMA = "llama-3.1-8b"
FAULTS: tuple[Row, ...] = (
    Fault(
        "one-position-in-decode",
        small(SPECIALIZED),
        "attention_mask",
        at_position(13),
        program="decode.b3.c16",
    ),
    Fault(
        "one-position-in-prefill",
        small(SPECIALIZED),
        "attention_mask",
        at_position(5),
        program="prefill.b3.s8",
    ),
    Fault(
        "last-row-of-five",
        small(OF_FIVE),
        "cache_read",
        row_reads_another(4),
        where=ATTENTION_1,
        program="decode.b5.c8",
    ),
    Fault(
        "last-slot-of-the-bucket",
        small(SPECIALIZED),
        "kv_update",
        slot_not_written(15),
        where=ATTENTION_1,
        program="decode.b3.c16",
    ),
    Fault(
        "far-positions-in-layer-1",
        mini(LLAMA),
        "rope",
        far_positions_wrap,
        far_positions_kept,
        where=ATTENTION_1,
        program="decode",
    ),
    Fault(
        "last-id-of-the-vocabulary",
        small(SPECIALIZED),
        "embedding",
        last_id_is_another,
        ids_clamped,
        program="prefill.b3.s8",
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
