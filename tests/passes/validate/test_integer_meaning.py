"""Integers that programs make of floats: rewrites of them are judged by their bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest

from graphgen.build import Builder
from graphgen.ir import Module, Op, Value
from graphgen.ir.dtype import f32, s32, u8, u32
from graphgen.passes.core import Pass, Rewriter
from graphgen.passes.validate import PassChecks, validate
from graphgen.passes.validate.verdict import Verdict
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse

Change = Callable[[Op, Builder], Sequence[Value]]


@dataclass(frozen=True)
class Changed(Pass):
    """The last op of a name, changed; every bit is kept."""

    name: ClassVar[str] = "changed"
    root: str
    change: Change

    def run(self, module: Module, rewriter: Rewriter) -> None:
        if rewriter.exhausted:
            return
        (function,) = module.programs()
        op = [op for op in function.block if op.name == self.root][-1]
        b = rewriter.before(function, op)
        rewriter.replace(function, op, list(self.change(op, b)))


def program(result: str, *lines: str) -> Module:
    """Of the product of two inputs, which no double rounds as f32 does."""
    body = "\n  ".join(lines)
    return parse(f"""\
module @m level=logical {{
  input %x : f32[8]
  input %w : f32[8]
  output %y : {result}[8]
}}

func @f phase=main {{
  arg %x : f32[8]
  arg %w : f32[8]
  %p = multiply(%x, %w) : f32[8]
  {body}
  return y = %y
}}
""")


def verdict_of(module: Module, item: Pass, *, alone: bool) -> Verdict:
    checks = PassChecks(each_rewrite=alone)
    (verdict,) = validate(module, [item], make_workload(module, seed=3), checks)
    return verdict


def filled(b: Builder, value: Value, number: int) -> Value:
    return b.broadcast_in_dim(b.literal(number, value.dtype), value.shape, ())


def in_two_steps(op: Op, b: Builder) -> Sequence[Value]:
    """A shift by 16 is one by 7 and one by 9."""
    bits = op.operands[0]
    first = b.emit("shift_right_logical", (bits, filled(b, bits, 7)), {}).result
    return [b.emit("shift_right_logical", (first, filled(b, bits, 9)), {}).result]


def one_too_few(op: Op, b: Builder) -> Sequence[Value]:
    bits = op.operands[0]
    return [b.emit("shift_right_logical", (bits, filled(b, bits, 15)), {}).result]


def of_the_sign_alone(op: Op, b: Builder) -> Sequence[Value]:
    """0 for all that is not negative, which loses the sign of zero, and its bits."""
    bits = op.operands[0]
    assert bits.op is not None
    p = bits.op.operands[0]
    zero = b.broadcast_in_dim(b.literal(0.0, f32), p.shape, ())
    moved = b.add(p, zero)
    return [b.emit(op.name, (b.bitcast_convert(moved, u32), op.operands[1]), {}).result]


SHIFTED = (
    "%b = bitcast_convert(%p) dtype=u32 : u32[8]",
    "%n = constant() value=u32[](16) : u32[]",
    "%s = broadcast_in_dim(%n) shape=[8] dimensions=[] : u32[8]",
    "%y = shift_right_logical(%b, %s) : u32[8]",
)


MASKED = (
    "%b = bitcast_convert(%p) dtype=u32 : u32[8]",
    "%n = constant() value=u32[](2147483647) : u32[]",
    "%s = broadcast_in_dim(%n) shape=[8] dimensions=[] : u32[8]",
    "%a = and(%b, %s) : u32[8]",
    "%y = bitcast_convert(%a) dtype=f32 : f32[8]",
)


def moved_alone(op: Op, b: Builder) -> Sequence[Value]:
    """The bits themselves, for those and all ones."""
    return [op.operands[0]]


def size(op: Op, b: Builder) -> Sequence[Value]:
    """The float without its sign."""
    return [b.abs(_product(op))]


def other_sign(op: Op, b: Builder) -> Sequence[Value]:
    return [b.negate(_product(op))]


def _product(op: Op) -> Value:
    masked = op.operands[0].op
    assert masked is not None
    bits = masked.operands[0].op
    assert bits is not None
    return bits.operands[0]


ALL = tuple([line.replace("2147483647", "4294967295") for line in MASKED[:3]])
KEPT = (*ALL, "%y = and(%b, %s) : u32[8]")


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize(
    ("kind", "lines", "root", "change", "right"),
    [
        ("u32", SHIFTED, "shift_right_logical", in_two_steps, True),
        ("u32", SHIFTED, "shift_right_logical", one_too_few, False),
        ("u32", KEPT, "and", moved_alone, True),
        ("u32", (*MASKED[:3], "%y = and(%b, %s) : u32[8]"), "and", moved_alone, False),
        ("f32", MASKED, "bitcast_convert", size, True),
        ("f32", MASKED, "bitcast_convert", other_sign, False),
    ],
)
def test_bits_of_floats_are_compared_exactly(
    kind: str, lines: Sequence[str], root: str, change: Change, alone: bool, right: bool
):
    verdict = verdict_of(program(kind, *lines), Changed(root, change), alone=alone)
    assert verdict.ok == right


def test_the_sign_of_zero_is_one_of_the_bits():
    item = Changed("shift_right_logical", of_the_sign_alone)
    assert not verdict_of(program("u32", *SHIFTED), item, alone=True).ok


def clamped_first(op: Op, b: Builder) -> Sequence[Value]:
    """A conversion to u8 by way of s32, which wraps around and does not end."""
    return [b.convert(b.convert(_inside(op, b, 255.0), s32), u8)]


def clamped_too_low(op: Op, b: Builder) -> Sequence[Value]:
    return [b.convert(b.convert(_inside(op, b, 20.0), s32), u8)]


def not_clamped(op: Op, b: Builder) -> Sequence[Value]:
    return [b.convert(b.convert(op.operands[0], s32), u8)]


def rounded_first(op: Op, b: Builder) -> Sequence[Value]:
    return [b.convert(b.round_nearest_even(op.operands[0]), u8)]


def _inside(op: Op, b: Builder, high: float) -> Value:
    ends = b.literal(0.0, f32), b.literal(high, f32)
    return b.clamp(ends[0], op.operands[0], ends[1])


BYTES = (
    "%n = constant() value=f32[](400.0) : f32[]",
    "%s = broadcast_in_dim(%n) shape=[8] dimensions=[] : f32[8]",
    "%l = multiply(%p, %s) : f32[8]",
)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize(
    ("change", "right"),
    [(clamped_first, True), (clamped_too_low, False), (not_clamped, False), (rounded_first, False)],
)
def test_a_conversion_to_bytes_may_be_written_in_integers(change: Change, alone: bool, right: bool):
    module = program("u8", *BYTES, "%y = convert(%l) dtype=u8 : u8[8]")
    verdict = verdict_of(module, Changed("convert", change), alone=alone)
    assert verdict.ok == right


def test_another_rounding_to_whole_numbers_is_not_excused():
    """Ties, on which both differ, are on no sample of the calls."""

    def away_from_zero(op: Op, b: Builder) -> Sequence[Value]:
        return [b.emit("round_nearest_afz", op.operands, {}).result]

    nearest = ("%r = round_nearest_even(%l) : f32[8]", "%y = convert(%r) dtype=u8 : u8[8]")
    module = program("u8", *BYTES, *nearest)
    assert not verdict_of(module, Changed("round_nearest_even", away_from_zero), alone=False).ok
