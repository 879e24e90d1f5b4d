"""The runner's own numbers beside ml_dtypes, and its comparison."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from graphgen.runtime.device_kit.runner.kit_types import KitTensor
from graphgen.runtime.device_kit.runner.numbers import compared, element_bytes, numbers
from graphgen.runtime.device_kit.runner.tensor_names import paired

TYPES = {
    "f8e4m3": ml_dtypes.float8_e4m3,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "s16": np.int16,
    "u8": np.uint8,
    "f32": np.float32,
    "s64": np.int64,
    "c64": np.complex64,
}


@pytest.mark.parametrize("kind", TYPES)
def test_elements_are_those_of_ml_dtypes(kind: str):
    size = element_bytes(kind)
    assert size == np.dtype(TYPES[kind]).itemsize
    # Every code of 8 and 16 bits; of others many.
    codes = np.arange(1 << 16, dtype=np.uint32 if size < 8 else np.uint64) * (
        1 if size < 4 else 40503
    )
    data = codes.astype(f"<u{min(size, 8)}").tobytes()
    wanted = np.frombuffer(data, TYPES[kind])
    wide = wanted.view(np.float32) if kind == "c64" else wanted
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(np.array(numbers(kind, data)), wide.astype(np.float64))


def tensor(kind: str, rtol: float = 0.0, atol: float = 0.0) -> KitTensor:
    return {"name": "y", "dtype": kind, "dims": [3], "data": "", "rtol": rtol, "atol": atol}


def test_results_are_right_within_their_tolerance():
    want = np.array([1.0, np.inf, np.nan], np.float32).tobytes()
    near = np.array([1.05, np.inf, np.nan], np.float32).tobytes()
    assert compared(tensor("f32", 0.1), near, want)["right"]
    far = compared(tensor("f32", 0.01), near, want)
    assert (far["wrong"], far["at"], far["right"]) == (1, 0, False)
    flipped = np.array([1.0, -np.inf, np.nan], np.float32).tobytes()
    assert compared(tensor("f32", 0.1, 0.1), flipped, want)["at"] == 1
    lost = np.array([1.0, np.inf, 2.0], np.float32).tobytes()
    assert compared(tensor("f32", 0.1, 0.1), lost, want)["at"] == 2
    whole = np.array([1, 2, 3], np.int64)
    narrow = compared(tensor("s64"), whole.astype(np.int32).tobytes(), whole.tobytes())
    assert (narrow["right"], narrow["note"]) == (True, "the device gave s32")
    assert compared(tensor("s64"), b"12", whole.tobytes())["note"] == "2 bytes instead of 24"


def test_tensors_of_a_neff_are_found_by_name_or_number():
    assert paired(["x", "kv"], ["kv.must_alias_input", "x"]) == ["x", "kv.must_alias_input"]
    many = [f"input{number}" for number in (0, 1, 10, 2)]
    assert paired(["a", "b", "c", "d"], many) == ["input0", "input1", "input2", "input10"]
    assert paired(["y"], ["anything"]) == ["anything"]
    with pytest.raises(ValueError, match="has 1 tensors where the program has 2"):
        paired(["a", "b"], ["input0"])
    with pytest.raises(ValueError, match="the NEFF names one, in2, the program a, b"):
        paired(["a", "b"], ["one", "in2"])
