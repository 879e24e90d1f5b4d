"""The kernel ``linear`` with rows of 8-bit integers, in blocks, beside its meaning in NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphgen.lowering.cpu_kernels.kernel_library import kernel_library
from tests.lowering.cpu_kernels.linear_cases import ACTIVATIONS, LinearCase
from tests.lowering.cpu_kernels.test_grouped_linear import drawn_grouped
from tests.lowering.cpu_kernels.test_linear_kernel import (
    CASES,
    KERNEL,
    check,
    check_fewer_rows,
    drawn,
    form_of,
    kernel,
)

pytestmark = pytest.mark.skipif(
    KERNEL not in kernel_library().targets, reason=kernel_library().missing or "not there"
)


def drawn_integers(index: int) -> tuple[LinearCase, np.random.Generator]:
    """A case of any form with integers on both sides: weights in groups, or with other scales."""
    if index % 4 == 3:
        case, random = drawn(index)
        narrow = {"narrow": "s8", "scale": ("", "column", "tensor")[index // 4 % 3]}
        # A scale comes before the result is rounded; products of bytes are beyond f16.
        return replace(
            case, **narrow, result="f32", x_group=(16, 24, 64, 6)[index // 12 % 4]
        ), random
    case, random = drawn_grouped(index)
    if case.narrow == "f8e4m3fn":
        case = replace(case, narrow="s4")
    return replace(case, x_group=case.group), random


@pytest.mark.one_in(15)
@pytest.mark.parametrize("index", range(CASES))
def test_the_kernel_computes_its_meaning(index: int):
    case, random = drawn_integers(index)
    check(case, case.inputs(random))


def test_the_cases_have_all_forms():
    cases = [drawn_integers(index)[0] for index in range(CASES)]
    for narrow in ("s4", "u4", "s8"):
        some = [case for case in cases if case.narrow == narrow]
        assert {case.activation for case in some} == {"", *ACTIVATIONS}
        assert {case.dtype for case in some} == {"bf16", "f16", "f32"}
        assert {case.norm for case in some} == {True, False}
        assert any(np.prod(case.outer) > 12 for case in some)
        # Blocks of whole rows, and last ones that are short.
        assert any(case.x_group >= case.depth for case in some)
        assert any(case.depth > case.x_group and case.depth % case.x_group for case in some)
        assert {bool(case.zero) for case in some} == {True, False}
    assert {case.scale for case in cases if not case.group} == {"", "column", "tensor"}


@pytest.mark.parametrize("narrow", ["s4", "s8"])
@pytest.mark.parametrize("form", ["norm", "residual"])
def test_a_row_with_what_is_not_finite_is_not_a_number_and_the_others_are(narrow: str, form: str):
    for special in (np.nan, np.inf, -np.inf):
        case = replace(form_of(form, "bf16"), narrow=narrow, group=16, x_group=16)
        given = case.inputs(np.random.default_rng(1))
        given["x"][2, -1] = special
        check(case, given)
        made = kernel(case.module(), given)
        assert np.isnan(made[2]).all()
        assert np.isfinite(np.delete(made, 2, 0)).all()


@pytest.mark.parametrize("narrow", ["u4", "s8"])
@pytest.mark.parametrize("size", [0.0, 2.0**-140, 2.0**-126, 2.0**100])
def test_zeros_denormals_and_large_numbers(narrow: str, size: float):
    case = replace(form_of("plain", "f32"), narrow=narrow, group=16, x_group=16)
    given = case.inputs(np.random.default_rng(2))
    given["x"][::2] *= np.float32(size)
    check(case, given)


@pytest.mark.parametrize("narrow", ["s4", "s8"])
def test_the_largest_sums_of_integers_fit(narrow: str):
    case = LinearCase((2,), 4096, 16, "f32", narrow=narrow, group=4096, x_group=4096)
    given = case.inputs(np.random.default_rng(3))
    given["x"][:] = np.array([[-127], [127]], np.float32)
    given["w"][:] = {"s4": -8, "s8": -128}[narrow]
    given["s"][:] = 1
    wanted = np.array([[1], [-1]]) * 127 * 4096 * {"s4": 8, "s8": 128}[narrow]
    np.testing.assert_allclose(kernel(case.module(), given), np.broadcast_to(wanted, (2, 16)))


@pytest.mark.parametrize("narrow", ["u4", "s8"])
@pytest.mark.parametrize("form", ["norm", "gelu"])
@pytest.mark.one_in(2)
def test_a_row_is_the_same_beside_any_number_of_rows(narrow: str, form: str):
    case = replace(form_of(form, "bf16"), outer=(128,), depth=131, narrow=narrow, group=32)
    case = replace(case, zero="u8", x_group=32)
    check_fewer_rows(case, (1, 2, 3, 5, 8, 12, 13, 16))
