"""Attributes and methods of applications as AWS's references document them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.inference_config import InferenceConfig
from graphgen.runtime.aws_nxdi.hf_adapter import HuggingFaceGenerationAdapter
from graphgen.runtime.aws_nxdi.model_classes import NeuronLlamaForCausalLM
from graphgen.runtime.aws_tnx import tnx_families
from graphgen.runtime.session.session import Session
from tests.oracles import torch_models
from tests.oracles.families import ORACLES, save
from tests.oracles.torch_models import configured
from tests.runtime.aws_nxdi.conftest import Checkpoint


def test_attributes_of_an_application(llama: Checkpoint):
    config = llama.config(batch_size=2)
    made = NeuronLlamaForCausalLM(llama.path, config)
    assert made.config is config
    assert made.neuron_config is config.neuron_config
    assert made.model_path == str(llama.path)
    assert not made.is_compiled
    assert not made.is_loaded_to_neuron


def test_an_application_may_check_its_configuration(llama: Checkpoint):
    class Narrow(NeuronLlamaForCausalLM):
        @classmethod
        def validate_config(cls, config: InferenceConfig) -> None:
            super().validate_config(config)
            if config.neuron_config.value("batch_size") != 1:
                raise ValueError("one sequence at a time")

    with pytest.raises(ValueError, match="one sequence at a time"):
        Narrow(llama.path, llama.config(batch_size=2))
    assert Narrow(llama.path, llama.config(batch_size=1)).model_path == str(llama.path)


def test_max_new_tokens_is_the_limit_of_calls_without_one(llama: Checkpoint):
    config = llama.config(batch_size=1, seq_len=32, max_context_length=24)
    made: Any = HuggingFaceGenerationAdapter(NeuronLlamaForCausalLM(llama.path, config).to_cpu())
    ids = torch.tensor([[5, 6, 7]])
    arguments: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "do_sample": False}
    arguments |= {"eos_token_id": None, "pad_token_id": 0}
    assert made.generate(ids, **arguments).shape == (1, 3 + 8)
    assert made.generate(ids, **arguments, max_new_tokens=2).shape == (1, 3 + 2)


@pytest.mark.parametrize("skipped", [False, True])
def test_programs_are_launched_while_loading_unless_that_is_skipped(
    llama: Checkpoint, compiled: Path, skipped: bool, monkeypatch: pytest.MonkeyPatch
):
    warmed: list[Session] = []
    monkeypatch.setattr(Session, "warm_up", lambda session: warmed.append(session))
    NeuronLlamaForCausalLM(llama.path, llama.config(skip_warmup=skipped)).load(compiled)
    assert len(warmed) == (not skipped)


def test_async_mode_of_a_compiled_folder(llama: Checkpoint, tmp_path: Path):
    given: dict[str, Any] = {"seq_len": 16, "on_device_sampling_config": {}}
    NeuronLlamaForCausalLM(llama.path, llama.config(**given)).compile(tmp_path / "compiled")
    config = llama.config(**given, async_mode=True)
    made = NeuronLlamaForCausalLM(llama.path, config).load(tmp_path / "compiled")
    out: Any = made.forward(np.array([[5, 6, 7]]))
    assert out.tokens.ravel().tolist() == [int(llama.logits([5, 6, 7]).argmax())]


def test_a_model_leaves_caches_and_sampling_to_its_programs(llama: Checkpoint):
    config = configured(llama.path, 1)
    made: Any = torch_models.OwnLlamaModel(config, optimize_inference=False)
    assert (made.sampler, made.kv_mgr, made.sequence_dimension) == (None, None, None)
    assert made.max_batch_size == 2


@pytest.mark.parametrize(
    "name", ["accepted_indices", "current_length", "medusa_mask", "scatter_index"]
)
def test_arguments_of_a_models_forward_are_not_ignored(llama: Checkpoint, name: str):
    made: Any = torch_models.OwnLlamaModel(configured(llama.path, 1))
    ids = torch.tensor([[5, 6]])
    made(ids, **{name: None})
    with pytest.raises(GraphgenError, match=f"{name} of OwnLlamaModel.forward") as caught:
        made(ids, **{name: ids})
    assert caught.value.code == "GG0904"


@pytest.mark.parametrize("family", ["gptj", "gpt_neox"])
def test_every_class_of_the_older_library_can_be_saved(family: str, tmp_path: Path):
    """Its guide excludes two classes."""
    save(ORACLES[family].model(), tmp_path / "model")
    kinds = {"gptj": tnx_families.GPTJForSampling, "gpt_neox": tnx_families.GPTNeoXForSampling}
    options: dict[str, Any] = {"n_positions": 16, "tp_degree": 1, "context_length_estimate": 8}
    first = kinds[family].from_pretrained(tmp_path / "model", **options)
    first.to_neuron()
    first.save(tmp_path / "compiled")
    again = kinds[family].from_pretrained(tmp_path / "model", **options)
    again.load(tmp_path / "compiled")
    again.to_neuron()
    assert not again.compiled
    ids = torch.tensor([[5, 6, 7]])
    made = [model.sample(ids, sequence_length=8, top_k=1).tolist() for model in (first, again)]
    assert made[0] == made[1]
