"""Faults that a proof refutes: a refutation counts, and has values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.passes.validate import PassChecks, validate
from tests.oracles.workloads import one_call
from tests.planted.faults import (
    Fault,
    Judgement,
    Row,
    assert_blamed,
    assert_right,
    full,
    given,
    ir,
    name_of,
    planted,
)


@dataclass(frozen=True, slots=True)
class RefutedFault(Fault):
    """A wrong rewrite that the one ordinary call does not show, and a proof refutes."""

    def judge(self, *, right: bool = False) -> Judgement:
        """Validate by one call and a proof."""
        module, item = given(self, right=right), planted(self, right=right)
        checks = PassChecks(prove=True, each_rewrite=False)
        (verdict,) = validate(module, [item], one_call(module), checks)
        # Values that were replayed in NumPy stand for the rewrite.
        replayed = "main" in verdict.examples
        return Judgement(verdict.refuted and not verdict.passed, replayed, verdict.state)


def masked(op: Op, b: Builder) -> Sequence[Value]:
    """x % 4 as x & 3."""
    x = op.operands[0]
    return [b.and_(x, b.full(3, x.type))]


def shifted(op: Op, b: Builder) -> Sequence[Value]:
    """x / 4 as x >> 2."""
    x = op.operands[0]
    return [b.shift_right_arithmetic(x, b.full(2, x.type))]


def biased(op: Op, b: Builder) -> Sequence[Value]:
    """x / 4 as (x + 3) >> 2 for negative x."""
    x = op.operands[0]
    bias = b.and_(b.shift_right_arithmetic(x, b.full(31, x.type)), b.full(3, x.type))
    return [b.shift_right_arithmetic(b.add(x, bias), b.full(2, x.type))]


def never_below(op: Op, b: Builder) -> Sequence[Value]:
    """x - 1 < x is true: it is not for the lowest x."""
    x = op.operands[1]
    return [b.compare(x, x, "EQ")]


def above_the_lowest(op: Op, b: Builder) -> Sequence[Value]:
    """x - 1 < x for all but the lowest x."""
    x = op.operands[1]
    return [b.compare(x, b.full(-(2**31), x.type), "NE")]


def sum_without_clamp(op: Op, b: Builder) -> Sequence[Value]:
    """min(x, 1000) as x."""
    return [op.operands[0]]


S32 = "s32[4]"
FAULTS: tuple[Row, ...] = (
    RefutedFault(
        "remainder-masked",
        ir(full("c", 4, S32), f"%y = remainder(%x, %c) : {S32}", x=S32, y=S32),
        "remainder",
        masked,
    ),
    RefutedFault(
        "quotient-shifted",
        ir(full("c", 4, S32), f"%y = divide(%x, %c) : {S32}", x=S32, y=S32),
        "divide",
        shifted,
        biased,
        "llvm/llvm-project#62200",
    ),
    RefutedFault(
        "less-by-one",
        ir(
            full("c", 1, S32),
            f"%a = subtract(%x, %c) : {S32}",
            "%y = compare(%a, %x) direction=LT : pred[4]",
            x=S32,
            y="pred[4]",
        ),
        "compare",
        never_below,
        above_the_lowest,
    ),
    RefutedFault(
        "clamp-dropped",
        ir(full("c", 1000, S32), f"%y = minimum(%x, %c) : {S32}", x=S32, y=S32),
        "minimum",
        sum_without_clamp,
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
