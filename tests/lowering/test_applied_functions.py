"""Scatters, windows, maps and sorts by functions of scalars, from HLO's text, beside XLA."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.eval import Array, evaluate
from graphgen.eval.map_reduce import sorted_by
from graphgen.eval.observer import Columns
from graphgen.ir import Module
from graphgen.lowering.check.compiler_rules import opcode_of
from graphgen.lowering.cpu import compile_program
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.hlo_text.hlo_printer import print_hlo_text
from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo
from graphgen.ops import verify
from graphgen.ops.control import SCALAR
from graphgen.text import parse, print_module
from tests.oracles import xla_hlo

pytestmark = pytest.mark.usefixtures("optimized_code")

LARGER = """
larger {
  x = f32[] parameter(0)
  i = s32[] parameter(1)
  y = f32[] parameter(2)
  j = s32[] parameter(3)
  t = pred[] compare(x, y), direction=GE
  u = f32[] select(t, x, y)
  k = s32[] select(t, i, j)
  ROOT r = (f32[], s32[]) tuple(u, k)
}
"""
AFTER = """
after {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  half = f32[] constant(0.5)
  a = f32[] multiply(x, half)
  ROOT r = f32[] add(a, y)
}
"""
FARTHER = """
farther {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  a = f32[] abs(x)
  b = f32[] abs(y)
  t = pred[] compare(a, b), direction=GE
  ROOT r = f32[] select(t, x, y)
}
"""
# Not elementwise: of one scalar at a time.
CHOSEN = """
yes {
  ROOT a = f32[] parameter(0)
}

no {
  b = f32[] parameter(0)
  ROOT c = f32[] negate(b)
}

chosen {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  t = pred[] compare(x, y), direction=LT
  ROOT r = f32[] conditional(t, x, y), true_computation=yes, false_computation=no
}
"""
NUMBERS = (
    "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=1"
)
# The same row several times, and one that lies outside.
AT = np.array([[2], [0], [2], [9], [2]], np.int32)
PROGRAMS: dict[str, tuple[str, str]] = {
    "scatter-of-two": (
        LARGER,
        "  s = (f32[4,3], s32[4,3]) scatter(x, i, at, u, v), "
        f"{NUMBERS}, to_apply=larger\n"
        "  y = f32[4,3] get-tuple-element(s), index=0\n"
        "  z = s32[4,3] get-tuple-element(s), index=1\n"
        "  ROOT r = (f32[4,3], s32[4,3]) tuple(y, z)",
    ),
    "scatter-in-order": (
        AFTER,
        f"  ROOT r = f32[4,3] scatter(x, at, u), {NUMBERS}, to_apply=after",
    ),
    "window": (
        FARTHER,
        "  zero = f32[] constant(0)\n  ROOT r = f32[4,4] reduce-window(x, zero), "
        "window={size=2x2 pad=1_0x1_1}, to_apply=farther",
    ),
    "map": (AFTER, "  ROOT r = f32[4,3] map(x, x), dimensions={0,1}, to_apply=after"),
    "map-of-one-at-a-time": (
        CHOSEN,
        "  n = f32[4,3] negate(x)\n"
        "  ROOT r = f32[4,3] map(x, n), dimensions={0,1}, to_apply=chosen",
    ),
    "batched": (
        "",
        "  b = s32[4,2] slice(i), slice={[0:4], [0:2]}\n"
        "  g = f32[4,2] gather(x, b), offset_dims={}, collapsed_slice_dims={1}, "
        "start_index_map={1}, operand_batching_dims={0}, start_indices_batching_dims={0}, "
        "index_vector_dim=2, slice_sizes={1,1}\n"
        "  ROOT r = f32[4,3] scatter(x, b, g), update_window_dims={}, inserted_window_dims={1}, "
        "scatter_dims_to_operand_dims={1}, input_batching_dims={0}, "
        "scatter_indices_batching_dims={0}, index_vector_dim=2, to_apply=plus",
    ),
}
PLUS = """
plus {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] add(x, y)
}
"""


def text_of(name: str) -> str:
    functions, body = PROGRAMS[name]
    arguments = ["f32[4,3]", "s32[4,3]", "s32[5,1]", "f32[5,3]", "s32[5,3]"]
    lines = [
        f"  {arg} = {type_} parameter({n})"
        for n, (arg, type_) in enumerate(zip(("x", "i", "at", "u", "v"), arguments, strict=True))
    ]
    return f"HloModule m\n{functions or PLUS}\nENTRY e {{\n" + "\n".join([*lines, body, "}\n"])


def given() -> dict[str, Array]:
    random = np.random.default_rng(3)
    x, u = (random.standard_normal(shape).astype(np.float32) for shape in ((4, 3), (5, 3)))
    i, v = (random.integers(0, 3, shape).astype(np.int32) for shape in ((4, 3), (5, 3)))
    return {"x": x, "i": i, "at": AT, "u": u, "v": v}


def outputs(module: Module, arrays: dict[str, Array]) -> list[Array]:
    function = module.programs()[0]
    names = [value.name or "" for value in function.args]
    inputs = dict(zip(names, arrays.values(), strict=True))
    return [*evaluate(function, inputs, module=module).values()]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_form_gives_what_xla_does(name: str):
    proto = parse_hlo_text(text_of(name))
    (wanted,) = xla_hlo.run(proto, [list(given().values())])
    module = read_hlo(proto)
    assert "hlo.opaque" not in {op.name for op in module.programs()[0].block}
    verify(module)
    text = print_module(module)
    assert print_module(parse(text)) == text
    again = emit_hlo(module, module.programs()[0])
    modules = [
        module,
        read_hlo(parse_hlo_text(print_hlo_text(again))),
        read_stablehlo(emit_stablehlo(module, module.programs()[0])),
    ]
    (theirs,) = xla_hlo.run(again, [list(given().values())])
    for made in (theirs, *[outputs(item, given()) for item in modules]):
        for one, other in zip(made, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)


KEPT = {
    "gather": "  n = s32[0,2] slice(i), slice={[0:0], [0:2]}\n"
    "  ROOT r = s32[5,2] gather(n, at), offset_dims={1}, collapsed_slice_dims={0}, "
    "start_index_map={0}, index_vector_dim=1, slice_sizes={0,2}",
    "rng": "  z = f32[] constant(0)\n  ROOT r = f16[3] rng(z, z), distribution=rng_uniform",
    "fft": "  z = f32[1,1] constant({{0}})\n  c = c64[1,1] complex(z, z)\n"
    "  ROOT r = c64[1,1] fft(c), fft_type=FFT, fft_length={0}",
}


@pytest.mark.parametrize("code", KEPT)
def test_forms_that_are_too_strict_here_are_kept(code: str):
    text = text_of("map").replace(PROGRAMS["map"][1], KEPT[code])
    module = read_hlo(parse_hlo_text(text))
    kept = [op for op in module.programs()[0].block if op.name == "hlo.opaque"]
    assert [op.attrs["opcode"] for op in kept] == [code]


def test_a_start_of_another_precision_is_converted():
    body = (
        "  z = bf16[] constant(5)\n  ROOT r = f32[5,4] reduce-window(x, z), "
        "window={size=2x2 pad=1_1x1_1}, to_apply=plus"
    )
    text = f"HloModule m\n{PLUS}\nENTRY e {{\n  x = f32[4,3] parameter(0)\n{body}\n}}\n"
    module, x = read_hlo(parse_hlo_text(text)), given()["x"]
    ((theirs,),) = xla_hlo.run(emit_hlo(module, module.programs()[0]), [[x]])
    (found,) = outputs(module, {"x": x})
    narrow = read_hlo(parse_hlo_text(text.replace("f32[5,4] reduce", "bf16[5,4] reduce")))
    (rounded,) = outputs(narrow, {"x": x})
    assert rounded.tobytes() == found.astype(rounded.dtype).tobytes()
    assert rounded.itemsize == 2
    held = np.pad(x, 1)
    wanted = held[:-1, :-1] + held[1:, :-1] + held[:-1, 1:] + held[1:, 1:] + 5
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    np.testing.assert_allclose(theirs, wanted, rtol=1e-6)


def test_numbers_that_differ_in_each_run_are_left_to_xla():
    body = "  a = f32[] constant(2)\n  b = f32[] constant(3)\n" + (
        "  ROOT r = f32[64] rng(a, b), distribution=rng_uniform"
    )
    module = read_hlo(parse_hlo_text(f"HloModule m\nENTRY e {{\n{body}\n}}\n"))
    function = module.programs()[0]
    again = read_stablehlo(emit_stablehlo(module, function))
    assert [op.name for op in again.programs()[0].block].count("rng") == 1
    for item in (module, again):
        with pytest.raises(GraphgenError, match="rng draws other numbers in each run"):
            evaluate(item.programs()[0], {}, module=item)
    for theirs in (
        xla_hlo.run(emit_hlo(module, function), [[]])[0][0],
        *compile_program(module, function).run_numpy([{}])[0].values(),
    ):
        assert theirs.shape == (64,)
        assert ((theirs >= 2) & (theirs < 3)).all()
        assert len(set(theirs.tolist())) > 32


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 33])
@pytest.mark.parametrize("axis", [0, 1])
def test_sorted_lines_are_those_of_a_stable_sort(size: int, axis: int):
    shape = (size, 3) if axis == 0 else (3, size)
    ranks = [np.random.default_rng(seed).integers(0, 5, shape) for seed in range(2)]
    places = np.broadcast_to(np.arange(size).reshape((-1, 1) if axis == 0 else (1, -1)), shape)

    def above(a: Columns, b: Columns) -> list[Array]:
        return [x > y for x, y in zip(a[0], b[0], strict=True)]

    made = sorted_by([ranks, [places] * 2], axis, above)
    for rank, (values, order) in enumerate(zip(*made, strict=True)):
        wanted = np.argsort(-ranks[rank], axis, kind="stable")
        np.testing.assert_array_equal(order, wanted)
        np.testing.assert_array_equal(values, np.take_along_axis(ranks[rank], wanted, axis))


def test_a_comparator_that_contradicts_itself_gives_each_element_once():
    x = np.array([3.0, np.nan, 1.0, 2.0, np.nan, 0.0, 5.0])
    places = np.arange(len(x))
    ((_,), (order,)) = sorted_by([[x], [places]], 0, lambda a, b: [a[0][0] < b[0][0]])
    assert sorted(order.tolist()) == places.tolist()


def test_a_long_line_is_compared_few_times():
    random = np.random.default_rng(0)
    x, seen = random.permutation(1 << 14), 0

    def before(a: Columns, b: Columns) -> list[Array]:
        nonlocal seen
        seen += a[0][0].size
        return [a[0][0] < b[0][0]]

    ((found,),) = sorted_by([[x]], 0, before)
    np.testing.assert_array_equal(found, np.arange(len(x)))
    assert seen < len(x) * 14 * 5


def test_rules_of_compilers_know_them_by_their_opcodes():
    names = {name: opcode_of(name, {}) for name in SCALAR}
    assert names == {
        "map": "map",
        "reduce_by": "reduce",
        "reduce_window_by": "reduce-window",
        "scatter_by": "scatter",
        "sort_by": "sort",
    }
