"""Quantized elements as plain integers, beside the functions of the specification in NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from graphgen.errors import GraphgenError
from graphgen.eval import Array, evaluate
from graphgen.ir import Module
from graphgen.lowering.cpu import compile_program
from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo
from graphgen.lowering.stablehlo.bind_sizes import as_plain_integers, has_quantized
from tests.graphgen.cli.conftest import done, error, facts

Floats = npt.NDArray[np.float32]


def quantize(
    x: Array, scale: Array | float, zero: Array | int, low: int, high: int
) -> npt.NDArray[np.int64]:
    """Spec: scaled, moved, clamped, rounded half to even."""
    scaled = x.astype(np.float32) / np.asarray(scale, np.float32) + np.asarray(zero, np.float32)
    return np.rint(np.clip(scaled, low, high)).astype(np.int64)


def dequantize(q: Array, scale: Array | float, zero: Array | int) -> Floats:
    moved = (np.asarray(q, np.int64) - zero).astype(np.float32)
    return (moved * np.asarray(scale, np.float32)).astype(np.float32)


def plain(text: str) -> Module:
    module = read_stablehlo(text)
    assert has_quantized(module)
    made = as_plain_integers(module, module.programs()[0])
    assert not has_quantized(made)
    return made


def run(text: str, *given: Array) -> list[Array]:
    """The outputs, on NumPy; XLA gives the same."""
    module = plain(text)
    function = module.programs()[0]
    names = [value.name or "" for value in function.args]
    arrays = dict(zip(names, given, strict=True))
    found = [*evaluate(function, arrays, module=module).values()]
    ran = [*compile_program(module, function).run_numpy([arrays])[0].values()]
    for one, other in zip(found, ran, strict=True):
        np.testing.assert_array_equal(one, other)
    return found


X = np.array([-9, -1.25, -0.75, -0.25, 0, 0.25, 0.75, 1.25, 1.75, 60, 70, np.inf], np.float32)
TYPES = {
    "i8": ("!quant.uniform<i8:f32, 0.5:3>", 3, -128, 127, np.int8),
    "u8": ("!quant.uniform<u8:f32, 0.5:100>", 100, 0, 255, np.uint8),
    "narrow": ("!quant.uniform<i8<-7:7>:f32, 0.5>", 0, -7, 7, np.int8),
    "i16": ("!quant.uniform<i16:f32, 0.5:-5>", -5, -32768, 32767, np.int16),
    "i32": ("!quant.uniform<i32:f32, 0.5>", 0, -(2**31), 2147483520, np.int32),
}


@pytest.mark.parametrize("name", TYPES)
def test_numbers_are_scaled_moved_clamped_and_rounded_to_even(name: str):
    kind, zero, low, high, dtype = TYPES[name]
    text = f"""func.func @main(%x: tensor<12xf32>) -> (tensor<12x{kind}>, tensor<12xf32>) {{
  %0 = stablehlo.uniform_quantize %x : (tensor<12xf32>) -> tensor<12x{kind}>
  %1 = stablehlo.uniform_dequantize %0 : (tensor<12x{kind}>) -> tensor<12xf32>
  return %0, %1 : tensor<12x{kind}>, tensor<12xf32>
}}"""
    stored, back = run(text, X)
    wanted = quantize(X, 0.5, zero, low, high)
    assert stored.dtype == dtype
    np.testing.assert_array_equal(stored, wanted)
    np.testing.assert_array_equal(back, dequantize(wanted, 0.5, zero))


def test_each_channel_has_its_scale():
    kind = "!quant.uniform<i8:f32:1, {0.5:1, 0.25, 2.0:-3}>"
    moved = "!quant.uniform<i8:f32:0, {0.5:1, 0.25, 2.0:-3}>"
    text = f"""func.func @main(%x: tensor<2x3xf32>) -> tensor<3x2xf32> {{
  %0 = stablehlo.uniform_quantize %x : (tensor<2x3xf32>) -> tensor<2x3x{kind}>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<2x3x{kind}>) -> tensor<3x2x{moved}>
  %2 = stablehlo.uniform_dequantize %1 : (tensor<3x2x{moved}>) -> tensor<3x2xf32>
  return %2 : tensor<3x2xf32>
}}"""
    x = np.array([[1.3, -0.4, 7], [100, 0.1, -3]], np.float32)
    scales, zeros = np.array([0.5, 0.25, 2]), np.array([1, 0, -3])
    (found,) = run(text, x)
    wanted = dequantize(quantize(x, scales, zeros, -128, 127), scales, zeros)
    np.testing.assert_array_equal(found, wanted.T)


A, B, C = (f"!quant.uniform<i8:f32, {pair}>" for pair in ("0.1:2", "0.2:-3", "0.3:1"))
RNG = np.random.default_rng(0)
P = RNG.integers(-128, 128, (4, 4)).astype(np.int8)
Q = RNG.integers(-128, 128, (4, 4)).astype(np.int8)


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "maximum"])
def test_arithmetic_is_that_of_the_numbers(op: str):
    text = f"""func.func @main(%p: tensor<4x4x{A}>, %q: tensor<4x4x{B}>) -> tensor<4x4x{C}> {{
  %0 = "stablehlo.{op}"(%p, %q) : (tensor<4x4x{A}>, tensor<4x4x{B}>) -> tensor<4x4x{C}>
  return %0 : tensor<4x4x{C}>
}}"""
    (found,) = run(text, P, Q)
    assert found.dtype == np.int8
    p, q = dequantize(P, 0.1, 2), dequantize(Q, 0.2, -3)
    numpy = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum}
    np.testing.assert_array_equal(found, quantize(numpy[op](p, q), 0.3, 1, -128, 127))


@pytest.mark.parametrize("left", [True, False], ids=["both", "weights alone"])
def test_products_have_wide_sums(left: bool):
    # Powers of two: sums are exact in any order.
    second = "!quant.uniform<i8:f32, 0.25:-3>"
    first = "!quant.uniform<i8:f32, 0.125:2>" if left else "f32"
    result = "!quant.uniform<i32:f32, 0.03125>" if left else "f32"
    text = f"""func.func @main(%p: tensor<4x4x{first}>, %q: tensor<4x4x{second}>)
    -> tensor<4x4x{result}> {{
  %0 = "stablehlo.dot_general"(%p, %q) <{{dot_dimension_numbers = #stablehlo.dot<
    lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}}>
    : (tensor<4x4x{first}>, tensor<4x4x{second}>) -> tensor<4x4x{result}>
  return %0 : tensor<4x4x{result}>
}}"""
    p = dequantize(P, 0.125, 2)
    (found,) = run(text, P if left else p, Q)
    wanted = p.astype(np.float64) @ dequantize(Q, 0.25, -3).astype(np.float64)
    given = found * 0.03125 if left else found
    np.testing.assert_array_equal(given, wanted)


def test_a_constant_holds_stored_numbers():
    text = f"""func.func @main() -> tensor<2xf32> {{
  %0 = "stablehlo.constant"() <{{value = dense<[5, -7]> : tensor<2xi8>}}> : () -> tensor<2x{A}>
  %1 = stablehlo.uniform_dequantize %0 : (tensor<2x{A}>) -> tensor<2xf32>
  return %1 : tensor<2xf32>
}}"""
    (found,) = run(text)
    np.testing.assert_array_equal(found, dequantize(np.array([5, -7]), 0.1, 2))


def test_what_has_no_meaning_here_is_refused_by_name():
    text = f"""func.func @main(%p: tensor<4x4x{A}>, %z: tensor<{A}>) -> tensor<4x{A}> {{
  %0 = "stablehlo.reduce"(%p, %z) ({{ ^bb0(%l: tensor<{A}>, %r: tensor<{A}>):
    %s = stablehlo.add %l, %r : tensor<{A}>
    stablehlo.return %s : tensor<{A}> }}) {{dimensions = array<i64: 0>}}
    : (tensor<4x4x{A}>, tensor<{A}>) -> tensor<4x{A}>
  return %0 : tensor<4x{A}>
}}"""
    with pytest.raises(GraphgenError, match=r"stablehlo\.reduce: a region on quantized elements"):
        plain(text)
    blocks = "!quant.uniform<i8:f32:{0:2}, {{0.1, 0.2}}>"
    text = f"func.func @main(%p: tensor<4x{blocks}>) -> tensor<4x{blocks}> {{\n"
    text += f"  return %p : tensor<4x{blocks}>\n}}"
    with pytest.raises(GraphgenError, match="no op here computes with it"):
        plain(text)


def test_commands_take_them(tmp_path: Path):
    file = tmp_path / "m.mlir"
    file.write_text(f"""func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
  %0 = stablehlo.uniform_quantize %x : (tensor<4xf32>) -> tensor<4x{C}>
  %1 = stablehlo.uniform_dequantize %0 : (tensor<4x{C}>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}}
""")
    inputs = tmp_path / "x.npz"
    np.savez(inputs, x=np.array([1, 2, 3, 4], np.float32))
    (output,) = facts("run", file, "--inputs", inputs)["outputs"]
    np.testing.assert_allclose(output["first"], [0.9, 2.1, 3.0, 3.9], rtol=1e-5)
    assert "quant.uniform" in done("lower", file, "--to", "stablehlo").stdout
    written = done("lower", file, "--to", "hlo-text").stdout
    assert "s8[4]" in written
    assert "round-nearest-even" in written
    assert done("equiv", file, file).stdout.startswith("equal")
    assert error("run", file, "--dims", "x=3").startswith("error[GG0705]")


def test_hints_of_an_op_that_becomes_several_are_left_out():
    type_ = "!quant.uniform<i8:f32, 0.5>"
    gather = f"""func.func public @main(%x: tensor<9x{type_}>, %i: tensor<3x1xi32>) \
-> tensor<3x{type_}> {{
  %0 = "stablehlo.gather"(%x, %i) <{{dimension_numbers = #stablehlo.gather<\
collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, \
indices_are_sorted = true, slice_sizes = array<i64: 1>}}> : \
(tensor<9x{type_}>, tensor<3x1xi32>) -> tensor<3x{type_}>
  return %0 : tensor<3x{type_}>
}}
"""
    emit_stablehlo(module := plain(gather), module.programs()[0])
    stored = np.arange(9, dtype=np.int8)
    (found,) = run(gather, stored, np.array([[1], [4], [8]], np.int32))
    np.testing.assert_array_equal(found, [1, 4, 8])
