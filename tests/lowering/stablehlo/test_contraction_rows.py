"""StableHLO's older contractions: what NumPy's einsum gives, in the type that the file states."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.eval import evaluate
from graphgen.lowering.open import open_module
from graphgen.lowering.stablehlo import read_stablehlo

Arrays = list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]


def ran(text: str, arrays: Arrays) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    module = read_stablehlo(text)
    (program,) = module.programs()
    given = dict(zip([value.name or "" for value in program.args], arrays, strict=True))
    (made,) = evaluate(program, given, module=module).values()
    return made


def einsum(config: str, types: list[str], result: str) -> str:
    op = "einsum" if len(types) > 1 else "unary_einsum"
    names = ["%a", "%b"][: len(types)]
    args = ", ".join(f"{name}: tensor<{t}>" for name, t in zip(names, types, strict=True))
    return f"""func.func @main({args}) -> tensor<{result}> {{
  %0 = "stablehlo.{op}"({", ".join(names)}) {{einsum_config = "{config}"}} : \
({", ".join(f"tensor<{t}>" for t in types)}) -> tensor<{result}>
  return %0 : tensor<{result}>
}}"""


@pytest.mark.parametrize(
    ("config", "types", "result"),
    [
        ("ab,bc->ac", ["2x3xf32", "3x4xf32"], "2x4xf32"),
        ("ab,bc->ca", ["2x3xf32", "3x4xf32"], "4x2xf32"),
        ("zab,bcz->zac", ["5x2x3xf32", "3x4x5xf32"], "5x2x4xf32"),
        ("abd,bc->ac", ["2x3x5xf32", "3x4xf32"], "2x4xf32"),
        ("ab,cb->", ["2x3xf32", "4x3xf32"], "f32"),
        ("a,b->ab", ["2xf32", "3xf32"], "2x3xf32"),
        ("...ab,...bc->...ac", ["6x2x3xf32", "6x3x4xf32"], "6x2x4xf32"),
        ("...ab,bc->...ac", ["7x6x2x3xf32", "3x4xf32"], "7x6x2x4xf32"),
        ("ab->ba", ["2x3xf32"], "3x2xf32"),
        ("abc->b", ["2x3x4xf32"], "3xf32"),
    ],
)
def test_an_einsum_is_that_of_numpy(config: str, types: list[str], result: str):
    rng = np.random.default_rng(0)
    x = [rng.standard_normal([int(n) for n in t.split("x")[:-1]]).astype(np.float32) for t in types]
    made = ran(einsum(config, types, result), list(x))
    np.testing.assert_allclose(made.astype(np.float64), np.einsum(config, *x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "result", "dtype", "wanted"),
    [
        ("i8", "i32", np.int8, 20000),
        ("i4", "i8", ml_dtypes.int4, 98),
        ("bf16", "f32", ml_dtypes.bfloat16, 20000),
    ],
)
def test_sums_are_in_the_type_of_the_result(kind: str, result: str, dtype: type, wanted: int):
    number = 7 if kind == "i4" else 100
    x = np.full((1, 2), number).astype(dtype)
    made = ran(einsum("ab,bc->ac", [f"1x2x{kind}", f"2x1x{kind}"], f"1x1x{result}"), [x, x.T])
    assert made.tolist() == [[wanted]]
    made = ran(einsum("ab->a", [f"1x2x{kind}"], f"1x{result}"), [x])
    assert made.tolist() == [2 * number]


@pytest.mark.parametrize(("dim", "batch"), [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2)])
def test_an_index_select_takes_slices(dim: int, batch: int):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    shape = (*x.shape[:batch], 5)
    index = rng.integers(0, x.shape[dim], shape).astype(np.int32)
    wanted = np.empty((*x.shape[:dim], 5, *x.shape[dim + 1 :]), np.float32)
    for at in np.ndindex(*x.shape[:batch]):
        wanted[at] = np.take(x[at], index[at], dim - batch)
    types = [f"tensor<{'x'.join(map(str, a.shape))}x{k}>" for a, k in
             ((x, "f32"), (index, "i32"), (wanted, "f32"))]  # fmt: skip
    text = f"""func.func @main(%x: {types[0]}, %i: {types[1]}) -> {types[2]} {{
  %0 = "stablehlo.torch_index_select"(%x, %i) {{dim = {dim} : i64, batch_dims = {batch} : i64}} : \
({types[0]}, {types[1]}) -> {types[2]}
  return %0 : {types[2]}
}}"""
    np.testing.assert_array_equal(ran(text, [x, index]), wanted)


@pytest.mark.parametrize(
    ("config", "error"),
    [("ab,bc", "is not like"), ("ab,bc->ad", "no operand has d"), ("ab,ac->bc", "a is 2 and 3")],
)
def test_a_wrong_einsum_is_named(config: str, error: str):
    with pytest.raises(GraphgenError, match=error):
        read_stablehlo(einsum(config, ["2x3xf32", "3x4xf32"], "2x4xf32"))


# A diagonal has no row: jaxlib converts the module.
DIAGONAL = """func.func @main(%rows: tensor<3x3xi8>, %b: tensor<3x1xi8>) -> tensor<1xKIND> {
  %0 = "stablehlo.einsum"(%rows, %b) {einsum_config = "aa,ac->c"} : \
(tensor<3x3xi8>, tensor<3x1xi8>) -> tensor<1xKIND>
  return %0 : tensor<1xKIND>
}
"""


def test_a_type_that_jaxlib_infers_anew_is_refused(tmp_path: Path):
    path = tmp_path / "d.mlir"
    path.write_text(DIAGONAL.replace("KIND", "i32"))
    with pytest.raises(GraphgenError, match=r"result 0 is s32\[1\], but its ops give s8\[1\]"):
        open_module(path)
    path.write_text(DIAGONAL.replace("KIND", "i8"))
    module = open_module(path)
    assert [value.name for value in module.programs()[0].args] == ["rows", "b"]
    assert list(module.interface)[:2] == ["rows", "b"]


def test_sums_are_taken_in_the_order_of_the_labels():
    """The same file gives the same IR in every process, however strings are hashed there."""
    text = einsum("cabd,bxyz->b", ["2x3x4x5xf32", "4x2x3x5xf32"], "4xf32")
    (program,) = read_stablehlo(text).programs()
    sizes = [op.operands[0].shape for op in program.block if op.name == "reduce"]
    left, right = [(2, 3, 4, 5), (3, 4, 5), (4, 5)], [(4, 2, 3, 5), (4, 3, 5), (4, 5)]
    assert sizes == [*left, *right]
