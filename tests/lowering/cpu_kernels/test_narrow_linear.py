"""The kernel ``linear`` with weights in 8 bits beside its meaning in NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphgen.eval import numpy_dtype
from graphgen.ir import dtype
from graphgen.lowering.cpu_kernels.kernel_library import kernel_library
from tests.lowering.cpu_kernels.linear_cases import ACTIVATIONS, LinearCase
from tests.lowering.cpu_kernels.test_linear_kernel import (
    CASES,
    KERNEL,
    check,
    check_fewer_rows,
    drawn,
    form_of,
    kernel,
)

NARROW = ("s8", "f8e4m3fn", "f8e5m2")
SCALES = ("column", "tensor", "")

pytestmark = pytest.mark.skipif(
    KERNEL not in kernel_library().targets, reason=kernel_library().missing or "not there"
)


def drawn_narrow(index: int) -> tuple[LinearCase, np.random.Generator]:
    """A case of any form, type of the product, narrow type and kind of scale."""
    case, random = drawn(index)
    narrow, scale = NARROW[index // 18 % 3], SCALES[index // 54 % 3]
    return replace(case, narrow=narrow, scale=scale), random


@pytest.mark.one_in(8)
@pytest.mark.parametrize("index", range(CASES))
def test_the_kernel_computes_its_meaning(index: int):
    case, random = drawn_narrow(index)
    check(case, case.inputs(random))


def test_the_cases_have_all_forms():
    cases = [drawn_narrow(index)[0] for index in range(CASES)]
    for narrow in NARROW:
        some = [case for case in cases if case.narrow == narrow]
        assert {case.activation for case in some} == {"", *ACTIVATIONS}
        assert {(case.dtype, case.scale) for case in some} == {
            (kind, scale) for kind in ("bf16", "f16", "f32") for scale in SCALES
        }
        assert {(case.depth % 2, case.norm) for case in some} == {
            (odd, norm) for odd in (0, 1) for norm in (True, False)
        }
        assert any(np.prod(case.outer) > 12 for case in some)


@pytest.mark.parametrize("kind", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("narrow", NARROW)
def test_every_number_of_a_type_is_widened_exactly(kind: str, narrow: str):
    # Rows enough for tiles that are widened once, and one row.
    for rows in (14, 1):
        case = LinearCase((rows,), 1, 256, kind, narrow=narrow, result=kind)
        given = case.inputs(np.random.default_rng(0))
        given["x"] = np.ones_like(given["x"])
        given["w"] = np.arange(256, dtype=np.uint8).view(numpy_dtype(dtype(narrow)))[:, None]
        expected = np.broadcast_to(given["w"].astype(np.float64).T, (rows, 256))
        actual = kernel(case.module(), given).astype(np.float64)
        # A sum from zero has no negative zero.
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("kind", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("narrow", NARROW)
def test_what_is_not_finite_goes_where_the_meaning_puts_it(kind: str, narrow: str):
    for special in (np.nan, np.inf, -np.inf):
        case = replace(form_of("residual", kind), narrow=narrow, scale="column")
        given = case.inputs(np.random.default_rng(1))
        given["x"][2, -1], given["r"][1, 1], given["s"][7] = special, special, special
        if narrow != "s8":
            given["w"][3, 4] = special
        # Infinity times zero.
        given["x"][5, 0], given["w"][20, 0] = special, 0
        check(case, given)


@pytest.mark.parametrize("kind", ["bf16", "f32"])
@pytest.mark.parametrize("narrow", NARROW)
@pytest.mark.parametrize("form", ["norm", "gelu"])
@pytest.mark.one_in(2)
def test_a_row_is_the_same_beside_any_number_of_rows(kind: str, narrow: str, form: str):
    case = replace(form_of(form, kind), outer=(128,), depth=131, narrow=narrow, scale="column")
    check_fewer_rows(case, (1, 2, 3, 5, 8, 12, 13, 16))


@pytest.mark.parametrize("scale", ["column", "tensor"])
def test_no_rows(scale: str):
    case = LinearCase((0,), 4, 20, "bf16", narrow="s8", scale=scale)
    # Nothing to compute: no kernel is selected.
    assert "call" not in {op.name for op in case.module().function("f").block}
