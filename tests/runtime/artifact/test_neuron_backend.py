"""Loading compiled programs on a device, with a stand-in for the plugin of JAX."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.lowering.neuron.neff import wrap_neff
from graphgen.runtime.artifact.device_folder import DeviceFolder
from graphgen.runtime.artifact.device_requirements import wrong_variables
from graphgen.runtime.artifact.load_program import NeuronBackend

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_programs_run_on_the_device_as_on_the_reference(tmp_path: Path):
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "fake_plugin")])
    ran = subprocess.run(
        [sys.executable, "-m", "tests.runtime.artifact.load_on_device", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    assert said["difference"] < 1e-4
    # Each program is loaded once, as the NEFF of its own.
    assert said["loaded"] == ["decode.b1.c8"]
    code, note = said["refused"]
    assert code == "GG1005"
    assert "NEURON_RT_NUM_CORES is 3, not 2" in note
    assert "NEURON_RT_EXEC_TIMEOUT is missing: 600" in note
    assert said["cores"] == ["GG1005", "3 cores are needed, and 2 are seen"]


def test_a_machine_without_the_runtime_is_refused_with_what_is_missing(tmp_path: Path):
    with pytest.raises(GraphgenError) as caught:
        NeuronBackend(DeviceFolder(tmp_path, {"environment": {}}), {}, trust=True)
    assert caught.value.code == "GG1005"
    assert "the package libneuronxla is missing" in caught.value.what
    assert "jax-neuronx is missing" in caught.value.what


def test_variables_are_compared_by_name_and_value():
    folder = DeviceFolder(Path("x"), {"environment": {"A": "1", "B": "2", "C": "3"}})
    assert [*wrong_variables(folder, {"A": "1", "B": "x"})] == [
        "B is x, not 2",
        "C is missing: 3",
    ]


def test_a_program_that_is_no_hlo_is_not_wrapped():
    with pytest.raises(GraphgenError) as caught:
        wrap_neff(b"\n\0", b"neff")
    assert caught.value.code == "GG0801"
