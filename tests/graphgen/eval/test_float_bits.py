"""Programs that compute with the bits of floats, where all floats are in double precision."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.eval import MEANING, NATIVE, Array, evaluate
from graphgen.eval.arithmetic import NUMPY
from graphgen.eval.float_bits import bits_of, computes_with_bits
from graphgen.text import parse

X = np.asarray([0.0, -0.0, 1.5, -3.1, np.inf, -np.inf, np.nan, 1e-40], np.float32)


def both(body: str, result: str, kind: str = "f32", x: Array = X) -> list[Array]:
    """A result in double precision, and in the program's own types."""
    lines = "\n  ".join(body.strip().splitlines())
    module = parse(
        f"module @m level=logical {{\n  input %x : {kind}[8]\n  output %y : {result}\n}}\n\n"
        f"func @f phase=main {{\n  arg %x : {kind}[8]\n  {lines}\n  return y = %y\n}}\n"
    )
    given = {"x": x.astype(NUMPY[kind])}
    return [evaluate(module.function("f"), given, how)["y"] for how in (MEANING, NATIVE)]


SHIFTED = """\
%b = bitcast_convert(%x) dtype=u32 : u32[8]
%n = constant() value=u32[](16) : u32[]
%s = broadcast_in_dim(%n) shape=[8] dimensions=[] : u32[8]
%y = shift_right_logical(%b, %s) : u32[8]"""
MASKED = """\
%b = bitcast_convert(%x) dtype=u32 : u32[8]
%n = constant() value=u32[](2147483647) : u32[]
%s = broadcast_in_dim(%n) shape=[8] dimensions=[] : u32[8]
%a = and(%b, %s) : u32[8]
%y = bitcast_convert(%a) dtype=f32 : f32[8]"""
# Two sources in one choice, of which one is computed with as well.
CHOSEN = """\
%p = compare(%x, %x) direction=EQ : pred[8]
%t = negate(%x) : f32[8]
%b = bitcast_convert(%x) dtype=s32 : s32[8]
%c = bitcast_convert(%t) dtype=s32 : s32[8]
%d = select(%p, %c, %b) : s32[8]
%y = add(%d, %b) : s32[8]"""
NUMBER = """\
%b = bitcast_convert(%x) dtype=s32 : s32[8]
%y = convert(%b) dtype=f64 : f64[8]"""
HALVES = """\
%b = bitcast_convert(%x) dtype=u16 : u16[8]
%r = reverse(%b) dimensions=[0] : u16[8]
%y = popcnt(%r) : u16[8]"""
OTHER_PARTS = """\
%b = bitcast_convert(%x) dtype=u8 : u8[8,4]
%y = not(%b) : u8[8,4]"""
WHOLE = """\
%b = convert(%x) dtype=u8 : u8[8]
%y = not(%b) : u8[8]"""


@pytest.mark.parametrize(
    ("body", "result", "kind"),
    [
        (SHIFTED, "u32[8]", "f32"),
        (MASKED, "f32[8]", "f32"),
        (CHOSEN, "s32[8]", "f32"),
        (NUMBER, "f64[8]", "f32"),
        (HALVES, "u16[8]", "bf16"),
        (HALVES, "u16[8]", "f16"),
        (OTHER_PARTS, "u8[8,4]", "f32"),
        (WHOLE, "u8[8]", "f32"),
    ],
    ids=["shift", "mask", "select", "number", "bf16", "f16", "parts", "convert"],
)
def test_bits_are_those_of_the_programs_own_type(body: str, result: str, kind: str):
    wide, own = both(body, result, kind)
    assert np.array_equal(wide, own, equal_nan=own.dtype.kind == "f")
    assert wide.dtype.kind == own.dtype.kind


def test_numbers_are_rounded_before_their_bits_are_read():
    tenth = "%m = multiply(%x, %x) : f32[8]\n" + SHIFTED.replace("(%x)", "(%m)")
    wide, own = both(tenth.replace("value=u32[](16)", "value=u32[](0)"), "u32[8]", x=X / 7)
    assert np.array_equal(wide, own)


MOVED = """\
%b = bitcast_convert(%x) dtype=u32 : u32[8]
%r = reverse(%b) dimensions=[0] : u32[8]
%y = bitcast_convert(%r) dtype=f32 : f32[8]"""


def test_bits_that_are_moved_alone_keep_the_float_unrounded():
    third = "%m = multiply(%x, %x) : f32[8]\n" + MOVED.replace("(%x)", "(%m)")
    x = np.arange(8, dtype=np.float32) / 7
    assert np.array_equal(both(third, "f32[8]", x=x)[0], (x.astype(np.float64) ** 2)[::-1])


def test_floats_in_the_place_of_bits_are_seen_as_bits():
    module = parse(
        "module @m level=logical {\n  input %x : f32[8]\n  output %y : u32[8]\n}\n\n"
        "func @f phase=main {\n  arg %x : f32[8]\n"
        "  %y = bitcast_convert(%x) dtype=u32 : u32[8]\n  return y = %y\n}\n"
    )
    value = module.function("f").outputs.get("y")
    assert value is not None
    assert value.op is not None
    assert not computes_with_bits(value.op)
    carried = evaluate(module.function("f"), {"x": X}, MEANING)["y"]
    assert np.array_equal(bits_of(value, carried), X.view(np.uint32))
    assert bits_of(value, X.view(np.uint32)).dtype == np.uint32
