"""The kernel ``linear`` beside its meaning in NumPy: any shape, type and value."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from graphgen.eval import Array
from graphgen.exec.backend import NumpyBackend
from graphgen.ir import Module
from graphgen.lowering.cpu.backend import CpuBackend
from graphgen.lowering.cpu_kernels.kernel_calls import with_custom_calls
from graphgen.lowering.cpu_kernels.kernel_library import kernel_library
from graphgen.text import parse, print_module
from tests.lowering.cpu_kernels.linear_cases import ACTIVATIONS, LinearCase, bound, kernel_call

CASES = 200
TYPES = ("bf16", "f16", "f32")
KERNEL = "graphgen.linear"
# Below, products are not in tiles (tile_linear_inner.h).
FEWEST_TILE_ROWS = 16
# Compiles a program once, whatever it is run on.
BACKEND = CpuBackend()

pytestmark = pytest.mark.skipif(
    KERNEL not in kernel_library().targets, reason=kernel_library().missing or "not there"
)


def drawn(index: int) -> tuple[LinearCase, np.random.Generator]:
    """A case of any form; odd sizes are as frequent as round ones."""
    random = np.random.default_rng(index)
    kind = TYPES[index % 3]
    rows = int(random.integers(1, 41)) if index % 10 else int(random.integers(100, 150))
    forms: list[tuple[int, ...]] = [(rows,), (rows, 1), (1, rows), (2, max(1, rows // 2)), ()]
    outer = forms[int(random.integers(len(forms)))]
    depth = int(random.choice([1, 2, 3, 15, 16, 17, 33, 64, *random.integers(1, 300, 4)]))
    after = ("", "residual", *ACTIVATIONS)[index // 3 % 6]
    gated = after in ACTIVATIONS
    has_bias = not gated and index // 18 % 2 == 0
    columns = int(random.integers(1, 20)) * 16 if gated else int(random.integers(1, 330))
    case = LinearCase(
        outer,
        depth,
        columns,
        kind,
        axis=int(random.integers(2)),
        norm=bool(random.integers(2)),
        bias=has_bias,
        residual=after == "residual",
        activation=after if gated else "",
        result="f32" if after == "residual" or has_bias else str(random.choice(["f32", kind])),
    )
    return case, random


def both(case: LinearCase, given: dict[str, Array]) -> tuple[Array, Array]:
    """What the kernel gives and what its meaning gives."""
    module = case.module()
    function = module.function("f")
    assert json.loads(kernel_call(function).attrs.text("config")) == case.config()
    return kernel(module, given), NumpyBackend()(module, function, [given])[0]["y"]


def kernel(module: Module, given: dict[str, Array]) -> Array:
    """What the kernel gives."""
    function = module.function("f")
    _, lowered = with_custom_calls(module, function, kernel_library().targets)
    assert [o.attrs.text("target") for o in lowered.block if o.name == "custom_call"] == [KERNEL]
    return BACKEND(module, function, [given])[0]["y"]


def check(case: LinearCase, given: dict[str, Array]) -> None:
    """Compare; where the meaning is not finite, the kernel must be the same."""
    actual, expected = both(case, given)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite])
    with np.errstate(all="ignore"):
        allowed = bound(case, given)
    far = np.abs(actual[finite] - expected[finite]) > allowed[finite]
    assert not far.any(), (case, actual[finite][far][:4], expected[finite][far][:4])


def check_fewer_rows(case: LinearCase, counts: Iterable[int]) -> None:
    """A row has the bits that it has beside any number of rows, as long as its path is the same.

    Where the kernels use a matrix unit, fewer than 16 rows are left to vectors.
    """
    tiles = kernel_library().instruction_set.startswith("amx")
    given = case.inputs(np.random.default_rng(3))
    whole = kernel(case.module(), given)
    for rows in counts:
        few, some = replace(case, outer=(rows,)), {**given, "x": given["x"][:rows]}
        if tiles and rows < FEWEST_TILE_ROWS:
            check(few, some)
        else:
            assert kernel(few.module(), some).tobytes() == whole[:rows].tobytes(), rows


@pytest.mark.one_in(7)
@pytest.mark.parametrize("index", range(CASES))
def test_the_kernel_computes_its_meaning(index: int):
    case, random = drawn(index)
    check(case, case.inputs(random))


def test_the_cases_have_all_forms():
    cases = [drawn(index)[0] for index in range(CASES)]
    for kind in TYPES:
        some = [case for case in cases if case.dtype == kind]
        assert {case.activation for case in some} == {"", *ACTIVATIONS}
        assert {len(case.outer) for case in some} == {0, 1, 2}
        assert {case.result for case in some} == {"f32", kind}
        assert any(np.prod(case.outer) >= 100 for case in some)
        for what in (
            {(case.depth % 2, case.norm) for case in some},
            {(case.axis, case.residual) for case in some},
            {(case.bias, case.residual) for case in some},
            {(case.columns % 2, case.norm) for case in some if not case.activation},
        ):
            assert len(what) == 4


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("form", ["plain", "norm", "residual", *ACTIVATIONS])
def test_what_is_not_finite_goes_where_the_meaning_puts_it(kind: str, form: str):
    case = form_of(form, kind)
    for special in (np.nan, np.inf, -np.inf):
        given = case.inputs(np.random.default_rng(1))
        given["x"][2, -1] = special
        given["w"][3, 4] = special
        # Infinity times zero.
        given["x"][5, 0], given["w"][20, 0] = special, 0
        if case.residual:
            given["r"][1, 1] = special
        check(case, given)


def form_of(form: str, kind: str) -> LinearCase:
    """Seven rows of an odd depth; where there are no halves, of odd columns."""
    case = LinearCase((7,), 19, 48 if form in ACTIVATIONS else 37, kind)
    if form in ACTIVATIONS:
        return replace(case, activation=form)
    return replace(case, norm=form == "norm", residual=form == "residual")


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("form", ["plain", "norm", "silu", "gelu_tanh"])
@pytest.mark.parametrize("size", [0.0, 2.0**-140, 2.0**-127, 2.0**-20, 2.0**10])
def test_zeros_denormals_and_large_numbers(kind: str, form: str, size: float):
    case = replace(form_of(form, kind), result=kind)
    given = case.inputs(np.random.default_rng(2))
    for row, scale in enumerate((size, 1.0, size, 0.0, size, -1.0, size)):
        given["x"][row] = (given["x"][row].astype(np.float32) * np.float32(scale)).astype(
            given["x"].dtype
        )
    check(case, given)
    given["w"] = (given["w"].astype(np.float32) * np.float32(size)).astype(given["w"].dtype)
    check(case, given)


def test_halves_below_the_smallest_normal_number_are_not_zero():
    case = LinearCase((2,), 3, 5, "f16", result="f16")
    given = {"x": np.full((2, 3), 2.0**-24, np.float16), "w": np.ones((5, 3), np.float16)}
    actual, expected = both(case, given)
    np.testing.assert_array_equal(actual, np.full((2, 5), 3 * 2.0**-24, np.float16))
    np.testing.assert_array_equal(actual, expected)


def test_a_result_beyond_the_type_is_infinite():
    case = LinearCase((1,), 2, 2, "f16", result="f16")
    given = {
        "x": np.full((1, 2), 300, np.float16),
        "w": np.array([[300, 300], [-300, -300]], np.float16),
    }
    actual, _ = both(case, given)
    np.testing.assert_array_equal(actual, [[np.inf, -np.inf]])


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("form", ["plain", "norm", "gelu"])
@pytest.mark.one_in(5)
def test_a_row_is_the_same_beside_any_number_of_rows(kind: str, form: str):
    check_fewer_rows(
        replace(form_of(form, kind), outer=(128,), depth=131, result=kind), range(1, 17)
    )


@pytest.mark.parametrize(
    ("form", "told", "instead"),
    [
        ("silu", '"columns":48,"norm":false', '"columns":48,"norm":true'),
        ("plain", '"activation":"none","gated":false', '"activation":"silu","gated":true'),
        ("plain", '"norm":false,"offset":false', '"norm":false,"offset":true'),
        ("norm", '"norm":true', '"norm":false'),
        ("norm", '"norm":true,"offset":false', '"norm":true,"offset":true'),
        (
            "norm",
            '"norm":true,"offset":false,"epsilon":1e-05,"scale":false,"group":0,"x_group":0,"zero":false,"bias":false',
            '"norm":false,"offset":false,"epsilon":0.0,"scale":false,"group":0,"x_group":0,"zero":false,"bias":true',
        ),
        (
            "norm",
            '"norm":true,"offset":false,"epsilon":1e-05,"scale":false',
            '"norm":false,"offset":false,"epsilon":0.0,"scale":true',
        ),
        ("plain", '"scale":false,"group":0', '"scale":false,"group":16'),
        ("plain", '"x_group":0,"zero":false', '"x_group":0,"zero":true'),
        ("residual", '"bias":false,"residual":true', '"bias":true,"residual":false'),
    ],
)
def test_settings_that_do_not_fit_the_operands_are_refused(form: str, told: str, instead: str):
    case = form_of(form, "f32")
    text, old, new = print_module(case.module()), *(x.replace('"', '\\"') for x in (told, instead))
    assert text.count(old) == 1
    module = parse(text.replace(old, new))
    given = case.inputs(np.random.default_rng(4))
    with pytest.raises(Exception, match=r"graphgen\.linear: "):
        BACKEND(module, module.function("f"), [given])
