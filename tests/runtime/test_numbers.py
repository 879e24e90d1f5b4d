"""Values that are no numbers are found wherever they are, and nothing else is taken for one."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from runtime.preparation import numbers
from runtime.preparation.numbers import holds_infinity, holds_nan, nan_places

FLOATS = (np.float32, np.float16, ml_dtypes.bfloat16)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "_CHUNK", 8)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("sign", [1, -1])
def test_one_in_any_place_is_found(kind: type[np.generic], sign: int):
    for place in range(21):
        values = np.arange(21).astype(kind).reshape(3, 7)
        assert not holds_nan(values)
        values.reshape(-1)[place] = np.copysign(np.nan, sign)
        assert holds_nan(values)
        assert holds_nan(values.T)
        assert nan_places(values) == (1, divmod(place, 7))


@pytest.mark.parametrize("kind", FLOATS)
def test_what_is_infinite_or_large_is_a_number(kind: type[np.generic]):
    limit = ml_dtypes.finfo(kind)
    extremes = np.array([np.inf, -np.inf, limit.max, limit.min, limit.smallest_subnormal, -0.0])
    assert not holds_nan(extremes.astype(kind))
    assert holds_infinity(extremes.astype(kind))
    assert not holds_infinity(extremes[2:].astype(kind))
    assert not holds_infinity(np.append(extremes, np.nan).astype(kind))
    assert not holds_nan(np.zeros((0, 3), kind))


def test_integers_are_numbers():
    assert not holds_nan(np.full(9, -1, np.int8))
    assert not holds_nan(np.full(9, -1, np.int32))
