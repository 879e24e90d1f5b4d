"""Faults of masks: hidden slots, windows, chunks and rows without a slot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import f32
from tests.planted.faults import (
    Fault,
    Row,
    assert_blamed,
    assert_right,
    full,
    ir,
    name_of,
)


def infinite(op: Op, b: Builder) -> Sequence[Value]:
    """Masked scores are -inf: a row without a slot is NaN."""
    return [b.full(float("-inf"), op.result.type)]


def lowest(op: Op, b: Builder) -> Sequence[Value]:
    """Masked scores are the lowest finite number."""
    return [b.full(float(np.finfo(np.float32).min), op.result.type)]


def multiplied(op: Op, b: Builder) -> Sequence[Value]:
    """Hidden values as a product with 0, which keeps NaN and infinities."""
    mask, values, _ = op.operands
    return [b.multiply(values, b.convert(mask, f32))]


def wider_window(op: Op, b: Builder) -> Sequence[Value]:
    """A window of one position more."""
    return b.emit(op.name, op.operands, {**op.attrs, "window": 4}).results


def by_formula(op: Op, b: Builder) -> Sequence[Value]:
    """The window by comparisons."""
    positions, keys = op.operands
    kind = op.result.shape
    p = b.broadcast_in_dim(positions, kind, [0, 1])
    k = b.broadcast_in_dim(keys, kind, [0, 2])
    inside = b.and_(b.compare(k, p, "LE"), b.compare(k, b.full(0, k.type), "GE"))
    return [b.and_(inside, b.compare(k, b.subtract(p, b.full(3, p.type)), "GT"))]


def empty_slots_read(op: Op, b: Builder) -> Sequence[Value]:
    """An empty slot, of position -1, is read."""
    positions, keys = op.operands
    kind = op.result.shape
    p = b.broadcast_in_dim(positions, kind, [0, 1])
    k = b.broadcast_in_dim(keys, kind, [0, 2])
    window = b.compare(k, b.subtract(p, b.full(3, p.type)), "GT")
    return [b.and_(b.compare(k, p, "LE"), window)]


def without_itself(op: Op, b: Builder) -> Sequence[Value]:
    """A token does not read its own slot."""
    return [b.compare(op.operands[0], op.operands[1], "LT")]


def earlier_chunks(op: Op, b: Builder) -> Sequence[Value]:
    """Chunks before that of the token are read, too."""
    positions, keys = op.operands
    kind = op.result.shape
    p, k = (
        b.divide(value, b.full(4, value.type))
        for value in (
            b.broadcast_in_dim(positions, kind, [0, 1]),
            b.broadcast_in_dim(keys, kind, [0, 2]),
        )
    )
    plain = b.emit(op.name, op.operands, {**op.attrs, "chunk": 0}).result
    return [b.and_(plain, b.compare(p, k, "GE"))]


def softmax(masked: str) -> str:
    """A softmax of scores under a mask."""
    return ir(
        f"%l = broadcast_in_dim({masked}) shape=[4,6] : f32[4,6]",
        "%s = select(%m, %x, %l) : f32[4,6]",
        "%h = reduce(%s) dimensions=[1] kind=maximum : f32[4]",
        "%w = broadcast_in_dim(%h) shape=[4,6] dimensions=[0] : f32[4,6]",
        "%d = subtract(%s, %w) : f32[4,6]",
        "%e = exponential(%d) : f32[4,6]",
        "%t = reduce(%e) dimensions=[1] kind=add : f32[4]",
        "%v = broadcast_in_dim(%t) shape=[4,6] dimensions=[0] : f32[4,6]",
        "%y = divide(%e, %v) : f32[4,6]",
        x="f32[4,6]",
        m="pred[4,6]",
        y="f32[4,6]",
    ).replace("  %l =", "  %l.0 = constant() value=f32[](-3.4028234663852886e+38) : f32[]\n  %l =")


MASK = ir(
    "%y = attention_mask(%p, %k) window=3 : pred[2,3,8]",
    p="s32[2,3]",
    k="s32[2,8]",
    y="pred[2,3,8]",
)
FAULTS: tuple[Row, ...] = (
    Fault(
        "row-without-a-slot",
        softmax("%l.0"),
        "broadcast_in_dim",
        infinite,
        lowest,
        "pytorch/pytorch#103963",
        where=lambda op: op.operands[0].name == "l.0",
    ),
    Fault(
        "hidden-values-multiplied",
        ir(
            full("c", 0.0, "f32[4,6]"),
            "%y = select(%m, %x, %c) : f32[4,6]",
            x="f32[4,6]",
            m="pred[4,6]",
            y="f32[4,6]",
        ),
        "select",
        multiplied,
        report="pytorch/pytorch#101967",
    ),
    Fault("window-of-one-more", MASK, "attention_mask", wider_window, by_formula),
    Fault("empty-slots-read", MASK, "attention_mask", empty_slots_read, by_formula),
    Fault(
        "token-does-not-read-itself",
        ir(
            "%y = compare(%k, %p) direction=LE : pred[2,8]",
            k="s32[2,8]",
            p="s32[2,8]",
            y="pred[2,8]",
        ),
        "compare",
        without_itself,
    ),
    Fault(
        "earlier-chunks-read",
        ir(
            "%y = attention_mask(%p, %k) chunk=4 : pred[2,3,8]",
            p="s32[2,3]",
            k="s32[2,8]",
            y="pred[2,3,8]",
        ),
        "attention_mask",
        earlier_chunks,
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
