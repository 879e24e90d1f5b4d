"""What validate calls wrong, bisect, minify and equiv call wrong, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import s32
from graphgen.passes.core import Pass, parse_pipeline, run_pipeline
from graphgen.passes.validate import PassChecks
from graphgen.passes.validate.bisect import bisect_verdicts
from graphgen.passes.validate.drawn_equiv import equivalent_throughout
from graphgen.passes.validate.failure_predicate import at_fault
from graphgen.passes.workload.make_workload import workload_for
from tests.planted.faults import (
    Fault,
    Judgement,
    Row,
    again,
    assert_blamed,
    assert_right,
    expected,
    full,
    given,
    ir,
    name_of,
    planted,
    validated,
)


@dataclass(frozen=True, slots=True)
class JudgedByAll(Fault):
    """A wrong rewrite of which ``validate``, ``bisect``, ``minify`` and ``equiv`` say the same."""

    def judge(self, *, right: bool = False) -> Judgement:
        """Ask all four, with the pass between two right ones."""
        module, item = given(self, right=right), planted(self, right=right)
        first, last = parse_pipeline("cse,dce")
        passes: list[Pass] = [first, item, last]
        calls = workload_for(module, passes, 0)
        culprit = bisect_verdicts(module, passes, calls, PassChecks(each_rewrite=True))
        _, guilty, _ = at_fault(module, passes, 0)
        after = given(self, right=right)
        run_pipeline(after, [item])
        alike = equivalent_throughout(module, after).found.equal
        own = validated(self, right=right)
        wrong = {
            "validate": own.found,
            "bisect": culprit is not None,
            "minify": guilty is not None,
            "equiv": not alike,
        }
        if right:
            said = [name for name, found in wrong.items() if found]
            return Judgement(bool(said), blamed=False, said=", ".join(said) or own.said)
        target = expected(module, item).number
        named = culprit is not None and culprit.fuel == target and guilty == item
        silent = [name for name, found in wrong.items() if not found]
        said = f"not said by {', '.join(silent)}" if silent else own.said
        return Judgement(not silent, named and own.blamed, said)


def last_of_ties(op: Op, b: Builder) -> Sequence[Value]:
    """Of equal elements the last comes first."""
    x = op.operands[0]
    values, places = b.top_k(b.reverse(x, [1]), 2)
    return [values, b.subtract(b.full(7, places.type), places)]


def without_maximum(op: Op, b: Builder) -> Sequence[Value]:
    """A softmax whose scores are not shifted by their maximum."""
    return [op.operands[0]]


def quarter(op: Op, b: Builder) -> Sequence[Value]:
    """x / 4 by a shift, which rounds down."""
    x = op.operands[0]
    return [b.shift_right_arithmetic(x, b.full(2, x.type))]


def greater_by_select(op: Op, b: Builder) -> Sequence[Value]:
    """max(x, z) as select(z < x, x, z), which loses a NaN of x."""
    x, z = op.operands
    return [b.select(b.compare(z, x, "LT"), x, z)]


def real_conjugate(op: Op, b: Builder) -> Sequence[Value]:
    """The imaginary part with the other sign."""
    return [b.negate(again(op, b, *op.operands))]


def without_clamp(op: Op, b: Builder) -> Sequence[Value]:
    """Block i, where i is to be clamped first."""
    return [b.take(op.operands[0], b.reshape(op.operands[1], [1]), 0)]


def at_clamped_place(op: Op, b: Builder) -> Sequence[Value]:
    """Block i, clamped."""
    place = b.clamp(b.literal(0, s32), op.operands[1], b.literal(7, s32))
    return [b.take(op.operands[0], b.reshape(place, [1]), 0)]


S32, F32 = "s32[16]", "f32[16]"
SCORES = "f32[4,8]"
FAULTS: tuple[Row, ...] = (
    JudgedByAll(
        "last-of-ties",
        ir("%v, %y = top_k(%x) k=2 : f32[4,2], s32[4,2]", x=SCORES, y="s32[4,2]"),
        "top_k",
        last_of_ties,
    ),
    JudgedByAll(
        "softmax-without-maximum",
        ir(
            "%m = reduce(%x) dimensions=[1] kind=maximum : f32[4]",
            f"%w = broadcast_in_dim(%m) shape=[4,8] dimensions=[0] : {SCORES}",
            f"%d = subtract(%x, %w) : {SCORES}",
            f"%e = exponential(%d) : {SCORES}",
            "%s = reduce(%e) dimensions=[1] kind=add : f32[4]",
            f"%t = broadcast_in_dim(%s) shape=[4,8] dimensions=[0] : {SCORES}",
            f"%y = divide(%e, %t) : {SCORES}",
            x=SCORES,
            y=SCORES,
        ),
        "subtract",
        without_maximum,
        rounding=1e-6,
    ),
    JudgedByAll(
        "quarter-by-shift",
        ir(full("c", 4, S32), f"%y = divide(%x, %c) : {S32}", x=S32, y=S32),
        "divide",
        quarter,
    ),
    JudgedByAll(
        "greater-by-select",
        ir(f"%y = maximum(%x, %z) : {F32}", x=F32, z=F32, y=F32),
        "maximum",
        greater_by_select,
    ),
    JudgedByAll(
        "imaginary-sign",
        ir("%y = imag(%x) : f32[8]", x="c64[8]", y="f32[8]"),
        "imag",
        real_conjugate,
    ),
    JudgedByAll(
        "place-not-clamped",
        ir(
            "%y = dynamic_slice(%x, %i) slice_sizes=[1] : f32[1]", x="f32[8]", i="s32[]", y="f32[1]"
        ),
        "dynamic_slice",
        without_clamp,
        at_clamped_place,
        "jax-ml/jax#3621",
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
