"""Checkpoints of application classes: files, or what the class makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphgen.runtime.aws_nxdi.model_classes import NeuronLlamaForCausalLM
from graphgen.runtime.aws_nxdi.state_dict import checkpoint_of
from tests.runtime.aws_nxdi.conftest import Checkpoint

NORM = "model.norm.weight"


class Doubled(NeuronLlamaForCausalLM):
    """Has its own state dictionary, in its own form."""

    @classmethod
    def get_state_dict(cls, model_path: str, config: Any) -> dict[str, Any]:
        return cls.convert_hf_to_neuron_state_dict({NORM: np.ones(4, np.float32)}, config)

    @staticmethod
    def convert_hf_to_neuron_state_dict(state_dict: Any, config: Any) -> Any:
        return {name: 2 * array for name, array in state_dict.items()}


def test_a_class_decides_by_its_methods_and_others_read_the_files(llama: Checkpoint):
    given = str(llama.path), llama.config(), {"model_type": "llama"}, [NORM]
    files, own = (checkpoint_of(kind, *given) for kind in (NeuronLlamaForCausalLM, Doubled))
    assert set(files.tensors()) == set(llama.model.state_dict())
    assert set(own.tensors()) == {NORM}
    np.testing.assert_array_equal(own.read(NORM), np.full(4, 2, np.float32))
    assert files.config == own.config == {"model_type": "llama"}
