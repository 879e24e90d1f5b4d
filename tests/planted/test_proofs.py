"""Wrong element types: called wrong, and never proved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from graphgen.build import Builder
from graphgen.ir import DType, Op, Value
from graphgen.ir.dtype import bf16, f16, f32, f64, s32
from graphgen.passes.validate.rewrite_verdict import RewriteStatus
from graphgen.runtime.accuracy.validate_model import ValidationOptions
from tests.planted.faults import (
    Fault,
    Judgement,
    Row,
    again,
    assert_blamed,
    assert_right,
    expected,
    given,
    ir,
    name_of,
    planted,
    verdicts_of,
)


@dataclass(frozen=True, slots=True)
class ProvedFault(Fault):
    """A wrong rewrite of element types: called wrong, and not proved.

    Attributes:
        real: whether only the rounding differs, so that both are equal in real arithmetic.
    """

    real: bool = False

    def judge(self, *, right: bool = False) -> Judgement:
        """Validate with proofs."""
        module, item = given(self, right=right), planted(self, right=right)
        (verdict,) = verdicts_of(module, item, ValidationOptions(prove=True))
        assert verdict.proof is not None
        alone = verdict.rewrites.counts if verdict.rewrites is not None else {}
        if right:
            return Judgement(found=not verdict.passed, blamed=False, said=verdict.state)
        number = expected(module, item).number
        proved = verdict.proof.proved + (0 if self.real else verdict.proof.real)
        kept = sum(alone.get(status, 0) for status in (RewriteStatus.PROVED, RewriteStatus.REAL))
        total = verdict.rewrites.total if verdict.rewrites is not None else 0
        said = f"{verdict.state}, {proved} programs and {kept} of {total} rewrites proved"
        found = not verdict.passed and not proved and kept < total
        guilty = verdict.guilty
        return Judgement(found, guilty is not None and guilty.number == number, said)


def through(kind: DType) -> Callable[[Op, Builder], Sequence[Value]]:
    """The op on operands of another type, converted back."""

    def made(op: Op, b: Builder) -> Sequence[Value]:
        attrs = {**op.attrs, **({"dtype": kind} if "dtype" in op.attrs else {})}
        operands = [b.convert(value, kind) for value in op.operands]
        return [b.convert(b.emit(op.name, operands, attrs).result, op.result.dtype)]

    return made


def round_trip_dropped(op: Op, b: Builder) -> Sequence[Value]:
    """A conversion there and back dropped."""
    there = op.operands[0].producer("convert")
    assert there is not None
    return [there.operands[0]]


def there(kind: str, back: str, x: str = "f32[16]") -> str:
    """A conversion of x and back."""
    return ir(
        f"%a = convert(%x) dtype={kind} : {kind}[16]",
        f"%y = convert(%a) dtype={back} : {back}[16]",
        x=x,
        y=f"{back}[16]",
    )


def second(op: Op) -> bool:
    """Whether a conversion is the second one."""
    return op.operands[0].producer("convert") is not None


def compared_in(kind: DType) -> Callable[[Op, Builder], Sequence[Value]]:
    """Operands compared in another type."""

    def made(op: Op, b: Builder) -> Sequence[Value]:
        return [again(op, b, *(b.convert(value, kind) for value in op.operands))]

    return made


F32 = "f32[16]"
FAULTS: tuple[Row, ...] = (
    ProvedFault(
        "sum-of-elements-in-f16",
        ir("%y = reduce(%x) dimensions=[1] kind=add : f32[4]", x="f32[4,8]", y="f32[4]"),
        "reduce",
        through(f16),
        through(f64),
        rounding=1e-6,
    ),
    ProvedFault(
        "exponential-in-bf16",
        ir(f"%y = exponential(%x) : {F32}", x=F32, y=F32),
        "exponential",
        through(bf16),
        rounding=1e-6,
        real=True,
    ),
    ProvedFault(
        "square-in-f16",
        ir(f"%y = multiply(%x, %x) : {F32}", x=F32, y=F32),
        "multiply",
        through(f16),
        rounding=1e-6,
    ),
    ProvedFault(
        "bf16-round-trip-dropped",
        there("bf16", "f32"),
        "convert",
        round_trip_dropped,
        report="openxla/xla#41605",
        real=True,
        where=second,
        right_module=there("f32", "bf16", "bf16[16]"),
    ),
    ProvedFault(
        "integers-through-f32",
        there("f32", "s32", "s32[16]"),
        "convert",
        round_trip_dropped,
        where=second,
        right_module=there("f64", "s32", "s32[16]"),
    ),
    ProvedFault(
        "compared-in-f16",
        ir("%y = compare(%x, %z) direction=LT : pred[16]", x=F32, z=F32, y="pred[16]"),
        "compare",
        compared_in(f16),
        compared_in(f64),
    ),
    ProvedFault(
        "wide-sum-in-32-bits",
        ir("%y = add(%x, %z) : s64[16]", x="s64[16]", z="s64[16]", y="s64[16]"),
        "add",
        through(s32),
    ),
    ProvedFault(
        "quotient-of-integers-in-f32",
        ir("%y = divide(%x, %z) : s32[16]", x="s32[16]", z="s32[16]", y="s32[16]"),
        "divide",
        through(f32),
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
