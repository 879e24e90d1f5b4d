"""Every simple op as StableHLO: jaxlib accepts it, and XLA computes what the NumPy rule does."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from jax._src.interpreters import mlir as jax_mlir
from jax._src.lib.mlir import ir as mlir  # pyright: ignore[reportPrivateImportUsage]

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.eval import evaluate, evaluate_ranks, numpy_dtype
from graphgen.ir import Function, Literal, Module, dtype, loc, symbol, tensor
from graphgen.ir.dtype import DTYPES, f8e8m0fnu, f32, has_infinity, s32
from graphgen.lowering.cpu import compile_program
from graphgen.lowering.mlir.mlir_types import dense_text, type_text
from graphgen.lowering.stablehlo import emit_stablehlo
from graphgen.ops.linalg import neutral_element
from tests.oracles.op_samples import BY_OP, inputs, program
from tests.oracles.sample import difference

# Differences in the last place add up where XLA reorders or keeps 16-bit sums narrow.
ROUNDING = {
    "c64": 1e-5,
    "f32": 1e-5,
    "bf16": 2**-6,
    "f16": 2**-9,
    "f8e4m3": 2**-3,
    "f8e4m3fn": 2**-3,
    "f8e5m2": 2**-2,
}


def accepted(text: str) -> bool:
    with jax_mlir.make_ir_context():
        return mlir.Module.parse(text).operation.verify()


@pytest.mark.parametrize("name", BY_OP)
@pytest.mark.one_in(9)
def test_xla_agrees_with_numpy(name: str):
    samples = BY_OP[name]
    module = program(samples)
    function = module.function("f")
    assert accepted(emit_stablehlo(module, function))
    given = inputs(samples)
    ours = evaluate(function, given)
    (theirs,) = compile_program(module, function).run_numpy([given])
    assert list(theirs) == list(ours)
    found = [
        difference(item, ours[key], theirs[key], ROUNDING)
        for item, key in zip(samples, ours, strict=True)
    ]
    assert list(filter(None, found)) == []


@pytest.mark.parametrize("kind", ["add", "maximum", "minimum"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)], ids=str)
@pytest.mark.parametrize("of", ["f32", "bf16", "s32"])
def test_all_reduce_on_two_devices(kind: str, shape: tuple[int, ...], of: str):
    module = Module("m", "target", {"tp": 2})
    function = module.add(Function("f"))
    x = function.block.add_arg(tensor(dtype(of), shape), "x")
    function.outputs = [("y", Builder(function).all_reduce(x, [[0, 1]], kind))]
    assert accepted(emit_stablehlo(module, function))
    random = np.random.default_rng(0)
    # Small integers: their sums are exact in every type.
    ranks = [{"x": random.integers(-9, 9, shape).astype(numpy_dtype(dtype(of)))} for _ in range(2)]
    ours = evaluate_ranks(function, ranks)
    theirs = compile_program(module, function).run_numpy(ranks)
    for one, other in zip(ours, theirs, strict=True):
        assert one["y"].dtype == other["y"].dtype
        np.testing.assert_array_equal(one["y"], other["y"])


def test_all_reduce_within_groups_of_different_sizes():
    module = Module("m", "target", {"tp": 3})
    function = module.add(Function("f"))
    x = function.block.add_arg(tensor(f32, (2,)), "x")
    function.outputs = [("y", Builder(function).all_reduce(x, [[0, 2], [1]], "add"))]
    text = emit_stablehlo(module, function)
    assert "dense<[[0, 2], [1, -1]]> : tensor<2x2xi64>" in text
    assert accepted(text)


def test_the_neutral_element_changes_nothing():
    for kind in DTYPES.values():
        if not kind.is_number or kind is f8e8m0fnu:
            continue
        (zero,), (low,), (high,) = (
            neutral_element(how, kind).values() for how in ("add", "maximum", "minimum")
        )
        assert zero == 0
        if kind.is_integer:
            info = ml_dtypes.iinfo(numpy_dtype(kind))
            assert (low, high) == (info.min, info.max)
        elif not has_infinity(kind):
            limits = ml_dtypes.finfo(numpy_dtype(kind))
            assert (low, high) == (limits.min, limits.max)
        else:
            assert (low, high) == (-np.inf, np.inf)


def body(function: Function) -> list[str]:
    """The op lines of a function's StableHLO, without locations."""
    text = emit_stablehlo(Module("m"), function, locs=False)
    return [line.strip() for line in text.splitlines() if "stablehlo." in line]


def test_the_text_of_a_program():
    module = Module("some model", "target")
    function = module.add(Function("f"))
    x = function.block.add_arg(tensor(f32, (2, 3)), "x")
    with Builder(function, loc=loc("model.py", 7, "layers.0.mlp", ("legalize",))) as b:
        y = b.reduce(x * 2.0, [1], "maximum")
    function.outputs = [("logits", y)]
    lines = [
        "module @some_model attributes {mhlo.num_replicas = 1 : i32} {",
        "  func.func public @main(",
        '    %x: tensor<2x3xf32>) -> (tensor<2xf32> {jax.result_info = "logits"}) {',
        "    %0 = stablehlo.constant dense<2.00000000000000000e+00> : tensor<f32> loc(#loc1)",
        "    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<2x3xf32> "
        "loc(#loc1)",
        "    %2 = stablehlo.multiply %x, %1 : tensor<2x3xf32> loc(#loc1)",
        "    %$init.3 = stablehlo.constant dense<0xFF800000> : tensor<f32>",
        "    %3 = stablehlo.reduce(%2 init: %$init.3) applies stablehlo.maximum "
        "across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32> loc(#loc1)",
        "    return %3 : tensor<2xf32>",
        "  }",
        "}",
        '#loc1 = loc(fused["layers/0/mlp via legalize", "model.py":7:0])',
        "",
    ]
    assert emit_stablehlo(module, function) == "\n".join(lines)


@pytest.mark.parametrize("name", ["2x", "x-1", "layers.0.w", "é", "-x", ".x", "7", "a$b", "$x"])
def test_any_name_of_ours_is_made_a_name_of_mlir(name: str):
    module = Module("m", "target")
    function = module.add(Function("f"))
    x = function.block.add_arg(tensor(f32, (2,)), name)
    y = Builder(function).reduce(x, [0], "add")
    y.name = f"{name}.sum"
    function.outputs = [(name, y)]
    assert accepted(emit_stablehlo(module, function))


@pytest.mark.parametrize("name", ["m", "2nd model", "llama-3.1", "modèle", ""])
def test_any_name_of_a_module(name: str):
    module = Module(name, "target")
    function = module.add(Function("f"))
    function.outputs = [("x", function.block.add_arg(tensor(f32, (2,)), "x"))]
    assert accepted(emit_stablehlo(module, function))


@pytest.mark.parametrize("file", ["modèle.py", 'a"b.py', "a\\b.py", "Zeile\nZwei.py"])
def test_any_name_of_a_source_file(file: str):
    module = Module("m", "target")
    function = module.add(Function("f"))
    x = function.block.add_arg(tensor(f32, (2,)), "x")
    function.outputs = [("y", Builder(function, loc=loc(file, 3, "schicht.ä")).unary("negate", x))]
    assert accepted(emit_stablehlo(module, function))


def test_a_program_that_hands_an_argument_through_and_one_that_makes_nothing():
    module = Module("m", "target")
    function = module.add(Function("f"))
    x = function.block.add_arg(tensor(f32, (2,)), "x")
    function.outputs = [("y", x), ("again", x)]
    assert accepted(emit_stablehlo(module, function))
    (out,) = compile_program(module, function).run_numpy([{"x": np.ones(2, np.float32)}])
    np.testing.assert_array_equal([out["y"], out["again"]], np.ones((2, 2)))
    function.outputs = []
    assert accepted(emit_stablehlo(module, function))


def test_a_composite_has_no_form():
    module = Module("m")
    function = module.add(Function("f"))
    function.outputs = [("y", Builder(function).silu(function.block.add_arg(tensor(f32), "x")))]
    with pytest.raises(GraphgenError) as caught:
        emit_stablehlo(module, function)
    assert (caught.value.code, caught.value.what) == ("GG0401", "silu has no StableHLO form")
    assert caught.value.where.startswith("tests/lowering/stablehlo/test_ops.py:")
    assert caught.value.help == "run the pass legalize{target=cpu} first"


def test_symbols_are_open_sizes():
    module = Module("m")
    function = module.add(Function("f"))
    x = function.block.add_arg(tensor(f32, (symbol("B"),)), "x")
    function.outputs = [("y", Builder(function).unary("negate", x))]
    assert "stablehlo.negate %x : tensor<?xf32>" in emit_stablehlo(module, function)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("f32", 0.5, "dense<5.00000000000000000e-01>"),
        ("s32", -3, "dense<-3>"),
        ("pred", True, "dense<true>"),
        ("f32", float("inf"), "dense<0x7F800000>"),
        ("bf16", float("-inf"), "dense<0xFF80>"),
        ("f16", float("inf"), "dense<0x7C00>"),
        ("f64", float("-inf"), "dense<0xFFF0000000000000>"),
        ("pred", [[True, False], [False, True]], "dense<[[true, false], [false, true]]>"),
        ("s32", [1, 2], 'dense<"0x0100000002000000">'),
        ("f32", [], "dense<>"),
    ],
)
def test_literals(kind: str, value: object, text: str):
    assert dense_text(Literal.of(dtype(kind), value)) == text


def test_types():
    assert type_text(tensor(s32)) == "tensor<i32>"
    assert type_text(tensor(DTYPES["u16"], (2, 0))) == "tensor<2x0xui16>"
    assert type_text(tensor(DTYPES["pred"], (4,))) == "tensor<4xi1>"


def test_locations_may_be_left_out():
    module = Module("m", "target")
    function = module.add(Function("f"))
    x = function.block.add_arg(tensor(f32, (2,)), "x")
    function.outputs = [("y", Builder(function).unary("negate", x))]
    assert "loc" not in emit_stablehlo(module, function, locs=False)
    assert body(function) == ["%0 = stablehlo.negate %x : tensor<2xf32>"]
