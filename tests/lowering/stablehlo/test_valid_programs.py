"""Valid programs in forms of other tools: several programs, wider regions, numbered dimensions."""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.eval import Array, evaluate
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.hlo_text.hlo_printer import print_hlo_text
from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo

PROGRAMS = """module {
  func.func @forward(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = func.call @helper(%x) : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func @helper(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.negate %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func @step(%x: tensor<2xf32> {tf.aliasing_output = 0 : i32}) -> tensor<2xf32> {
    %0 = stablehlo.add %x, %x : tensor<2xf32>
    return %0 : tensor<2xf32>
  }
  func.func @init() -> tensor<i32> {
    %0 = stablehlo.constant dense<3> : tensor<i32>
    return %0 : tensor<i32>
  }
}
"""


def run(text: str, given: Mapping[str, Array], program: str = "") -> list[Array]:
    """The outputs of a program, which are also those of what is written back."""
    module = read_stablehlo(text)
    function = module.function(program) if program else module.programs()[0]
    found = [*evaluate(function, given, module=module).values()]
    again = read_stablehlo(emit_stablehlo(module, function))
    for one, other in zip(
        found, evaluate(again.programs()[0], given, module=again).values(), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    return found


def test_each_public_function_that_none_calls_is_a_program():
    module = read_stablehlo(PROGRAMS)
    assert [f.name for f in module.programs()] == ["forward", "step", "init"]
    # What two programs have otherwise is named after its program.
    assert [*module.interface] == ["x", "result", "step.x", "init.result"]
    x = np.array([1, 2], np.float32)
    (made,) = run(PROGRAMS, {"step.x": x}, "step")
    np.testing.assert_array_equal(made, 2 * x)
    (made,) = run(PROGRAMS, {"x": np.arange(4, dtype=np.float32)}, "forward")
    np.testing.assert_array_equal(made, -np.arange(4, dtype=np.float32))
    assert run(PROGRAMS, {}, "init")[0] == 3


def test_a_module_with_main_has_that_program():
    module = read_stablehlo(PROGRAMS.replace("@step", "@main"))
    assert [f.name for f in module.programs()] == ["main"]


def test_a_module_without_public_functions_lists_what_it_has():
    text = PROGRAMS.replace("func.func @", "func.func private @")
    with pytest.raises(GraphgenError, match="no other public one") as caught:
        read_stablehlo(text)
    assert caught.value.help == "its functions: @forward, @helper, @step, @init"


def region(op: str, wide: str, count: int = 2) -> str:
    names = [f"%r{number}" for number in range(count)]
    scalar = f"tensor<{wide}>"
    arguments = ", ".join([f"{name}: {scalar}" for name in names])
    return (
        f"({{ ^bb0({arguments}):\n %made = stablehlo.{op} {names[0]}, {names[1]} : {scalar}\n"
        f" stablehlo.return %made : {scalar} }})"
    )


def reduced(given: str, wide: str) -> str:
    return f"""func.func @main(%a: tensor<4x3x{given}>, %b: tensor<{given}>) -> tensor<3x{wide}> {{
  %0 = "stablehlo.reduce"(%a, %b) {region("add", wide)} {{dimensions = array<i64: 0>}}
    : (tensor<4x3x{given}>, tensor<{given}>) -> tensor<3x{wide}>
  return %0 : tensor<3x{wide}>
}}"""


@pytest.mark.parametrize(
    ("given", "wide", "dtype", "to"),
    [
        ("f32", "f64", np.float32, np.float64),
        ("bf16", "f32", ml_dtypes.bfloat16, np.float32),
        ("i8", "i32", np.int8, np.int32),
        ("ui8", "ui16", np.uint8, np.uint16),
        ("complex<f32>", "complex<f64>", np.complex64, np.complex128),
    ],
)
def test_a_region_accumulates_in_a_wider_type(given: str, wide: str, dtype: type, to: type):
    x = np.array([[100, 1, 2], [100, 3, 4], [100, 5, 6], [100, 7, 8]]).astype(dtype)
    (made,) = run(reduced(given, wide), {"a": x, "b": np.array(1, dtype)})
    assert made.dtype == to
    np.testing.assert_array_equal(made, x.astype(to).sum(0) + np.array(1, to))


@pytest.mark.parametrize(("given", "wide"), [("f64", "f32"), ("i32", "f32"), ("i8", "ui16")])
def test_a_region_of_no_wider_type_is_refused(given: str, wide: str):
    with pytest.raises(
        GraphgenError, match=f"reduce reads {given}, but its region combines {wide}\n"
    ) as caught:
        read_stablehlo(reduced(given, wide))
    assert caught.value.code == "GG0203"


WIDE = {
    "reduce_window": f"""func.func @main(%a: tensor<4xf32>) -> tensor<2xf64> {{
  %b = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%a, %b) {region("add", "f64")} {{
    window_dimensions = array<i64: 2>, window_strides = array<i64: 2>}}
    : (tensor<4xf32>, tensor<f32>) -> tensor<2xf64>
  return %0 : tensor<2xf64>
}}""",
    "scatter": f"""func.func @main(%a: tensor<4xf32>) -> tensor<4xf64> {{
  %i = stablehlo.constant dense<[[1], [1]]> : tensor<2x1xi32>
  %u = stablehlo.constant dense<[1.5, 2.5]> : tensor<2xf32>
  %0 = "stablehlo.scatter"(%a, %i, %u) {region("add", "f64")} {{
    scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
      scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}
    : (tensor<4xf32>, tensor<2x1xi32>, tensor<2xf32>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}}""",
    "select_and_scatter": f"""func.func @main(%a: tensor<4xf32>) -> tensor<4xf64> {{
  %s = stablehlo.constant dense<[1.5, 2.5]> : tensor<2xf32>
  %b = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.select_and_scatter"(%a, %s, %b) ({{ ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %c = stablehlo.compare GE, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1> }}, {region("add", "f64")[1:-1]}) {{
    window_dimensions = array<i64: 2>, window_strides = array<i64: 2>}}
    : (tensor<4xf32>, tensor<2xf32>, tensor<f32>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}}""",
}
SUMS = {
    "reduce_window": [3.0, 7.0],
    "scatter": [1.0, 6.0, 3.0, 4.0],
    "select_and_scatter": [0.0, 1.5, 0.0, 2.5],
}


@pytest.mark.parametrize("op", WIDE)
def test_every_reduction_has_wider_regions(op: str):
    (made,) = run(WIDE[op], {"a": np.arange(1, 5, dtype=np.float32)})
    assert made.dtype == np.float64
    np.testing.assert_array_equal(made, SUMS[op])


@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter"])
def test_collectives_have_wider_regions(op: str):
    more = "scatter_dimension = 0 : i64, " if op == "reduce_scatter" else ""
    size = 2 if op == "reduce_scatter" else 4
    text = f"""module attributes {{mhlo.num_replicas = 2 : i32}} {{
  func.func @main(%a: tensor<4xbf16>) -> tensor<{size}xf32> {{
  %0 = "stablehlo.{op}"(%a) {region("add", "f32")} {{{more}
    replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}} : (tensor<4xbf16>) -> tensor<{size}xf32>
  return %0 : tensor<{size}xf32>
}}}}"""
    ops = [op.name for op in read_stablehlo(text).programs()[0].block]
    assert ops == ["convert", op]


def test_an_initial_value_that_is_not_a_scalar_is_refused_as_the_file_has_it():
    text = reduced("f32", "f32").replace("%b: tensor<f32>", "%b: tensor<4xf32>")
    text = text.replace(" tensor<f32>) -> tensor<3xf32>", " tensor<4xf32>) -> tensor<3xf32>")
    with pytest.raises(GraphgenError, match=r"an initial value is f32\[4\], not a scalar"):
        read_stablehlo(text)


def raw(numbers: str) -> str:
    return f"""func.func @main(%a: tensor<2x4x4x1xf32>, %w: tensor<3x1x3x2xf32>) -> \
tensor<2x1x2x2xf32> {{
  %r = "stablehlo.convolution"(%a, %w) {{batch_group_count = 1 : i64,
    feature_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<raw {numbers}>}}
    : (tensor<2x4x4x1xf32>, tensor<3x1x3x2xf32>) -> tensor<2x1x2x2xf32>
  return %r : tensor<2x1x2x2xf32>
}}"""


NUMBERS = (
    "input_batch_dimension = 3, input_feature_dimension = 0, input_spatial_dimensions = [2, 1], "
    "kernel_input_feature_dimension = 3, kernel_output_feature_dimension = 1, "
    "kernel_spatial_dimensions = [2, 0], output_batch_dimension = 1, "
    "output_feature_dimension = %s, output_spatial_dimensions = [2, %s]"
)


def test_a_convolution_states_its_dimensions_by_number():
    short = raw("X").replace("#stablehlo.conv<raw X>", "#stablehlo.conv<[f, 1, 0, b]x[1, o, 0, i]")
    short = short.replace("0, i]", "0, i]->[f, b, 0, 1]>").replace("tensor<2x1x2x2xf32>", "OUT")
    numbered = raw(NUMBERS % (0, 3)).replace("tensor<2x1x2x2xf32>", "OUT")
    rng = np.random.default_rng(0)
    given = {
        "a": rng.standard_normal((2, 4, 4, 1)).astype(np.float32),
        "w": rng.standard_normal((3, 1, 3, 2)).astype(np.float32),
    }
    texts = [text.replace("OUT", "tensor<1x1x2x2xf32>") for text in (short, numbered)]
    one, other = (run(text, given)[0] for text in texts)
    np.testing.assert_array_equal(one, other)


def test_numbers_that_do_not_cover_the_dimensions_are_refused():
    with pytest.raises(GraphgenError, match="the dimensions of its output are not 0 to 3"):
        read_stablehlo(raw(NUMBERS % (3, 3)))


def test_indices_are_integers_of_64_bits():
    text = """func.func @main(%a: tensor<2xindex>) -> tensor<2xindex> {
  %c = arith.constant dense<[3, 4]> : tensor<2xindex>
  %0 = stablehlo.add %a, %c : tensor<2xindex>
  return %0 : tensor<2xindex>
}"""
    (made,) = run(text, {"a": np.array([1, 2], np.int64)})
    np.testing.assert_array_equal(made, [4, 6])


def scatter(updates: int, body: str) -> str:
    return f"""func.func @main(%a: tensor<f32>, %u: tensor<{updates}xf32>) -> tensor<f32> {{
  %i = stablehlo.constant dense<0> : tensor<{updates}x0xi32>
  %0 = "stablehlo.scatter"(%a, %i, %u) ({{ ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    {body} }}) {{scatter_dimension_numbers = #stablehlo.scatter<index_vector_dim = 1>}}
    : (tensor<f32>, tensor<{updates}x0xi32>, tensor<{updates}xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}}"""


ASSIGN = "stablehlo.return %q : tensor<f32>"
ADD = "%s = stablehlo.add %p, %q : tensor<f32>\n stablehlo.return %s : tensor<f32>"
TURNED = "%s = stablehlo.subtract %q, %p : tensor<f32>\n stablehlo.return %s : tensor<f32>"


@pytest.mark.parametrize(
    ("updates", "body", "wanted"),
    [
        ([5.0], ASSIGN, 5.0),
        ([5.0, 7.0, 1.0], ADD, 23.0),
        # 5 - 10 = -5, 7 + 5 = 12, 1 - 12 = -11
        ([5.0, 7.0, 1.0], TURNED, -11.0),
        ([], ADD, 10.0),
    ],
)
def test_a_scalar_takes_updates(updates: list[float], body: str, wanted: float):
    given = {"a": np.array(10, np.float32), "u": np.array(updates, np.float32)}
    (made,) = run(scatter(len(updates), body), given)
    assert made.shape == ()
    assert made == wanted


HLO = {
    "collective-broadcast": "ROOT r = f32[4] collective-broadcast(x), channel_id=3, "
    "replica_groups={{0,1},{2,3}}",
    "set-dimension-size": "n = s32[] parameter(1)\n"
    "ROOT r = f32[<=4] set-dimension-size(x, n), dimensions={0}",
}


@pytest.mark.parametrize("code", HLO)
def test_instructions_of_hlo_come_back_from_stablehlo(code: str):
    text = f"HloModule m, replica_count=4\nENTRY e {{\nx = f32[4] parameter(0)\n{HLO[code]}\n}}\n"
    module = read_hlo(parse_hlo_text(text))
    written = emit_stablehlo(module, module.function("e"))
    assert f"stablehlo.{code.replace('-', '_')}" in written
    again = read_stablehlo(written)
    word = f"stablehlo.{code.replace('-', '_')}"
    assert emit_stablehlo(again, again.programs()[0], locs=False).count(word) == 1
    if code == "collective-broadcast":
        back = print_hlo_text(emit_hlo(again, again.programs()[0]))
        assert "channel_id=3, replica_groups={{0,1},{2,3}}" in back
    else:
        assert "#stablehlo.bounds<4>" in written


def test_results_may_be_tuples():
    text = """func.func @main(%a: tensor<2xf32>, %b: tensor<2xf32>) -> TUPLE {
  %0 = stablehlo.add %a, %b : tensor<2xf32>
  %1 = stablehlo.tuple %b : tuple<tensor<2xf32>>
  %2 = stablehlo.tuple %0, %1 : tuple<tensor<2xf32>, tuple<tensor<2xf32>>>
  %3 = stablehlo.get_tuple_element %2[1] : (tuple<tensor<2xf32>, tuple<tensor<2xf32>>>) -> \
tuple<tensor<2xf32>>
  %4 = stablehlo.get_tuple_element %3[0] : (tuple<tensor<2xf32>>) -> tensor<2xf32>
  %5 = stablehlo.negate %4 : tensor<2xf32>
  %6 = stablehlo.tuple %5, %3 : tuple<tensor<2xf32>, tuple<tensor<2xf32>>>
  return %6 : tuple<tensor<2xf32>, tuple<tensor<2xf32>>>
}""".replace("TUPLE", "tuple<tensor<2xf32>, tuple<tensor<2xf32>>>")
    a, b = np.array([1, 2], np.float32), np.array([3, 4], np.float32)
    module = read_stablehlo(text)
    assert [value.name for value in module.programs()[0].args] == ["a", "b"]
    found = run(text, {"a": a, "b": b})
    np.testing.assert_array_equal(found, [-b, b])
