"""Batch norms, and StableHLO's ops with computed shapes, read as other ops and run beside XLA."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.eval import Array, evaluate, numpy_dtype
from graphgen.ir import Module, dtype
from graphgen.lowering.cpu import compile_program, pjrt
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo
from tests.oracles import xla_hlo

pytestmark = pytest.mark.usefixtures("optimized_code")

NORMS = {
    "training": ("(T, f32[3], f32[3])", "x, s, o"),
    "inference": ("T", "x, s, o, m, v"),
    "grad": ("(T, f32[3], f32[3])", "x, s, m, v, g"),
}


def norm_inputs(shape: tuple[int, ...]) -> list[Array]:
    random = np.random.default_rng(1)
    vectors = [random.standard_normal(3).astype(np.float32) for _ in range(3)]
    x, above = (random.standard_normal(shape).astype(np.float32) for _ in "xg")
    return [x, *vectors, np.abs(random.standard_normal(3)).astype(np.float32), above]


def outputs(module: Module, arrays: list[Array]) -> list[Array]:
    function = module.programs()[0]
    names = [value.name or "" for value in function.args]
    given = dict(zip(names, arrays, strict=True))
    return [*evaluate(function, given, module=module).values()]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("shape", "feature"), [((2, 3, 4), 1), ((5, 3), 1), ((3, 2), 0), ((3,), 0)]
)
@pytest.mark.parametrize("name", NORMS)
def test_batch_norms_are_those_of_xla(name: str, shape: tuple[int, ...], feature: int):
    made, operands = NORMS[name]
    type_ = f"f32[{','.join(map(str, shape))}]"
    lines = [
        f"  {arg} = {type_ if arg in 'xg' else 'f32[3]'} parameter({n})"
        for n, arg in enumerate("xsomvg")
    ]
    body = f"batch-norm-{name}({operands}), epsilon=0.125, feature_index={feature}"
    root = f"  ROOT r = {made.replace('T', type_)} {body}\n}}\n"
    proto = parse_hlo_text("\n".join(["HloModule m\nENTRY e {", *lines, root]))
    given = norm_inputs(shape)
    (wanted,) = xla_hlo.run(proto, [given])
    module = read_hlo(proto)
    assert "hlo.opaque" not in {op.name for op in module.programs()[0].block}
    stable = read_stablehlo(emit_stablehlo(module, module.programs()[0]))
    (again,) = xla_hlo.run(emit_hlo(module, module.programs()[0]), [given])
    for found in (outputs(module, given), outputs(stable, given), again):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


NORM_TEXT = """\
module @m {{
  func.func public @main(%x: tensor<2x3x{kind}>, %s: tensor<3x{kind}>, %o: tensor<3x{kind}>) \
-> (tensor<2x3x{kind}>, tensor<3x{kind}>, tensor<3x{kind}>) {{
    %0:3 = "stablehlo.batch_norm_training"(%x, %s, %o) \
<{{epsilon = 1.250000e-01 : f32, feature_index = 1 : i64}}> : \
(tensor<2x3x{kind}>, tensor<3x{kind}>, tensor<3x{kind}>) -> \
(tensor<2x3x{kind}>, tensor<3x{kind}>, tensor<3x{kind}>)
    return %0#0, %0#1, %0#2 : tensor<2x3x{kind}>, tensor<3x{kind}>, tensor<3x{kind}>
  }}
}}
"""


@pytest.mark.parametrize("kind", ["f32", "bf16", "f64"])
def test_batch_norms_of_stablehlo(kind: str):
    text = NORM_TEXT.format(kind=kind)
    given = [a.astype(numpy_dtype(dtype(kind))) for a in norm_inputs((2, 3))[:3]]
    buffers = [pjrt.put([array]) for array in given]
    wanted = [np.asarray(item[0]) for item in pjrt.launch(pjrt.compile_text(text, 1), buffers)]
    tolerance = {"f32": 1e-5, "bf16": 2e-2, "f64": 1e-12}[kind]
    for one, other in zip(outputs(read_stablehlo(text), given), wanted, strict=True):
        assert one.dtype == other.dtype
        one, other = one.astype(np.float64), other.astype(np.float64)
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def shape(*sizes: int) -> str:
    return f"stablehlo.constant dense<[{', '.join(map(str, sizes))}]> : tensor<{len(sizes)}xi64>"


# Name -> the ops after `%x`, a tensor<2x6xf32>; the type of %r; the value it has, by NumPy.
X = np.arange(12, dtype=np.float32).reshape(2, 6)
DYNAMIC: dict[str, tuple[str, str, object]] = {
    "reshape": (
        f"%s = {shape(3, 4)}\n"
        "%r = stablehlo.dynamic_reshape %x, %s : (tensor<2x6xf32>, tensor<2xi64>) -> "
        "tensor<3x4xf32>",
        "3x4xf32",
        X.reshape(3, 4),
    ),
    "broadcast": (
        f"%s = {shape(3, 2, 6)}\n%r = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [1, 2] : "
        "(tensor<2x6xf32>, tensor<3xi64>) -> tensor<3x2x6xf32>",
        "3x2x6xf32",
        np.broadcast_to(X, (3, 2, 6)),
    ),
    "iota": (
        f"%s = {shape(2, 3)}\n"
        "%r = stablehlo.dynamic_iota %s, dim = 1 : (tensor<2xi64>) -> tensor<2x3xf32>",
        "2x3xf32",
        [[0, 1, 2]] * 2,
    ),
    "pad": (
        "%z = stablehlo.constant dense<7.0> : tensor<f32>\n"
        f"%l = {shape(0, 1)}\n%h = {shape(1, -2)}\n"
        f"%i = {shape(1, 0)}\n%r = stablehlo.dynamic_pad %x, %z, %l, %h, %i : (tensor<2x6xf32>, "
        "tensor<f32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<4x5xf32>",
        "4x5xf32",
        [[7, 0, 1, 2, 3], [7] * 5, [7, 6, 7, 8, 9], [7] * 5],
    ),
    "slice": (
        f"%a = {shape(0, 1)}\n%b = {shape(2, 6)}\n%c = {shape(1, 2)}\n"
        "%r = stablehlo.real_dynamic_slice %x, %a, %b, %c : (tensor<2x6xf32>, tensor<2xi64>, "
        "tensor<2xi64>, tensor<2xi64>) -> tensor<2x3xf32>",
        "2x3xf32",
        X[:, 1::2],
    ),
    "gather": (
        f"%i = stablehlo.constant dense<[[1], [0], [1]]> : tensor<3x1xi32>\n%s = {shape(1, 6)}\n"
        '%r = "stablehlo.dynamic_gather"(%x, %i, %s) <{dimension_numbers = #stablehlo.gather<'
        "offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], "
        "index_vector_dim = 1>, indices_are_sorted = false}> : "
        "(tensor<2x6xf32>, tensor<3x1xi32>, tensor<2xi64>) -> tensor<3x6xf32>",
        "3x6xf32",
        X[[1, 0, 1]],
    ),
    "convolution": (
        "%w = stablehlo.constant dense<1.0> : tensor<1x1x2xf32>\n"
        "%y = stablehlo.reshape %x : (tensor<2x6xf32>) -> tensor<2x1x6xf32>\n"
        "%p = stablehlo.constant dense<[[1, 0]]> : tensor<1x2xi64>\n"
        '%r = "stablehlo.dynamic_conv"(%y, %w, %p) <{batch_group_count = 1 : i64, '
        "dimension_numbers = #stablehlo.conv<[b, f, 0]x[o, i, 0]->[b, f, 0]>, "
        "feature_group_count = 1 : i64}> : "
        "(tensor<2x1x6xf32>, tensor<1x1x2xf32>, tensor<1x2xi64>) -> tensor<2x1x6xf32>",
        "2x1x6xf32",
        (X + np.pad(X, ((0, 0), (1, 0)))[:, :-1]).reshape(2, 1, 6),
    ),
    # The shape is computed from the sizes of an argument.
    "sizes": (
        "%a = stablehlo.get_dimension_size %x, dim = 1 : (tensor<2x6xf32>) -> tensor<i32>\n"
        "%b = stablehlo.get_dimension_size %x, dim = 0 : (tensor<2x6xf32>) -> tensor<i32>\n"
        "%c = stablehlo.reshape %a : (tensor<i32>) -> tensor<1xi32>\n"
        "%d = stablehlo.reshape %b : (tensor<i32>) -> tensor<1xi32>\n"
        "%s = stablehlo.concatenate %c, %d, dim = 0 : "
        "(tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>\n"
        "%y = stablehlo.set_dimension_size %x, %a, dim = 1 : (tensor<2x6xf32>, tensor<i32>) -> "
        "tensor<2x6xf32>\n"
        "%r = stablehlo.dynamic_reshape %y, %s : (tensor<2x6xf32>, tensor<2xi32>) -> "
        "tensor<6x2xf32>",
        "6x2xf32",
        X.reshape(6, 2),
    ),
}


def dynamic_text(body: str, result: str, more: str = "") -> str:
    return (
        f"module @m {{\n  func.func public @main(%x: tensor<2x6xf32>{more}) -> tensor<{result}> "
        f"{{\n{body}\n    return %r : tensor<{result}>\n  }}\n}}\n"
    )


@pytest.mark.parametrize("name", DYNAMIC)
def test_shapes_computed_from_constants_are_fixed(name: str):
    body, result, wanted = DYNAMIC[name]
    module = read_stablehlo(dynamic_text(body, result))
    assert "hlo.opaque" not in {op.name for op in module.programs()[0].block}
    (found,) = outputs(module, [X])
    np.testing.assert_array_equal(found, np.asarray(wanted, np.float32))
    (theirs,) = compile_program(module, module.programs()[0]).run_numpy([{"x": X}])
    (other,) = theirs.values()
    np.testing.assert_array_equal(other, found)


def test_a_shape_that_an_argument_decides_is_refused_by_name():
    body = (
        "%r = stablehlo.real_dynamic_slice %x, %a, %a, %a : (tensor<2x6xf32>, tensor<2xi64>, "
        "tensor<2xi64>, tensor<2xi64>) -> tensor<2x3xf32>"
    )
    with pytest.raises(GraphgenError) as caught:
        read_stablehlo(dynamic_text(body, "2x3xf32", ", %a: tensor<2xi64>"))
    assert "real_dynamic_slice: a shape that depends on an argument" in caught.value.what
