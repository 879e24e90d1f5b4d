"""Ops on weights that programs repeat, and the weight of a product under them."""

from __future__ import annotations

import pytest

from graphgen.ir import Op
from graphgen.passes.weights.materialization import only_enlarges, weight_of, widened
from graphgen.text import parse
from tests.oracles.small_modules import function


def ops(*lines: str) -> list[Op]:
    return list(parse(function(*lines)).function("f").block)


@pytest.mark.parametrize(
    ("line", "enlarges"),
    [
        ("%y = convert(%s8) dtype=f32 : f32[4]", True),
        ("%y = convert(%f8) dtype=bf16 : bf16[4]", True),
        ("%y = convert(%s8) dtype=u8 : u8[4]", False),
        ("%y = convert(%bf16) dtype=f32 : f32[4]", False),
        ("%y = convert(%s16) dtype=f32 : f32[4]", False),
        ("%y = convert(%bf16) dtype=s8 : s8[4]", False),
        ("%y = broadcast_in_dim(%bf16) shape=[2,4] dimensions=[1] : bf16[2,4]", True),
        ("%y = dequantize(%s8, %scale) block=[2] dtype=bf16 : bf16[4]", False),
        ("%y = dequantize(%s8, %scale) block=[2] dtype=f32 : f32[4]", True),
        ("%y = dequantize(%f8, %one) block=[4] dtype=bf16 : bf16[4]", True),
        ("%y = reshape(%bf16) shape=[2,2] : bf16[2,2]", False),
    ],
)
def test_what_adds_bytes_and_no_information(line: str, enlarges: bool):
    types = {"s8": "s8[4]", "f8": "f8e4m3[4]", "bf16": "bf16[4]", "s16": "s16[4]"}
    types |= {"scale": "f32[2]", "one": "bf16[1]"}
    args = [f"arg %{name} : {text}" for name, text in types.items()]
    (op,) = ops(*args, line)
    assert only_enlarges(op) is enlarges


@pytest.mark.parametrize(("kind", "is_widened"), [("s8", True), ("bf16", False)])
def test_the_weight_of_a_product(kind: str, is_widened: bool):
    dims = "lhs_contracting_dims=[1] rhs_contracting_dims=[0] dtype=f32"
    convert, dot = ops(
        "arg %x : f32[2,4]",
        f"arg %w : {kind}[4,3]",
        "%f = convert(%w) dtype=f32 : f32[4,3]",
        f"%y = dot_general(%x, %f) {dims} : f32[2,3]",
    )
    assert widened(dot) is (convert if is_widened else None)
    assert weight_of(dot) is (convert.operands[0] if is_widened else convert.result)
