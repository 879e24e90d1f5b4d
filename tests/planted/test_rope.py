"""Faults of rotary positions: narrow types, pairs, directions and order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from graphgen.build import Builder
from graphgen.ir import Literal, Op, Value
from graphgen.ir.dtype import bf16, f32, f64, s32
from tests.planted.faults import (
    Fault,
    Row,
    again,
    assert_blamed,
    assert_right,
    in_scope,
    ir,
    mini,
    name_of,
)


def positions_in_bf16(op: Op, b: Builder) -> Sequence[Value]:
    """Positions rounded to bf16, which holds eight bits: 257 becomes 256."""
    rounded = b.convert(b.convert(b.convert(op.operands[0], bf16), f32), s32)
    return b.emit(op.name, [rounded], dict(op.attrs)).results


def positions_in_f64(op: Op, b: Builder) -> Sequence[Value]:
    """Positions by way of f64, which holds all of them."""
    kept = b.convert(b.convert(op.operands[0], f64), s32)
    return b.emit(op.name, [kept], dict(op.attrs)).results


def frequencies_in_bf16(op: Op, b: Builder) -> Sequence[Value]:
    """Frequencies rounded to bf16."""
    rounded = Literal.of(f32, [1.0, 0.10009765625, 0.010009765625, 0.00099945068359375])
    return b.emit(op.name, op.operands, {**op.attrs, "inv_freq": rounded}).results


def neighbours(op: Op, b: Builder) -> Sequence[Value]:
    """Pairs of neighbours in the place of halves."""
    return b.emit(op.name, op.operands, {**op.attrs, "pairs": "neighbors"}).results


def backwards(op: Op, b: Builder) -> Sequence[Value]:
    """Rotated the other way."""
    x, cos, sin = op.operands
    return [again(op, b, x, cos, b.negate(sin))]


def not_rotated(op: Op, b: Builder) -> Sequence[Value]:
    """The key before its rotation is written to the cache."""
    cache, new, *places = op.operands
    rope = new.producer("rope")
    assert rope is not None
    return [again(op, b, cache, rope.operands[0], *places)]


def one_position_late(op: Op, b: Builder) -> Sequence[Value]:
    """Tables of the position before, but of the first one."""
    (x,) = op.operands
    late = b.maximum(b.subtract(x, b.full(1, x.type)), b.minimum(x, b.full(0, x.type)))
    return b.emit(op.name, [late], dict(op.attrs)).results


def negated_far(op: Op, b: Builder, times: int) -> Sequence[Value]:
    """The sines of positions from 40,000 on, negated some times."""
    x, cos, sin = op.operands
    positions = next(arg for arg in b.function.args if arg.name == "positions")
    far = b.compare(positions, b.full(40_000, positions.type), "GE")
    other = sin
    for _ in range(times):
        other = b.negate(other)
    return [again(op, b, x, cos, b.select(b.broadcast_in_dim(far, sin.shape, [0, 1]), other, sin))]


def backwards_far(op: Op, b: Builder) -> Sequence[Value]:
    """Far positions are rotated the other way."""
    return negated_far(op, b, 1)


def as_it_is_far(op: Op, b: Builder) -> Sequence[Value]:
    """Far positions are rotated by sines negated twice."""
    return negated_far(op, b, 2)


FREQUENCIES = "inv_freq=f32[4](1.0,0.1,0.01,0.001)"
TABLE = ir(
    f"%y, %s = rope_table(%p) {FREQUENCIES} : f32[2,3,4], f32[2,3,4]",
    p="s32[2,3]",
    y="f32[2,3,4]",
    outputs=("y", "s"),
)
ROTATED = ir(
    "%y = rope(%x, %c, %s) : f32[2,3,2,8]",
    x="f32[2,3,2,8]",
    c="f32[2,3,4]",
    s="f32[2,3,4]",
    y="f32[2,3,2,8]",
)
WRITTEN = ir(
    "%k = rope(%x, %c, %s) : f32[2,3,2,8]",
    "%y = kv_update(%b, %k, %r, %p) : f32[4,9,2,8]",
    x="f32[2,3,2,8]",
    c="f32[2,3,4]",
    s="f32[2,3,4]",
    b="f32[4,9,2,8]",
    r="s32[2]",
    p="s32[2,3]",
    y="f32[4,9,2,8]",
)
FAULTS: tuple[Row, ...] = (
    Fault(
        "positions-in-bf16",
        TABLE,
        "rope_table",
        positions_in_bf16,
        positions_in_f64,
        "huggingface/candle#3520",
        rounding=1e-6,
    ),
    Fault(
        "frequencies-in-bf16",
        TABLE,
        "rope_table",
        frequencies_in_bf16,
        report="sgl-project/sglang-jax#1472",
        rounding=1e-6,
    ),
    Fault("neighbours-paired", ROTATED, "rope", neighbours),
    Fault("rotated-backwards", ROTATED, "rope", backwards),
    Fault(
        "key-written-before-its-rotation",
        WRITTEN,
        "kv_update",
        not_rotated,
        report="iree-org/iree#22175",
    ),
    Fault("tables-one-position-late", TABLE, "rope_table", one_position_late),
    # The queries depend on the sines, through the layer before, and on weights besides.
    Fault(
        "last-layer-backwards-far",
        mini("llama-3.1-8b"),
        "rope",
        backwards_far,
        as_it_is_far,
        where=in_scope("model.layers.1.self_attn"),
        program="decode",
        reached=False,
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
