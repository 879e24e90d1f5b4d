"""Forms that other compilers write: calls without results, scalar predicates, complex numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.third_party_stablehlo import measure
from graphgen.errors import GraphgenError
from graphgen.eval import evaluate
from graphgen.ir import Module
from graphgen.lowering.cpu import compile_program
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo


def read(body: str, head: str = "") -> Module:
    text = f"func.func @main({head}) -> {body.splitlines()[0]} {{\n"
    return read_stablehlo(text + "\n".join(body.splitlines()[1:]) + "\n}\n")


CHECK = """tensor<2xf32>
  stablehlo.custom_call @check.nothing(%a) {has_side_effect = true} : (tensor<2xf32>) -> ()
  return %a : tensor<2xf32>"""


def test_what_is_left_out_of_a_module_is_counted():
    symbols = [f'  "ml_program.global"() {{sym_name = "{name}"}} : () -> ()' for name in "vw"]
    for count in (1, 2):
        body = "\n".join(symbols[:count])
        module = read_stablehlo(f"module @m {{\n{body}\n  func.func @main() {{ return }}\n}}\n")
        assert module.meta["dropped"] == f"ml_program.global ({count} ops)"


def test_a_call_without_results_is_kept():
    module = read(CHECK, "%a: tensor<2xf32>")
    (call,) = module.programs()[0].ops
    assert (call.name, call.attrs["silent"]) == ("custom_call", True)
    text = emit_stablehlo(module, module.programs()[0], locs=False)
    line = 'stablehlo.custom_call @"check.nothing"(%a) {has_side_effect = true}'
    assert f"{line} : (tensor<2xf32>) -> ()" in text
    again = read_hlo(emit_hlo(module, module.programs()[0]))
    (back,) = again.programs()[0].ops
    assert (back.attrs["target"], back.attrs["silent"]) == ("check.nothing", True)
    assert line in emit_stablehlo(again, again.programs()[0], locs=False)


def test_a_scalar_predicate_selects_everywhere():
    body = """tensor<2xf32>
  %0 = stablehlo.select %p, %a, %b : tensor<i1>, tensor<2xf32>
  return %0 : tensor<2xf32>"""
    module = read(body, "%p: tensor<i1>, %a: tensor<2xf32>, %b: tensor<2xf32>")
    a, b = np.array([1, 2], np.float32), np.array([3, 4], np.float32)
    for which, wanted in ((True, a), (False, b)):
        given = {"p": np.array(which), "a": a, "b": b}
        (found,) = evaluate(module.programs()[0], given).values()
        np.testing.assert_array_equal(found, wanted)


def test_doubles_are_rounded_and_read_as_bits():
    body = """(tensor<f64>, tensor<ui64>)
  %0 = stablehlo.reduce_precision %x, format = e5m10 : tensor<f64>
  %1 = stablehlo.bitcast_convert %x : (tensor<f64>) -> tensor<ui64>
  return %0, %1 : tensor<f64>, tensor<ui64>"""
    x = np.array(1.200686436252084)
    rounded, bits = evaluate(read(body, "%x: tensor<f64>").programs()[0], {"x": x}).values()
    assert (rounded, rounded.dtype) == (1.201171875, np.float64)
    assert (bits.dtype, bits[()]) == (np.uint64, x.view(np.uint64)[()])


COMPLEX = """tensor<2xcomplex<f64>>
  %c = stablehlo.constant dense<[(1.0, -0.5), (0.25, 2.0)]> : tensor<2xcomplex<f64>>
  %s = stablehlo.constant dense<(0.0, 1.0)> : tensor<2xcomplex<f64>>
  %0 = stablehlo.multiply %c, %s : tensor<2xcomplex<f64>>
  %1 = stablehlo.real %0 : (tensor<2xcomplex<f64>>) -> tensor<2xf64>
  %2 = stablehlo.abs %c : (tensor<2xcomplex<f64>>) -> tensor<2xf64>
  %3 = stablehlo.complex %1, %2 : tensor<2xcomplex<f64>>
  return %3 : tensor<2xcomplex<f64>>"""


def test_complex_numbers_in_double_precision():
    module = read(COMPLEX)
    function = module.programs()[0]
    value = np.array([1 - 0.5j, 0.25 + 2j])
    wanted = (value * 1j).real + 1j * abs(value)
    (found,) = evaluate(function, {}).values()
    assert found.dtype == np.complex128
    np.testing.assert_allclose(found, wanted, rtol=1e-15)
    (theirs,) = compile_program(module, function).run_numpy([{}])
    np.testing.assert_allclose(next(iter(theirs.values())), wanted, rtol=1e-15)


SELF_JUDGING = """module @m {
  func.func public @main() -> (tensor<2xf32> {jax.result_info = ""}) {
    %0 = call @inputs() : () -> tensor<2xf32>
    %1 = stablehlo.constant dense<[WANTED, 4.0]> : tensor<2xf32>
    %2 = stablehlo.add %0, %0 : tensor<2xf32>
    stablehlo.custom_call @check.expect_eq(%2, %1) {has_side_effect = true} : \
(tensor<2xf32>, tensor<2xf32>) -> ()
    return %2 : tensor<2xf32>
  }
  func.func private @inputs() -> tensor<2xf32> {
    %c = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
    return %c : tensor<2xf32>
  }
}
"""


@pytest.mark.parametrize(("wanted", "verdict"), [("2.0", "yes"), ("2.5", "wrong")])
def test_the_benchmark_believes_the_checks_of_a_file(tmp_path: Path, wanted: str, verdict: str):
    path = tmp_path / "f.mlir"
    path.write_text(SELF_JUDGING.replace("WANTED", wanted))
    legs = measure(path)
    judged = {"numpy_right", "xla_right"}
    assert {leg: legs[leg] for leg in judged} == dict.fromkeys(judged, verdict)
    assert {legs[leg] for leg in legs.keys() - judged} == {"yes"}


@pytest.mark.parametrize("data", ["0x0100000101000101010001", "0x9905"])
def test_truth_values_are_bytes_in_new_files_and_bits_in_old_ones(data: str):
    body = f'''tensor<11xi1>
  %c = stablehlo.constant dense<"{data}"> : tensor<11xi1>
  return %c : tensor<11xi1>'''
    (found,) = evaluate(read(body).programs()[0], {}).values()
    wanted = {"0x01": [1, 0, 0, 1, 1, 0, 1, 1, 1, 0, 1], "0x99": [1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 1]}
    assert found.tolist() == [bool(bit) for bit in wanted[data[:4]]]


def test_a_check_against_a_constant_is_a_call_of_both(tmp_path: Path):
    text = """func.func @main() {
  %0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
  "check.expect_eq_const"(%0) <{value = dense<[1, 2]> : tensor<2xi32>}> : (tensor<2xi32>) -> ()
  return
}
"""
    module = read_stablehlo(text)
    _, wanted, call = module.programs()[0].ops
    assert call.attrs["target"] == "check.expect_eq"
    assert call.operands[1] is wanted.result
    # As StableHLO's own files have it: several modules, of which one is wrong.
    file = tmp_path / "checks.mlir"
    wrong = text.replace("@main", "@other").replace("value = dense<[1, 2]", "value = dense<[1, 3]")
    for second, said in ((text, "yes"), (wrong, "wrong")):
        file.write_text(f"module {{\n{text}}}\n// -----\nmodule {{\n{second}}}\n")
        legs = measure(file)
        assert (legs["read"], legs["numpy_right"], legs["xla_right"]) == ("yes", said, said)


def test_a_text_of_several_modules_is_refused_by_name():
    one = "module {\n  func.func @main() { return }\n}\n"
    with pytest.raises(GraphgenError, match="the text holds 2 modules"):
        read_stablehlo(f"{one}// -----\n{one}")
