"""Attributes of composites and of functions that are called: compared, and written again."""

# MLIR writes long lines.
# ruff: noqa: E501

from __future__ import annotations

import numpy as np
import pytest

from graphgen.eval import evaluate
from graphgen.ir import Module
from graphgen.lowering.mlir.generic_form import generic_text
from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo
from graphgen.report.diff import diff_functions

CALLS = """module @m {
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = func.call @inner(%x) : (tensor<4xf32>) -> tensor<4xf32>
    %1 = func.call @plain(%0) : (tensor<4xf32>) -> tensor<4xf32>
    %2 = stablehlo.composite "my.op" %1 {composite_attributes = {a = 1 : i32, mode = "fast"}, decomposition = @decomposed, version = 2 : i32} : (tensor<4xf32>) -> tensor<4xf32>
    %3 = func.call @inner(%2) : (tensor<4xf32>) -> tensor<4xf32>
    return %3 : tensor<4xf32>
  }
  func.func private @inner(%a: tensor<4xf32> {mhlo.sharding = "{replicated}", my.note = 3 : i32}) -> (tensor<4xf32> {mhlo.sharding = "{devices=[2]<=[2]}"}) {
    %0 = stablehlo.sine %a : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func private @decomposed(%a: tensor<4xf32> {mhlo.layout_mode = "{0}"}) -> tensor<4xf32> {
    %0 = stablehlo.negate %a : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func private @plain(%a: tensor<4xf32>) -> (tensor<4xf32> {jax.result_info = "x"}) {
    %0 = stablehlo.cosine %a : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""


@pytest.fixture(scope="module")
def module() -> Module:
    return read_stablehlo(CALLS)


def differences(left: Module, right: Module) -> list[str]:
    found = diff_functions((left, right), left.programs()[0], right.programs()[0])
    assert not found.changes
    return found.interface


def test_what_has_attributes_stays_a_function_and_the_rest_is_inlined(module: Module):
    assert [op.name for op in module.programs()[0].ops] == ["call", "cosine", "call", "call"]
    given = {"x": np.asarray([0.5, 1, 2, 3], np.float32)}
    wanted = np.sin(-np.cos(np.sin(given["x"])))
    found = evaluate(module.programs()[0], given, module=module)["result"]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_attributes_of_arguments_and_results_are_written_again(module: Module):
    text = emit_stablehlo(module, module.programs()[0], locs=False)
    generic_text(text, "written")
    assert (
        'private @"call.inner"(%a: tensor<4xf32> {mhlo.sharding = "{replicated}", my.note = 3 : i32})'
        ' -> (tensor<4xf32> {mhlo.sharding = "{devices=[2]<=[2]}"}) {'
    ) in text
    assert 'mhlo.layout_mode = "{0}"' in text
    again = read_stablehlo(text)
    assert differences(module, again) == []
    assert emit_stablehlo(again, again.programs()[0], locs=False).count("my.note = 3") == 1
    # XLA runs it without what is for its partitioner.
    bare = emit_stablehlo(module, module.programs()[0], locs=False, preserved=False)
    assert "mhlo.sharding" not in bare


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("a = 1", "a = 3", 'call of my.op: attributes {a = 1 : i32, mode = "fast"} / {a = 3'),
        ("version = 2", "version = 4", "call of my.op: version 2 / 4"),
        ('"my.op"', '"your.op"', "call of my.op: name my.op / your.op"),
        ("my.note = 3", "my.note = 5", "call of @inner: argument 0: mlir.my.note 3 : i32 / 5"),
        ("[2]<=[2]", "[1]<=[1]", "call of @inner: result0.sharding {devices=[2]<=[2]} / "),
        ("{replicated}", "{maximal device=0}", "call of @inner: argument 0: hlo.sharding"),
    ],
)
def test_each_is_compared(module: Module, old: str, new: str, what: str):
    found = differences(module, read_stablehlo(CALLS.replace(old, new)))
    assert len(found) == (2 if "@inner" in what else 1)
    assert found[0].startswith(what)


def test_a_composite_that_the_other_program_does_not_have(module: Module):
    line = next(line for line in CALLS.splitlines() if "composite" in line)
    plain = CALLS.replace(line, "    %2 = stablehlo.negate %1 : tensor<4xf32>")
    found = differences(module, read_stablehlo(plain))
    assert "call of my.op is in the first only" in found
    assert "call of my.op is in the second only" in differences(read_stablehlo(plain), module)
