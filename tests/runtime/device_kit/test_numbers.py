"""The runner's own numbers beside ml_dtypes, and its comparison."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from graphgen.runtime import kit_runner as runner
from graphgen.runtime.kit_runner.kit_types import KitTensor
from graphgen.runtime.kit_runner.log_text import codes_of, tail_of
from graphgen.runtime.kit_runner.nrt_device import paired
from graphgen.runtime.kit_runner.numbers import compared, element_bytes, numbers

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


def test_logs_name_no_machine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("socket.gethostname", lambda: "ip-10-1-2-3.ec2.internal")
    monkeypatch.setattr("getpass.getuser", lambda: "someone")
    text = "ip-10-1-2-3: someone wrote /srv/kits/one/graph.hlo [NCC_EVRF001] twice NCC_EVRF001"
    assert (
        tail_of(text) == "<name>: <name> wrote <folder>/graph.hlo [NCC_EVRF001] twice NCC_EVRF001"
    )
    assert codes_of(text) == ["NCC_EVRF001"]
    assert tail_of("\n".join(map(str, range(100)))).splitlines()[0] == "60"


@pytest.mark.parametrize("file", sorted(Path(runner.__file__).parent.glob("*.py")), ids=str)
def test_the_runner_is_written_for_old_interpreters(file: Path):
    tree = ast.parse(file.read_text(), feature_version=(3, 9))
    imported = {
        name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    }
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    outside = {name for name in imported if name.partition(".")[0] not in sys.stdlib_module_names}
    ours = {name for name in outside if name.startswith(runner.__name__)}
    # NumPy comes with JAX, which one of the devices is reached by.
    allowed = {"jax", "numpy", "ml_dtypes"} if file.name == "jax_device.py" else set[str]()
    assert outside - ours <= allowed


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
    many = [f"input{number}" for number in (0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9)]
    assert paired(list("abcdefghijkl"), many) == [f"input{number}" for number in range(12)]
    assert paired(["y"], ["anything"]) == ["anything"]
    # What nothing reads may be left out.
    assert paired(["a", "b", "c"], ["input0", "input2"]) == ["input0", "", "input2"]
    assert paired(["a", "b"], ["b"]) == ["", "b"]
    with pytest.raises(ValueError, match="the NEFF names input5, the program a, b"):
        paired(["a", "b"], ["input5"])
    with pytest.raises(ValueError, match="the NEFF names one, in2, the program a, b"):
        paired(["a", "b"], ["one", "in2"])
