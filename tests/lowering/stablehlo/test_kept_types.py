"""Quantized elements, bounded sizes and tokens: read, shown, written as before, refused by name."""

# MLIR writes long lines.
# ruff: noqa: E501

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.eval import evaluate, numpy_dtype
from graphgen.ir import Module, dtype, tensor
from graphgen.lowering.cpu.program import compile_program
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.hlo_text.hlo_printer import print_hlo_text
from graphgen.lowering.mlir.generic_form import generic_text
from graphgen.lowering.mlir.mlir_types import read_tensor_type, type_text
from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo
from graphgen.lowering.stablehlo.read import stated_interface
from graphgen.ops.external import refusal, shown_type
from graphgen.passes.core.pipeline import run_pipeline
from graphgen.passes.pipelines import parse as parse_pipeline
from graphgen.report.diff import diff_functions
from graphgen.text import parse, print_module

QUANTIZED = """func.func @main(%x: tensor<2x4x!quant.uniform<i8:f32, 0.1:5>>, %w: tensor<4x2x!quant.uniform<i8<-127:127>:f32:1, {0.1,0.2:3}>>) -> (tensor<2x2xf32>, tensor<2x!quant.uniform<i8:f32, 0.1:5>>) {
  %zero = "stablehlo.constant"() <{value = dense<5> : tensor<i8>}> : () -> tensor<!quant.uniform<i8:f32, 0.1:5>>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<2x4x!quant.uniform<i8:f32, 0.1:5>>, tensor<4x2x!quant.uniform<i8<-127:127>:f32:1, {0.1,0.2:3}>>) -> tensor<2x2x!quant.uniform<i32:f32:1, {0.01,0.02}>>
  %1 = stablehlo.uniform_dequantize %0 : (tensor<2x2x!quant.uniform<i32:f32:1, {0.01,0.02}>>) -> tensor<2x2xf32>
  %2 = stablehlo.add %1, %1 : tensor<2x2xf32>
  %3 = "stablehlo.reduce"(%x, %zero) ({
  ^bb0(%a: tensor<!quant.uniform<i8:f32, 0.1:5>>, %b: tensor<!quant.uniform<i8:f32, 0.1:5>>):
    %s = stablehlo.add %a, %b : tensor<!quant.uniform<i8:f32, 0.1:5>>
    %t = stablehlo.maximum %s, %zero : tensor<!quant.uniform<i8:f32, 0.1:5>>
    stablehlo.return %t : tensor<!quant.uniform<i8:f32, 0.1:5>>
  }) {dimensions = array<i64: 1>} : (tensor<2x4x!quant.uniform<i8:f32, 0.1:5>>, tensor<!quant.uniform<i8:f32, 0.1:5>>) -> tensor<2x!quant.uniform<i8:f32, 0.1:5>>
  return %2, %3 : tensor<2x2xf32>, tensor<2x!quant.uniform<i8:f32, 0.1:5>>
}
"""
BOUNDED = """func.func @main(%x: tensor<?x4xf32, #stablehlo.bounds<8, ?>>, %n: tensor<i32>) -> (tensor<?x4xf32, #stablehlo.bounds<8, ?>>, tensor<i32>) {
  %0 = stablehlo.add %x, %x : tensor<?x4xf32, #stablehlo.bounds<8, ?>>
  %1 = stablehlo.get_dimension_size %0, dim = 0 : (tensor<?x4xf32, #stablehlo.bounds<8, ?>>) -> tensor<i32>
  %2 = stablehlo.minimum %1, %n : tensor<i32>
  %3 = stablehlo.set_dimension_size %0, %2, dim = 0 : (tensor<?x4xf32, #stablehlo.bounds<8, ?>>, tensor<i32>) -> tensor<?x4xf32, #stablehlo.bounds<8, ?>>
  return %3, %2 : tensor<?x4xf32, #stablehlo.bounds<8, ?>>, tensor<i32>
}
"""
TOKENS = """func.func @main(%x: tensor<3xf32>, %t0: !stablehlo.token) -> (tensor<3xf32>, !stablehlo.token) {
  %t = stablehlo.create_token : !stablehlo.token
  %u = stablehlo.after_all %t, %t0 : !stablehlo.token
  %3:2 = "stablehlo.infeed"(%u) <{infeed_config = "a%0b"}> : (!stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)
  %y = stablehlo.add %x, %3#0 : tensor<3xf32>
  %v = "stablehlo.outfeed"(%y, %3#1) <{outfeed_config = ""}> : (tensor<3xf32>, !stablehlo.token) -> !stablehlo.token
  return %y, %t : tensor<3xf32>, !stablehlo.token
}
"""
BOUNDED_HLO = """HloModule m

ENTRY main {
  p = f32[<=8,4] parameter(0)
  n = s32[] get-dimension-size(p), dimensions={0}
  ROOT a = f32[<=8,4] add(p, p)
}
"""
FORMS = {"quantized": QUANTIZED, "bounded": BOUNDED, "tokens": TOKENS}


def emitted(module: Module) -> str:
    return emit_stablehlo(module, module.programs()[0], locs=False)


def same(left: Module, right: Module) -> bool:
    programs = left.programs()[0], right.programs()[0]
    return diff_functions((left, right), *programs).same


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_it_is_written_as_it_was_and_ir_text_keeps_it(text: str):
    module = read_stablehlo(text)
    written = emitted(module)
    assert print_module(parse(print_module(module))) == print_module(module)
    again = read_stablehlo(written)
    assert emitted(again) == written
    assert emitted(parse(print_module(module))) == written
    assert same(module, again)
    for line in text.splitlines()[1:-2]:
        # Names aside, which a printer chooses: the types of each line.
        assert "^bb0" in line or line.rpartition(" : ")[2] in written


@pytest.mark.parametrize("name", ["bounded", "tokens"])
def test_mlir_takes_what_is_written(name: str):
    text = generic_text(emitted(read_stablehlo(FORMS[name])), "written")
    for op in ("add", *({"bounded": ("set_dimension_size",)}.get(name, ("infeed", "outfeed")))):
        assert f'"stablehlo.{op}"' in text
    assert ("#stablehlo.bounds<8, ?>" in text) is (name == "bounded")
    assert ('infeed_config = "a%0b"' in text) is (name == "tokens")


def test_types_say_storage_bounds_scales_and_dimension():
    module = read_stablehlo(QUANTIZED)
    shown = [value.type.text for value in module.programs()[0].args]
    assert shown == [
        "quant<i8:f32;0.1:5>[2,4]",
        "quant<i8<-127:127>:f32:1;(0.1;0.2:3)>[4,2]",
    ]
    written = emitted(module)
    assert "%x: tensor<2x4x!quant.uniform<i8:f32, 0.1:5>>" in written
    assert "%w: tensor<4x2x!quant.uniform<i8<-127:127>:f32:1, {0.1,0.2:3}>>" in written
    # What a region reads from around it is an operand.
    (reduce,) = [
        op for op in module.programs()[0].ops if op.attrs.get("opcode") == "stablehlo.reduce"
    ]
    assert [value.name for value in reduce.operands] == ["x", "zero"]
    assert re.search(r"stablehlo\.maximum %\$2\.\d+, %zero :", written)


@pytest.mark.parametrize(
    "text",
    [
        "tensor<2x!quant.uniform<u8:f32, 1.0e-2>>",
        "tensor<!quant.uniform<i4<-8:7>:bf16, 0.5:-1>>",
        "tensor<4x4x!quant.uniform<i4:f32:{0:2,1:2}, {{0.1,0.2},{0.3:1,0.4}}>>",
    ],
)
def test_each_form_of_a_quantized_type_is_spelled_back(text: str):
    type_ = read_tensor_type(text)
    assert type_text(type_).replace(" ", "") == text.replace(" ", "")
    assert type_text(read_tensor_type(type_text(type_))) == type_text(type_)
    assert type_.nbytes == type_.size
    assert pickle.loads(pickle.dumps(type_)) is type_
    assert tensor(dtype(type_.dtype.name), type_.shape) is type_


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("tensor<4x!quant.uniform<i8:f32:0, {0.1,0.2}>>", "2 scales along dimension 0 of [4]"),
        ("tensor<4x!quant.uniform<i8:f32:1, {0.1}>>", "along dimension 1 of [4]"),
        ("tensor<4x!quant.uniform<i8<-200:127>:f32, 0.1>>", "holds -128 to 127"),
        ("tensor<4x!quant.uniform<i8:f32, {0.1}>>", "several scales need the dimension"),
        ("tensor<4x!quant.uniform<f8:f32, 0.1>>", "is not a quantized type"),
    ],
)
def test_mistakes_in_quantized_types_are_named(text: str, what: str):
    with pytest.raises(GraphgenError, match="GG0101") as caught:
        read_stablehlo(f"func.func @main(%x: {text}) -> {text} {{\n  return %x : {text}\n}}\n")
    assert what in str(caught.value)


def test_types_of_values_are_compared():
    other = QUANTIZED.replace("0.2:3", "0.2:4")
    assert not same(read_stablehlo(QUANTIZED), read_stablehlo(other))
    assert not same(
        read_stablehlo(BOUNDED), read_stablehlo(BOUNDED.replace("bounds<8", "bounds<9"))
    )


def test_bounds_are_shown():
    module = read_stablehlo(BOUNDED)
    (function,) = module.programs()
    assert [shown_type(value) for value in function.args] == ["f32[<=8,4]", "s32[]"]
    assert shown_type(function.outputs[0][1]) == "f32[<=8,4]"
    assert module.meta["opaque"] == (
        "stablehlo.add: it has bounded sizes (1); stablehlo.get_dimension_size: it has bounded sizes"
        " (1); stablehlo.set_dimension_size: it has bounded sizes (1)"
    )
    # What has fixed sizes is an op as any other.
    assert [op.name for op in function.ops].count("minimum") == 1


def test_hlo_with_bounds_is_written_again_and_not_as_stablehlo():
    module = read_hlo(parse_hlo_text(BOUNDED_HLO))
    text = print_hlo_text(emit_hlo(module, module.programs()[0]))
    assert "%a = f32[<=8,4]{1,0} add(%p, %p)" in text
    with pytest.raises(GraphgenError, match="HLO's get-dimension-size has no StableHLO form"):
        emitted(module)


@pytest.mark.parametrize(
    ("text", "what", "help"),
    [
        (QUANTIZED, "stablehlo.dot_general on quant<i32:f32:1;", "legalize-quant-to-math"),
        (BOUNDED, "stablehlo.add on f32[<=8,4]", "trace the program with fixed sizes"),
        (TOKENS, "stablehlo.infeed needs a host", ""),
    ],
    ids=FORMS,
)
def test_running_is_refused_by_name(text: str, what: str, help: str):
    module = read_stablehlo(text)
    (function,) = module.programs()
    found = [refusal(op) for op in function.ops if op.name == "hlo.opaque"]
    assert what in str([str(error) for error in found])
    assert help in str([str(error) for error in found])
    with pytest.raises(GraphgenError, match="GG0403"):
        compile_program(module, function)
    with pytest.raises(GraphgenError, match="GG0401"):
        emit_hlo(module, function)


def test_numpy_refuses_quantized_values_and_bounded_ops():
    module = read_stablehlo(BOUNDED)
    given = {"x": np.zeros((8, 4), np.float32), "n": np.int32(3)}
    with pytest.raises(GraphgenError, match="sizes that are only bounded have no values here"):
        evaluate(module.programs()[0], given)
    with pytest.raises(GraphgenError, match="no op here computes with"):
        numpy_dtype(dtype("quant<i8:f32;0.1:5>"))


def test_what_has_an_effect_stays():
    module = read_stablehlo(TOKENS)
    run_pipeline(module, parse_pipeline("cse,dce"))
    text = emitted(module)
    assert '"stablehlo.outfeed"' in text
    assert '"stablehlo.infeed"' in text


def test_tokens_reach_hlo_and_come_back():
    text = """func.func @main(%t0: !stablehlo.token) -> !stablehlo.token {
  %t = stablehlo.create_token : !stablehlo.token
  %u = stablehlo.after_all %t, %t0 : !stablehlo.token
  return %u : !stablehlo.token
}
"""
    module = read_stablehlo(text)
    again = read_hlo(emit_hlo(module, module.programs()[0]))
    assert "stablehlo.after_all %" in emitted(again)
    assert emitted(again).count("stablehlo.create_token : !stablehlo.token") == 1


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (
            "chlo.broadcast_add %x, %x : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>",
            "chlo.broadcast_add",
        ),
        ('"chlo.zeta"(%x, %x) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>', "chlo.zeta"),
    ],
)
def test_an_op_of_chlo_without_a_row_is_named(line: str, what: str):
    with pytest.raises(GraphgenError, match=f"{what} is not modelled"):
        read_stablehlo(
            f"func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {{\n  %0 = {line}\n"
            "  return %0 : tensor<3xf32>\n}\n"
        )


def test_a_pass_that_changes_the_types_around_it_is_caught():
    module = read_stablehlo(BOUNDED)
    (function,) = module.programs()
    function.args[1].type = tensor(dtype("s64"))
    add = next(op for op in function.ops if op.attrs.get("opcode") == "stablehlo.add")
    add.result.type = tensor(dtype("f16"), (8, 4))
    with pytest.raises(GraphgenError, match="GG0401"):
        emitted(module)


def test_loops_over_bounded_sizes_are_refused_by_name():
    text = """func.func @main(%x: tensor<?xf32, #stablehlo.bounds<8>>, %p: tensor<i1>) -> tensor<?xf32, #stablehlo.bounds<8>> {
  %0 = "stablehlo.if"(%p) ({
    stablehlo.return %x : tensor<?xf32, #stablehlo.bounds<8>>
  }, {
    stablehlo.return %x : tensor<?xf32, #stablehlo.bounds<8>>
  }) : (tensor<i1>) -> tensor<?xf32, #stablehlo.bounds<8>>
  return %0 : tensor<?xf32, #stablehlo.bounds<8>>
}
"""
    with pytest.raises(GraphgenError, match="bounded sizes in loops and branches"):
        read_stablehlo(text)


def test_sizes_without_a_bound_are_symbols():
    text = "func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {\n  return %x : tensor<?xf32>\n}\n"
    module = read_stablehlo(text)
    assert module.programs()[0].args[0].type.text == "f32[x_0]"
    assert "%x: tensor<?xf32>" in emit_stablehlo(module, module.programs()[0])


def test_a_short_form_that_only_jaxlib_knows_is_named_beside_quantized_types():
    line = "chlo.broadcast_add %x, %x : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>"
    text = QUANTIZED.replace("  %1 =", f"  %9 = {line.replace('%x', '%f')}\n  %1 =")
    text = text.replace("main(%x", "main(%f: tensor<2xf32>, %x")
    with pytest.raises(GraphgenError, match=r"short form of chlo\.broadcast_add") as caught:
        read_stablehlo(text)
    assert "--mlir-print-op-generic" in str(caught.value)
    # jaxlib cannot read it: what it says is followed by what to do.
    with pytest.raises(GraphgenError, match="jaxlib does not have quantized types"):
        generic_text(QUANTIZED, "quantized.mlir")


def test_stated_results_may_have_types_with_parameters():
    text = (
        "func.func @main(%x: tensor<3xcomplex<f32>>) -> (tensor<3xcomplex<f32>>, tensor<2xi1>) {\n"
        "  %0 = chlo.asin %x : tensor<3xcomplex<f32>> -> tensor<3xcomplex<f32>>\n"
        "  %1 = stablehlo.constant dense<true> : tensor<2xi1>\n"
        "  return %0, %1 : tensor<3xcomplex<f32>>, tensor<2xi1>\n}\n"
    )
    stated = stated_interface(text.encode(), "asin.mlir")
    assert [kind.text for kind in stated.arguments] == ["c64[3]"]
    assert [kind.text for kind in stated.results] == ["c64[3]", "pred[2]"]
