"""The kernel ``linear`` with ``layer_norm`` before it and activations of the whole product."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphgen.lowering.cpu_kernels.kernel_library import kernel_library
from tests.lowering.cpu_kernels.linear_cases import ACTIVATIONS, LinearCase
from tests.lowering.cpu_kernels.test_linear_kernel import (
    CASES,
    KERNEL,
    check,
    check_fewer_rows,
    drawn,
    form_of,
)

WHOLE = ("relu", *ACTIVATIONS)

pytestmark = pytest.mark.skipif(
    KERNEL not in kernel_library().targets, reason=kernel_library().missing or "not there"
)


def drawn_whole(index: int) -> tuple[LinearCase, np.random.Generator]:
    """A case with a norm, an activation of all columns, or both."""
    case, random = drawn(index)
    norm = index % 4 != 0
    # A mean of one number leaves nothing.
    case = replace(case, depth=case.depth + 1, norm=norm, offset=norm)
    if case.residual or (case.activation and index % 2):
        return case, random
    result = case.dtype if index % 5 < 2 else "f32"
    whole = WHOLE[index % len(WHOLE)]
    return replace(case, activation="", whole=whole, bias=index % 3 == 0, result=result), random


@pytest.mark.one_in(15)
@pytest.mark.parametrize("index", range(CASES))
def test_the_kernel_computes_its_meaning(index: int):
    case, random = drawn_whole(index)
    check(case, case.inputs(random))


def test_the_cases_have_all_forms():
    cases = [drawn_whole(index)[0] for index in range(CASES)]
    assert {(case.whole, case.offset) for case in cases if case.whole} == {
        (whole, offset) for whole in WHOLE for offset in (True, False)
    }
    assert {case.bias for case in cases if case.whole} == {True, False}
    assert any(case.offset and case.activation for case in cases)
    assert any(case.offset and case.residual for case in cases)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("whole", ["", *WHOLE])
def test_what_is_not_finite_goes_where_the_meaning_puts_it(kind: str, whole: str):
    case = replace(form_of("norm", kind), offset=True, whole=whole)
    for special in (np.nan, np.inf, -np.inf):
        given = case.inputs(np.random.default_rng(1))
        given["x"][2, -1] = special
        given["w"][3, 4] = special
        check(case, given)
        plain = replace(case, norm=False, offset=False)
        check(plain, {**given, "x": given["x"].astype(given["w"].dtype)})


@pytest.mark.parametrize("kind", ["bf16", "f32"])
def test_a_mean_far_from_zero_is_taken_off_before_squares_are_summed(kind: str):
    case = replace(form_of("norm", kind), depth=130, offset=True)
    given = case.inputs(np.random.default_rng(2))
    given["x"] = given["x"] + np.float32(1000)
    check(case, given)


def test_a_row_is_the_same_beside_any_number_of_rows():
    case = replace(form_of("norm", "bf16"), outer=(40,), depth=131, offset=True, whole="gelu_tanh")
    check_fewer_rows(case, (1, 3, 8, 13))
