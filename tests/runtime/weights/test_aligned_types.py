"""Rank files hold every element type that programs have, 4-bit integers without kernels too."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from graphgen.runtime.weights.aligned_safetensors import write_aligned
from graphgen.runtime.weights.weight_reader import read_aligned

TYPES = (
    *(np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int32),
    *(ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.uint4, ml_dtypes.int4),
)


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: np.dtype(kind).name)
def test_an_array_of_each_type_is_read_back(tmp_path: Path, kind: type):
    array = (np.arange(24) % 7).astype(kind).reshape(4, 6)
    path = tmp_path / "rank.safetensors"
    write_aligned(path, {"x": array}, iter([array]))
    found = read_aligned(path)["x"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)
