"""Numbers from the whole range of element types."""

from __future__ import annotations

import math

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.eval import Array, numpy_dtype
from graphgen.ir import DType, Function, dtype, tensor
from graphgen.passes.validate.intervals import Interval, every_number
from graphgen.passes.validate.line_check import lined
from graphgen.passes.validate.whole_range import whole_range

COUNT = 999


def drawn(
    kind: DType,
    within: Interval | None = None,
    *,
    words: tuple[int, ...] = (),
    alone: bool = False,
    exact: bool = True,
) -> Array:
    edges = np.array([0.5, 1.0]).astype(numpy_dtype(kind))
    within = within or every_number(kind)
    return whole_range(kind, edges, within, words, 3, count=COUNT, alone=alone, exact=exact)


@pytest.mark.parametrize("name", ["s16", "s32", "s64", "u16", "u32", "u64", "f16", "bf16", "f32"])
def test_numbers_are_of_every_size(name: str):
    kind = dtype(name)
    found = drawn(kind)
    assert found.dtype == numpy_dtype(kind)
    assert 0 < found.size <= COUNT
    sizes = np.abs(found[np.isfinite(found.astype(np.float64))].astype(np.float64))
    bits = {math.frexp(size)[1] for size in sizes.tolist() if size}
    assert len(bits) >= min(14, kind.bits - 2)
    assert drawn(kind).tobytes() == found.tobytes()


@pytest.mark.parametrize("name", ["s32", "u32", "f32"])
def test_numbers_are_in_the_interval(name: str):
    found = drawn(dtype(name), Interval(10, 1000))
    assert found.size
    assert np.all((found >= 10) & (found <= 1000))


def test_multiples_of_a_number_of_the_program_are_one_off():
    found = drawn(dtype("u32"), words=(0, 1, 1000003)).astype(np.int64)
    rests = found[found > 1 << 31] % 1000003
    assert {0, 1, 1000002} <= set(rests.tolist())


def test_one_operand_of_16_bits_has_all_its_numbers():
    assert len(set(drawn(dtype("u16"), alone=True).tolist())) == 1 << 16


def test_floats_beside_edges_and_odd_numbers_beyond_half_the_digits():
    found = set(drawn(dtype("f32")).tolist())
    assert np.nextafter(np.float32(0.5), np.float32(0)) in found
    assert any(x % 2 == 1 and x > 1 << 23 for x in found if math.isfinite(x))


def test_no_number_is_rounded_to_the_largest_of_a_narrower_type_where_a_pass_rounds():
    within = Interval(440, 470)
    for exact in (True, False):
        found = drawn(dtype("f16"), within, alone=True, exact=exact).astype(np.float64)
        assert np.any((found > 448) & (found < 464)) == exact
        assert found.size


@pytest.mark.parametrize("name", ["pred", "c64"])
def test_other_types_have_no_more_than_edges(name: str):
    assert drawn(dtype(name)).size == 0


@pytest.mark.parametrize(("target", "shape", "fits"), [("s16", (4, 2), True), ("u32", (4,), False)])
def test_bits_of_another_width_have_no_line(target: str, shape: tuple[int, ...], fits: bool):
    window = Function("w")
    x = window.block.add_arg(tensor(dtype("u16"), (4, 2)), "x")
    with Builder(window) as b:
        window.outputs = [("y", b.bitcast_convert(x, dtype(target)))]
    assert window.outputs[0][1].shape == shape
    assert (lined(window, 8) is not None) == fits
