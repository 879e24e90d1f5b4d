"""The kernel ``linear`` with weights in 4 and 8 bits in groups beside its meaning in NumPy."""

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
    both,
    check,
    check_fewer_rows,
    drawn,
    form_of,
    kernel,
)

NARROW = ("s4", "u4", "s8", "f8e4m3fn")
ZEROS = ("", "u8", "s32")
GROUPS = (16, 24, 64, 128)
SCALES = ("f32", "f16", "bf16")

pytestmark = pytest.mark.skipif(
    KERNEL not in kernel_library().targets, reason=kernel_library().missing or "not there"
)


def drawn_grouped(index: int) -> tuple[LinearCase, np.random.Generator]:
    """A case of any form, type of the product, type of the numbers, and size of the groups."""
    case, random = drawn(index)
    narrow = NARROW[index // 18 % 4]
    # Floats have no zero points; a group of all numbers has any size.
    zero = "" if narrow == "f8e4m3fn" else ZEROS[index % 5 % 3]
    whole = index % 7 == 0
    # Below, scales have more bytes than they save: such a weight is stored widened.
    depth = case.depth + 16
    group = depth if whole else GROUPS[index // 72 % 4]
    form = {"group": group, "zero": zero, "group_scale": SCALES[index // 3 % 3]}
    return replace(case, depth=depth, narrow=narrow, **form), random


@pytest.mark.one_in(15)
@pytest.mark.parametrize("index", range(CASES))
def test_the_kernel_computes_its_meaning(index: int):
    case, random = drawn_grouped(index)
    check(case, case.inputs(random))


def test_the_cases_have_all_forms():
    cases = [drawn_grouped(index)[0] for index in range(CASES)]
    for narrow in NARROW:
        some = [case for case in cases if case.narrow == narrow]
        assert {case.activation for case in some} == {"", *ACTIVATIONS}
        assert {case.dtype for case in some} == {"bf16", "f16", "f32"}
        assert {case.axis for case in some} == {0, 1}
        assert any(np.prod(case.outer) > 12 for case in some)
        # Groups of all numbers, and last groups that are short.
        assert any(case.group >= case.depth for case in some)
        assert any(case.depth > case.group and case.depth % case.group for case in some)
        if narrow != "f8e4m3fn":
            assert {case.zero for case in some} == set(ZEROS)


@pytest.mark.parametrize("kind", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("narrow", ["s4", "u4"])
def test_every_number_of_4_bits_is_widened_exactly_wherever_it_stands(kind: str, narrow: str):
    for rows in (14, 1):
        case = LinearCase((rows,), 16, 256, kind, narrow=narrow, group=8, result=kind)
        given = case.inputs(np.random.default_rng(0))
        given["s"] = np.ones_like(given["s"])
        # One depth for each row, all codes of it in the columns.
        given["x"] = np.eye(16)[np.arange(rows) % 16].astype(given["x"].dtype)
        codes = (np.arange(256)[:, None] + np.arange(16)) % 16 - (8 if narrow == "s4" else 0)
        given["w"] = codes.astype(np.int8).astype(numpy_dtype(dtype(narrow)))
        expected = given["x"].astype(np.float64) @ codes.T
        np.testing.assert_array_equal(kernel(case.module(), given).astype(np.float64), expected)


@pytest.mark.parametrize("kind", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("narrow", ["s4", "s8", "f8e4m3fn"])
def test_what_is_not_finite_goes_where_the_meaning_puts_it(kind: str, narrow: str):
    for special in (np.nan, np.inf, -np.inf):
        case = replace(form_of("residual", kind), narrow=narrow, group=16)
        given = case.inputs(np.random.default_rng(1))
        given["x"][2, -1], given["r"][1, 1] = special, special
        given["s"][7] = np.nan
        # Infinity times zero.
        given["x"][5, 0], given["w"][20, 0] = special, 0
        check(case, given)


@pytest.mark.parametrize("narrow", ["u4", "s4"])
def test_an_infinity_with_zero_points_stays_in_its_row(narrow: str):
    case = replace(form_of("plain", "bf16"), narrow=narrow, group=16, zero="u8")
    given = case.inputs(np.random.default_rng(1))
    given["x"][2, -1] = np.inf
    actual, expected = both(case, given)
    assert not np.isfinite(actual[2]).any()
    assert np.isfinite(np.delete(actual, 2, 0)).all()
    assert np.isfinite(np.delete(expected, 2, 0)).all()


@pytest.mark.parametrize("kind", ["bf16", "f32"])
@pytest.mark.parametrize("narrow", ["u4", "s8"])
@pytest.mark.parametrize("form", ["norm", "gelu"])
@pytest.mark.one_in(4)
def test_a_row_is_the_same_beside_any_number_of_rows(kind: str, narrow: str, form: str):
    case = replace(form_of(form, kind), outer=(128,), depth=131, narrow=narrow, group=32, zero="u8")
    check_fewer_rows(case, (1, 2, 3, 5, 8, 12, 13, 16))
