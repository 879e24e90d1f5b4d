"""A family that a user adds: configuration, model and weights, as docs/aws-compatibility.md shows.

The model is Llama's with a sum of two embeddings; the checkpoint has the names and the one merged
projection of another library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.models import Family, LlamaConfig, read_llama
from graphgen.models.decoder import body, head
from graphgen.runtime.aws_config.inference_config import InferenceConfig, load_pretrained_config
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_nxdi.base_model import NeuronBaseModel
from graphgen.runtime.aws_nxdi.causal_lm import CausalLMOutput, NeuronBaseForCausalLM
from graphgen.runtime.aws_nxdi.model_classes import NeuronLlamaForCausalLM
from tests.runtime.aws_nxdi.conftest import Checkpoint


def read(config: dict[str, Any]) -> LlamaConfig:
    """The configuration: Llama's, with the width under another name."""
    values = {**config, "model_type": "llama", "hidden_size": config["width"]}
    del values["width"]
    return read_llama(values)


class NeuronNewModel(NeuronBaseModel):
    family = Family(
        "user-new",
        ("NewForCausalLM",),
        read,  # pyright: ignore[reportArgumentType]
        body,
        head,
        prefix="model",
        embedding="model.embed_tokens.weight",
    )


class NewNeuronConfig(NeuronConfig):
    """Options of the user's models."""


class NewInferenceConfig(InferenceConfig):
    attribute_map: Mapping[str, str] = {"hidden_size": "width"}
    only_for_code = frozenset({"group"})
    num_attention_heads: int
    num_key_value_heads: int

    def get_required_attributes(self) -> list[str]:
        return ["hidden_size", "num_attention_heads", "num_key_value_heads"]

    def add_derived_config(self) -> None:
        self.group = self.num_attention_heads // self.num_key_value_heads

    @classmethod
    def get_neuron_config_cls(cls) -> type[NeuronConfig]:
        return NewNeuronConfig


class NeuronNewForCausalLM(NeuronBaseForCausalLM):
    _STATE_DICT_MODEL_PREFIX = "backbone."
    _NEW_STATE_DICT_MODEL_PREFIX = "model."
    _model_cls = NeuronNewModel

    @classmethod
    def get_config_cls(cls) -> type[InferenceConfig]:
        return NewInferenceConfig

    @staticmethod
    def convert_hf_to_neuron_state_dict(state_dict: Any, config: Any) -> Any:
        import torch

        head_dim = config.hidden_size // config.num_attention_heads
        sizes = [heads * head_dim for heads in (config.group, 1, 1)]
        for layer in range(config.num_hidden_layers):
            home = f"model.layers.{layer}.self_attn"
            merged = state_dict.pop(f"{home}.qkv.weight")
            groups = merged.view(config.num_key_value_heads, sum(sizes), -1).split(sizes, 1)
            for name, part in zip("qkv", groups, strict=True):
                state_dict[f"{home}.{name}_proj.weight"] = torch.cat(tuple(part))
        return state_dict


@pytest.fixture(scope="module")
def checkpoint(llama: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """Llama's weights, each KV head's queries, key and value in one tensor."""
    import torch
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("new")
    config = json.loads((llama.path / "config.json").read_text())
    config |= {"model_type": "user-new", "width": config.pop("hidden_size")}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {
        name.replace("model.", "backbone.", 1): tensor.clone()
        for name, tensor in llama.model.state_dict().items()
    }
    for layer in range(2):
        home = f"backbone.layers.{layer}.self_attn"
        q, k, v = (tensors.pop(f"{home}.{name}_proj.weight") for name in "qkv")
        parts = [tensor.view(2, -1, tensor.shape[1]) for tensor in (q, k, v)]
        tensors[f"{home}.qkv.weight"] = torch.cat(parts, 1).flatten(0, 1).contiguous()
    save_file(tensors, folder / "model.safetensors")
    return Checkpoint(folder, llama.model)


def application(checkpoint: Checkpoint, **given: Any) -> NeuronNewForCausalLM:
    options = NewNeuronConfig(batch_size=2, seq_len=32, torch_dtype="float32", **given)
    config = NewInferenceConfig(options, load_config=load_pretrained_config(checkpoint.path))
    return NeuronNewForCausalLM(checkpoint.path, config)


def test_a_user_s_family_compiles_loads_and_runs(checkpoint: Checkpoint, tmp_path: Path):
    application(checkpoint).compile(tmp_path / "new")
    loaded = NeuronNewForCausalLM(tmp_path / "new").load(tmp_path / "new")
    assert isinstance(loaded.config, NewInferenceConfig)
    assert loaded.config.group == 2
    out = loaded.forward(input_ids=np.array([[5, 6, 7], [8, 9, 10]]))
    assert isinstance(out, CausalLMOutput)
    logits = np.asarray(out.logits)
    for row, prompt in enumerate([[5, 6, 7], [8, 9, 10]]):
        np.testing.assert_allclose(logits[row, 0], checkpoint.logits(prompt), atol=2e-5)


def test_the_state_dict_has_the_new_prefix(checkpoint: Checkpoint):
    made = application(checkpoint)
    names = set(NeuronNewForCausalLM.get_state_dict(str(checkpoint.path), made.config))
    assert "model.layers.0.self_attn.q_proj.weight" in names
    assert not any(name.startswith("backbone.") for name in names)


def test_the_state_dict_of_a_built_in_family_loses_its_prefix(llama: Checkpoint):
    state = NeuronLlamaForCausalLM.get_state_dict(str(llama.path), llama.config())
    assert "layers.0.self_attn.q_proj.weight" in state
    assert "lm_head.weight" in state
    np.testing.assert_array_equal(
        np.asarray(state["norm.weight"]), llama.model.model.norm.weight.detach()
    )


def test_tensors_that_are_missing_after_the_conversion_are_named(checkpoint: Checkpoint):
    class Forgetful(NeuronNewForCausalLM):
        @staticmethod
        def convert_hf_to_neuron_state_dict(state_dict: Any, config: Any) -> Any:
            return state_dict

    made = application(checkpoint)
    with pytest.raises(GraphgenError) as error:
        Forgetful(checkpoint.path, made.config).to_cpu()
    assert error.value.code == "GG0602"
    assert "model.layers.0.self_attn.q_proj.weight" in str(error.value)


def test_a_class_that_describes_no_model_is_refused_by_name(llama: Checkpoint):
    class Empty(NeuronBaseModel):
        pass

    class Application(NeuronLlamaForCausalLM):
        _model_cls = Empty

    with pytest.raises(GraphgenError, match="Empty describes no model") as error:
        Application(llama.path, llama.config())
    assert error.value.code == "GG0904"


def test_a_model_type_belongs_to_one_family(llama: Checkpoint):
    class OtherModel(NeuronBaseModel):
        family = Family("llama", (), read_llama, body, head, prefix="m", embedding="m.e")

    class Application(NeuronLlamaForCausalLM):
        _model_cls = OtherModel

    with pytest.raises(GraphgenError, match="'llama' belongs to a family") as error:
        Application(llama.path, llama.config())
    assert error.value.code == "GG0501"
