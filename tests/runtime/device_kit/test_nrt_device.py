"""NEFFs executed by the runtime's C interface, in this process, with a stand-in for the library."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from graphgen.eval import Array
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.runtime.kit_runner.execution_request import ArrayFile, ExecutionRequest
from graphgen.runtime.kit_runner.nrt_device import DeviceError, NrtDevice
from tests.fake_compiler.fake_device import HEADER, FakeDevice

HLO = """
HloModule m
ENTRY %main (x: f32[2,3], y: f32[2,3]) -> f32[2,3] {
  %x = f32[2,3] parameter(0)
  %y = f32[2,3] parameter(1)
  ROOT %z = f32[2,3] subtract(%x, %y)
}
"""
X, Y = np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 0.5, np.float32)


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDevice]:
    fake = FakeDevice(tmp_path / "device")
    for name, value in fake.environment.items():
        monkeypatch.setenv(name, value)
    yield fake
    fake.close()


def neff(path: Path) -> str:
    """A file as the fake compiler writes it."""
    data, packed = parse_hlo_text(HLO), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        item = tarfile.TarInfo("sg00/hlo.pb")
        item.size = len(data)
        archive.addfile(item, io.BytesIO(data))
    path.write_bytes(bytes(HEADER) + packed.getvalue())
    return str(path)


def array_file(folder: Path, name: str, array: Array) -> ArrayFile:
    path = folder / name
    path.write_bytes(array.tobytes())
    return {"name": name, "dtype": "f32", "dims": [*array.shape], "path": str(path)}


def request(folder: Path) -> ExecutionRequest:
    return {
        "neff": neff(folder / "file.neff"),
        "hlo": "",
        "words": [],
        "inputs": [array_file(folder, name, array) for name, array in (("x", X), ("y", Y))],
        "outputs": [{"name": "z", "dtype": "f32", "dims": [2, 3], "path": ""}],
        "aliases": {},
        "repeat": 2,
    }


def test_a_program_gives_its_results_and_a_time_for_each_run_after_the_first(
    device: FakeDevice, tmp_path: Path
):
    nrt = NrtDevice()
    (data,), times = nrt.run(request(tmp_path))
    nrt.close()
    np.testing.assert_array_equal(np.frombuffer(data, np.float32).reshape(2, 3), X - Y)
    assert len(times) == 2
    assert sum(device.runs.values()) == 3


def test_a_result_that_the_program_lacks_is_named(device: FakeDevice, tmp_path: Path):
    nrt, asked = NrtDevice(), request(tmp_path)
    asked["outputs"] = [*asked["outputs"], {**asked["outputs"][0], "name": "w"}]
    with pytest.raises(DeviceError, match="the NEFF has no output w"):
        nrt.run(asked)
    nrt.close()
    assert sum(device.runs.values()) == 0
