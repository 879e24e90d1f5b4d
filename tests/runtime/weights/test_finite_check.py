"""NaN values are found wherever they are, and nothing else is taken for one."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from graphgen.runtime.weights import weight_checks as finite_check
from graphgen.runtime.weights.weight_checks import max_magnitude, nan_indices

FLOATS = (np.float32, np.float16, ml_dtypes.bfloat16)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finite_check, "_CHUNK", 16)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("sign", [1, -1])
def test_one_in_any_place_is_found(kind: type[np.generic], sign: int):
    for place in range(21):
        values = np.arange(21).astype(kind).reshape(3, 7)
        assert not max_magnitude(values).is_nan
        values.reshape(-1)[place] = np.copysign(np.nan, sign)
        assert max_magnitude(values).is_nan
        assert max_magnitude(values.T).is_nan
        assert nan_indices(values) == (1, divmod(place, 7))


@pytest.mark.parametrize("kind", FLOATS)
def test_what_is_infinite_or_large_is_a_number(kind: type[np.generic]):
    limit = ml_dtypes.finfo(kind)
    extremes = np.array([np.inf, -np.inf, limit.max, limit.min, limit.smallest_subnormal, -0.0])
    assert not max_magnitude(extremes.astype(kind)).is_nan
    assert max_magnitude(extremes.astype(kind)).is_infinite
    assert not max_magnitude(extremes[2:].astype(kind)).is_infinite
    assert not max_magnitude(np.append(extremes, np.nan).astype(kind)).is_infinite
    assert not max_magnitude(np.zeros((0, 3), kind)).is_nan


def test_integers_are_numbers():
    assert not max_magnitude(np.full(9, -1, np.int8)).is_nan
    assert not max_magnitude(np.full(9, -1, np.int32)).is_nan
