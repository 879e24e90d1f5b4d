"""Every element type has a way to be drawn, compared and printed."""

from __future__ import annotations

import json

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.eval import numpy_dtype
from graphgen.eval.element_kinds import (
    ElementKind,
    NumberSource,
    drawn,
    element,
    element_json,
    element_kind,
    element_text,
    real_parts,
)
from graphgen.eval.sorting import places_in_order
from graphgen.ir import DType, TensorType, dtype
from graphgen.ir.dtype import DTYPES, Kind, c64, f8e8m0fnu, f32, s64, token
from graphgen.passes.equiv.deviation import difference
from graphgen.passes.validate.boundary_values import Spread, draw_array, redrawn_floats
from graphgen.passes.workload.value_ranges import random_array
from graphgen.report.array_summary import summarize


def source() -> NumberSource:
    rng = np.random.default_rng(0)
    return NumberSource(rng.standard_normal, lambda kind, dims: rng.integers(0, 2, dims))


@pytest.mark.parametrize("kind", [*DTYPES.values(), token], ids=str)
def test_every_type_is_drawn_compared_and_printed(kind: DType):
    array = drawn(source(), kind, (3, 4))
    assert (array.dtype, array.shape) == (numpy_dtype(kind), (3, 4))
    assert difference("", 0, array, array.copy()).within(0)
    parts = real_parts(array)
    assert parts.shape == ((3, 4, 2) if kind.is_complex else (3, 4))
    value = element(array[0, 0])
    assert isinstance(value, complex) == kind.is_complex
    assert json.loads(json.dumps(element_json(value))) is not None
    assert element_text(value)
    assert len(summarize(array).first) == 4


def test_every_kind_of_the_ir_has_a_row_or_is_refused():
    known = {element_kind(kind) for kind in (*DTYPES.values(), token)}
    assert known == set(ElementKind)
    others = {*Kind} - {kind.kind for kind in (*DTYPES.values(), token)}
    assert others == {Kind.QUANTIZED}
    with pytest.raises(GraphgenError, match="GG0403"):
        drawn(source(), dtype("quant<i8:f32;0.1>"), (2,))


def parts_of_draws(array: np.ndarray[tuple[int, ...], np.dtype[np.complex64]]) -> set[str]:
    names = {(True, True): "both", (True, False): "real", (False, True): "imaginary"}
    return {names.get((x.real != 0, x.imag != 0), "none") for x in array.ravel()}


def test_both_parts_of_complex_numbers_are_drawn_alone_and_together():
    type_, rng = TensorType((12,), c64), np.random.default_rng(3)
    for array in (random_array(rng, type_), draw_array(rng, type_, Spread.ORDINARY)):
        assert parts_of_draws(array) == {"both", "real", "imaginary"}
    redrawn = redrawn_floats({"x": np.zeros(64, np.complex64)}, 0)["x"]
    assert parts_of_draws(redrawn) >= {"both", "real", "imaginary"}
    odd = draw_array(rng, TensorType((400,), c64), Spread.NOT_FINITE)
    assert np.isnan(np.imag(odd)).any()
    assert np.isinf(np.real(odd)).any()


def test_a_type_without_a_sign_is_drawn_without_one():
    array = drawn(source(), f8e8m0fnu, (64,))
    assert not np.isnan(array.astype(np.float64)).any()


def test_numbers_are_printed_by_kind():
    assert element_text(element(np.int64(2**60 + 1))) == str(2**60 + 1)
    assert element_text(element(np.complex64(1 - 2j))) == "1-2i"
    assert element_text(element(np.float32(-0.0))) == "-0"
    assert element_json(complex(1, float("nan"))) == [1.0, "nan"]
    assert element_kind(f32) is ElementKind.FLOAT
    assert element_kind(s64) is ElementKind.SIGNED


def test_complex_numbers_are_summarized_as_such():
    found = summarize(np.array([3 + 4j, complex(0, -1), complex(np.nan, 1)], np.complex64))
    assert (found.least, found.greatest, found.mean) == (1.0, 5.0, 1.5 + 1.5j)
    assert (found.nan, found.inf) == (1, 0)
    assert found.to_json()["first"] == [[3.0, 4.0], [0.0, -1.0], ["nan", 1.0]]
    assert found.cells()[-1] == "3+4i 0-1i nan+1i"


@pytest.mark.parametrize("kind", [k for k in DTYPES.values() if not k.is_complex], ids=str)
def test_elements_of_every_type_are_put_in_order(kind: DType):
    x = drawn(source(), kind, (40,))
    if kind is f8e8m0fnu:
        x[:3] = [0.25, 8.0, 2.0]
    for descending in (False, True):
        made = x[places_in_order(x, 0, descending=descending)].astype(np.float64)
        wanted = np.sort(x.astype(np.float64))
        np.testing.assert_array_equal(made, wanted[::-1] if descending else wanted)
