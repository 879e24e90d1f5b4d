"""Products and attention in tiles of a matrix unit: on AMX where it is, and on its emulation."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace

import numpy as np
import pytest

from graphgen.lowering.cpu_kernels.build_kernels import EMULATED
from graphgen.lowering.cpu_kernels.kernel_library import kernel_library
from tests.lowering.cpu_kernels import test_attention_kernel as attention
from tests.lowering.cpu_kernels.linear_cases import LinearCase
from tests.lowering.cpu_kernels.test_grouped_linear import drawn_grouped
from tests.lowering.cpu_kernels.test_integer_rows import drawn_integers
from tests.lowering.cpu_kernels.test_linear_kernel import (
    FEWEST_TILE_ROWS,
    check,
    drawn,
    form_of,
    kernel,
)
from tests.lowering.cpu_kernels.test_narrow_linear import drawn_narrow
from tests.lowering.cpu_kernels.tile_numbers import (
    Floats,
    Product,
    bf16,
    computed,
    instruction_set,
    product,
)

LIBRARY = kernel_library()
# Shapes of a program, and programs: 5,000 shapes.
SHAPES, PROGRAMS, QUICK = 50, 100, 4

pytestmark = pytest.mark.skipif(not LIBRARY.targets, reason=LIBRARY.missing or "not there")


@pytest.fixture(
    params=[
        EMULATED,
        pytest.param(
            "amx",
            marks=pytest.mark.skipif(
                LIBRARY.instruction_set != "amx",
                reason=f"the instructions of AMX are not run: {LIBRARY.why_no_matrix_unit}",
            ),
        ),
    ]
)
def unit(request: pytest.FixtureRequest) -> Generator[str]:
    """Has the kernels use a matrix unit."""
    with instruction_set(request.param):
        yield request.param


def products_of(number: int) -> list[Product]:
    """The shapes of a program: of bf16, and every fourth of integers; of full tiles and others."""
    random = np.random.default_rng(number)
    made: list[Product] = []
    for index in range(SHAPES):
        rows, depth, columns = (int(random.integers(1, most)) for most in (70, 140, 140))
        rows += FEWEST_TILE_ROWS - 1
        if index % 5 == 0:
            rows, depth = -(-rows // 16) * 16, -(-depth // 64) * 64
        if index % 4:
            made.append(Product(bf16(random, rows, depth), bf16(random, columns, depth)))
        else:
            x = random.standard_normal((rows, depth)).astype(np.float32)
            numbers = random.integers(-128, 128, (columns, depth), np.int8)
            made.append(Product(x, numbers, x_group=depth))
    return made


def expected(one: Product) -> Floats:
    """The bits that a product has."""
    if not one.x_group:
        return product(one.x.astype(np.float32), one.weight.astype(np.float32).T)
    with np.errstate(all="ignore"):
        scales = np.abs(one.x).max(1, keepdims=True) / np.float32(127)
    numbers = np.rint(one.x / scales).astype(np.int64)
    return (numbers @ one.weight.T.astype(np.int64)).astype(np.float32) * scales


@pytest.mark.parametrize(
    "number",
    [*range(QUICK), *(pytest.param(n, marks=pytest.mark.slow) for n in range(QUICK, PROGRAMS))],
)
def test_a_product_has_the_bits_of_the_instructions(unit: str, number: int):
    products = products_of(number)
    for one, made in zip(products, computed(products), strict=True):
        wanted = expected(one)
        assert made.tobytes() == wanted.tobytes(), (unit, one.x.shape, one.weight.shape)


def test_the_shapes_have_all_tails():
    products = [one for number in range(QUICK) for one in products_of(number)]
    assert sum(bool(one.x_group) for one in products) > SHAPES / 2
    for whole in (True, False):
        some = [one for one in products if (len(one.x) % 16 == 0) == whole]
        assert {one.x.shape[1] % 64 == 0 for one in some} == {True, False}
        assert {len(one.weight) % 16 == 0 for one in some} == {True, False}
    assert {len(one.x) > 32 for one in products} == {True, False}


def many_rows(case: LinearCase, index: int) -> LinearCase:
    """The case with as many rows as tiles begin with, or some more."""
    return replace(case, outer=(FEWEST_TILE_ROWS + index * 7 % 40,))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("drawing", [drawn, drawn_narrow, drawn_grouped, drawn_integers])
@pytest.mark.parametrize("index", range(40))
@pytest.mark.usefixtures("unit")
def test_every_form_of_a_product_computes_its_meaning(
    drawing: Callable[[int], tuple[LinearCase, np.random.Generator]], index: int
):
    case, random = drawing(index)
    if not case.x_group:
        case = replace(case, dtype="bf16", result="f32")
    case = many_rows(case, index)
    check(case, case.inputs(random))


@pytest.mark.one_in(6)
@pytest.mark.parametrize("index", range(60))
@pytest.mark.usefixtures("unit")
def test_attention_of_a_prompt_computes_its_meaning(index: int):
    case, random = attention.drawn(index)
    case = replace(case, dtype="bf16", active=12 + index % 50)
    attention.check(case, case.module(), case.inputs(random))


@pytest.mark.parametrize("form", ["plain", "norm", "silu"])
@pytest.mark.usefixtures("unit")
def test_a_row_is_the_same_beside_any_number_of_rows_in_tiles(form: str):
    case = replace(form_of(form, "bf16"), outer=(130,), depth=131, result="bf16")
    given = case.inputs(np.random.default_rng(3))
    whole = kernel(case.module(), given)
    for first, rows in ((0, 16), (1, 17), (7, 31), (40, 33), (50, 80)):
        part = {**given, "x": given["x"][first : first + rows]}
        made = kernel(replace(case, outer=(rows,)).module(), part)
        assert made.tobytes() == whole[first : first + rows].tobytes(), (first, rows)


@pytest.mark.usefixtures("unit")
def test_queries_of_a_prompt_are_the_same_in_any_chunk():
    case = attention.AttentionCase(2, 90, 2, 1, 48, 80, 90, "bf16")
    given = case.inputs(np.random.default_rng(1))
    slots = np.arange(90)
    # A window, so that blocks of queries begin with other slots.
    given["m"][:] = (slots <= slots[:, None]) & (slots > slots[:, None] - 45)
    whole = attention.kernel(case.module(), given)
    for first, end in ((0, 12), (5, 70), (33, 90), (60, 77)):
        some = {**given, "q": given["q"][:, first:end], "m": given["m"][:, first:end]}
        made = attention.kernel(replace(case, active=end - first).module(), some)
        assert made.tobytes() == whole[:, first:end].tobytes(), (first, end)
