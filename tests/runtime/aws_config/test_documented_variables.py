"""Variables that AWS's documents export, and that act on a device alone: each is noted once."""

from __future__ import annotations

import pytest

from graphgen.runtime.aws_config.environment import environment_notes


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("NEURON_RT_VIRTUAL_CORE_SIZE", "no Neuron device"),
        ("NEURON_RT_NUM_CORES", "no Neuron device"),
        ("NEURON_RT_VISIBLE_CORES", "no Neuron device"),
        ("NEURON_RT_EXEC_TIMEOUT", "no Neuron device"),
        ("NEURON_RT_INSPECT_ENABLE", "no Neuron device"),
        ("XLA_HANDLE_SPECIAL_SCALAR", "the pass f8-formats"),
        ("UNSAFE_FP8FNCAST", "the pass f8-formats"),
        ("VLLM_RPC_TIMEOUT", "left to vLLM"),
    ],
)
def test_a_variable_of_a_device_is_noted(name: str, reason: str):
    (note,) = environment_notes({name: "1", "HOME": "x"})
    assert note.startswith(f"the variable {name} has no effect: ")
    assert reason in note


@pytest.mark.parametrize(
    "name", ["NEURON_CC_FLAGS", "NEURON_LOGICAL_NC_CONFIG", "NEURON_PLATFORM_TARGET_OVERRIDE"]
)
def test_a_variable_of_compilation_is_noted_on_the_cpu(name: str):
    (note,) = environment_notes({name: "2"})
    assert note.startswith(f"the variable {name} has no effect on the CPU: ")
    assert environment_notes({name: "2"}, "trn2") == ()
