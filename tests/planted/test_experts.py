"""Faults of mixtures of experts: choice, weights, capacity and what an index outside means."""

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


def clamped_expert(op: Op, b: Builder) -> Sequence[Value]:
    """An index outside is the nearest expert, where it contributes nothing."""
    x, at, *others = op.operands
    inside = b.clamp(b.literal(0, s32), at, b.literal(3, s32))
    return [again(op, b, x, inside, *others)]


def none_counted(op: Op, b: Builder) -> Sequence[Value]:
    """An index outside is -1, whose weight is 0."""
    x, at, weights, *others = op.operands
    over = b.compare(at, b.full(3, at.type), "GT")
    return [again(op, b, x, b.select(over, b.full(-1, at.type), at), weights, *others)]


def halves_swapped(op: Op, b: Builder) -> Sequence[Value]:
    """Gate and up in each other's place."""
    x, at, weights, gate, up, down = op.operands
    return [again(op, b, x, at, weights, up, gate, down)]


def weights_all_alike(op: Op, b: Builder) -> Sequence[Value]:
    """The weights of a token sum to 1 already: those of its experts are not divided."""
    return [op.operands[0]]


def raw_scores(op: Op, b: Builder) -> Sequence[Value]:
    """The scores of the chosen experts are not made probabilities."""
    values, at = b.top_k(scores_of(op), 2)
    return [values, at]


def scores_of(op: Op) -> Value:
    """The scores below a softmax."""
    e = op.operands[0].producer("divide")
    assert e is not None
    power = e.operands[0].producer("exponential")
    assert power is not None
    shifted = power.operands[0].producer("subtract")
    assert shifted is not None
    return shifted.operands[0]


def kept_weights(op: Op, b: Builder) -> Sequence[Value]:
    """Weights of tokens that an expert does not compute are kept."""
    return [op.operands[1]]


def zeroed_weights(op: Op, b: Builder) -> Sequence[Value]:
    """Weights of tokens that an expert does not compute are 0, whatever they are."""
    inside, weights, zero = op.operands
    return [b.select(b.not_(inside), zero, weights)]


def last_first(op: Op, b: Builder) -> Sequence[Value]:
    """Of experts with equal scores the last is chosen."""
    (x,) = op.operands
    values, at = b.top_k(b.reverse(x, [1]), 2)
    return [values, b.subtract(b.full(7, at.type), at)]


def less_capacity(op: Op, b: Builder) -> Sequence[Value]:
    """An expert takes two tokens at most."""
    return b.emit(op.name, op.operands, {**op.attrs, "capacity": 2}).results


def enough_capacity(op: Op, b: Builder) -> Sequence[Value]:
    """An expert takes as many tokens as there are places."""
    return b.emit(op.name, op.operands, {**op.attrs, "capacity": 6}).results


MIXTURE = ir(
    "%y = experts(%x, %i, %w, %g, %u, %d) dtype=f32 : f32[3,8]",
    x="f32[3,8]",
    i="s32[3,2]",
    w="f32[3,2]",
    g="f32[4,6,8]",
    u="f32[4,6,8]",
    d="f32[4,8,6]",
    y="f32[3,8]",
)
ROUTER = (
    "%m = reduce(%x) dimensions=[1] kind=maximum : f32[3]",
    "%n = broadcast_in_dim(%m) shape=[3,8] dimensions=[0] : f32[3,8]",
    "%s = subtract(%x, %n) : f32[3,8]",
    "%e = exponential(%s) : f32[3,8]",
    "%t = reduce(%e) dimensions=[1] kind=add : f32[3]",
    "%r = broadcast_in_dim(%t) shape=[3,8] dimensions=[0] : f32[3,8]",
    "%p = divide(%e, %r) : f32[3,8]",
    "%v, %i = top_k(%p) k=2 : f32[3,2], s32[3,2]",
    "%q = reduce(%v) dimensions=[1] kind=add : f32[3]",
    "%b = broadcast_in_dim(%q) shape=[3,2] dimensions=[0] : f32[3,2]",
    "%y = divide(%v, %b) : f32[3,2]",
)
CHOSEN = ir(*ROUTER, x="f32[3,8]", y="f32[3,2]", outputs=("y", "i : s32[3,2]"))


def of_two(op: Op) -> bool:
    """Whether the op makes two numbers a token."""
    return op.result.shape == (3, 2)


FAULTS: tuple[Row, ...] = (
    Fault("expert-clamped", MIXTURE, "experts", clamped_expert, none_counted),
    Fault("gate-and-up-swapped", MIXTURE, "experts", halves_swapped),
    Fault("capacity-of-two", MIXTURE, "experts", less_capacity, enough_capacity),
    Fault(
        "weights-not-divided",
        CHOSEN,
        "divide",
        weights_all_alike,
        report="databricks/megablocks#87",
        where=of_two,
    ),
    Fault("raw-scores-as-weights", CHOSEN, "top_k", raw_scores, report="sgl-project/sglang#35160"),
    Fault(
        "last-of-equal-experts",
        ir("%v, %y = top_k(%x) k=2 : f32[3,2], s32[3,2]", x="f32[3,8]", y="s32[3,2]"),
        "top_k",
        last_first,
    ),
    Fault(
        "weights-of-others-kept",
        ir(
            full("c", 4, "s32[3,2]"),
            full("z", 0.0, "f32[3,2]"),
            "%p = compare(%i, %c) direction=LT : pred[3,2]",
            "%y = select(%p, %w, %z) : f32[3,2]",
            i="s32[3,2]",
            w="f32[3,2]",
            y="f32[3,2]",
        ),
        "select",
        kept_weights,
        zeroed_weights,
        "ml-explore/mlx-lm#508",
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
