"""Narrow floats in double precision: their range, and no rounding within it."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.eval import MEANING, NATIVE, Array
from graphgen.ir import DType
from graphgen.ir.dtype import DTYPES, f8e4m3
from graphgen.ir.small_float import FORMATS

NARROW = [DTYPES[name] for name in FORMATS]


def near_the_ends(kind: DType) -> Array:
    """Numbers on both sides of each boundary, of both signs, and what is not finite."""
    finite = np.array(FORMATS[kind.name].finite)
    top = finite[-1]
    factors = [0.3, 1, 1.01, 1.03, 1.0356, 1.0358, 1.06, 1.16, 1.2, 1.3, 1.49, 1.51, 2, 1e6]
    tie = (finite[-1] - finite[-2]) / 2
    positive = np.concatenate([finite, top * np.array(factors), [top + tie, np.inf]])
    with np.errstate(over="ignore"):
        return np.concatenate([positive, -positive, [np.nan]]).astype(np.float32)


@pytest.mark.parametrize("kind", NARROW, ids=str)
def test_beyond_the_range_a_number_is_what_the_type_makes_of_it(kind: DType):
    """Against ml_dtypes: kept where rounding keeps it finite, else what rounding gives."""
    x = near_the_ends(kind)
    with np.errstate(all="ignore"):
        rounded = NATIVE.round(x, kind).astype(np.float64)
    meant = MEANING.round(x.astype(np.float64), kind)
    end = FORMATS[kind.name].finite[-1]
    kept = np.isfinite(rounded) & (np.isfinite(x) & (np.abs(rounded) < end))
    np.testing.assert_array_equal(meant[kept], x[kept].astype(np.float64))
    np.testing.assert_array_equal(np.isnan(meant), np.isnan(rounded))
    np.testing.assert_array_equal(np.isinf(meant), np.isinf(rounded))
    beyond = ~kept & np.isfinite(rounded)
    # At the end itself half a step is left, unless the type saturates.
    np.testing.assert_allclose(meant[beyond], rounded[beyond], rtol=0.5)
    known = ~(np.isnan(x) | np.isnan(meant))
    assert np.all(np.sign(meant[known]) == np.sign(x[known]))


@pytest.mark.parametrize("name", ["f4e2m1fn", "f6e2m3fn", "f6e3m2fn"])
def test_types_without_infinity_and_nan_clamp(name: str):
    end = FORMATS[name].finite[-1]
    given = np.array([1.01, -1.3, 1e9, -np.inf, 0.501]) * end
    found = MEANING.round(given, DTYPES[name])
    np.testing.assert_array_equal(found, np.clip(given, -end, end))
    assert MEANING.round(np.array([np.nan]), DTYPES[name]).tolist() == [0.0]


def test_numbers_within_the_range_keep_their_digits():
    given = np.array([1.06, -3.3, 1e-9, 239.9, 247.9])
    np.testing.assert_array_equal(MEANING.round(given, f8e4m3), given)
