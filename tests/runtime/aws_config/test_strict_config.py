"""Configurations: checked when set, frozen when used, with notes on what has no effect."""

from __future__ import annotations

import copy
import pickle

import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.environment import environment_notes
from graphgen.runtime.aws_config.expert_config import GLUType, MoENeuronConfig, RouterConfig
from graphgen.runtime.aws_config.neuron_config import (
    FusedSpecNeuronConfig,
    LoraServingConfig,
    NeuronConfig,
    OnDeviceSamplingConfig,
)


def sampling_of(config: NeuronConfig) -> OnDeviceSamplingConfig:
    sampling = config.on_device_sampling_config
    assert isinstance(sampling, OnDeviceSamplingConfig)
    return sampling


def test_values_derive_from_others():
    config = NeuronConfig(seq_len=512, max_context_length=384, batch_size=2)
    assert (config.max_length, config.max_new_tokens, config.tkg_batch_size) == (512, 128, 2)
    assert NeuronConfig().max_new_tokens is None
    assert config.origin("max_length") == "derived: seq_len"
    assert config.origin("seq_len") == "given"
    assert config.origin("tp_degree") == "default"


def test_assigning_changes_what_derives():
    config = NeuronConfig()
    config.seq_len = 64
    assert config.max_context_length == 64


def test_dictionaries_become_nested_configurations():
    config = NeuronConfig(on_device_sampling_config={"dynamic": True, "top_k": 5})
    sampling = sampling_of(config)
    assert (sampling.top_k, sampling.do_sample) == (5, False)


def test_a_nested_dictionary_is_as_strict():
    with pytest.raises(GraphgenError, match="has no attribute 'topk'"):
        NeuronConfig(on_device_sampling_config={"topk": 5})


def test_hyphens_are_underscores():
    config = NeuronConfig(**{"tp-degree": 4, "torch-dtype": "float32"})
    assert config.given == {"tp_degree": 4, "torch_dtype": "float32"}


def test_an_old_name_sets_the_new_one_with_a_note():
    config = NeuronConfig(logical_neuron_cores=2)
    assert config.logical_nc_config == config.logical_neuron_cores == 2
    assert config.notes() == (
        "NeuronConfig.logical_neuron_cores is an old name of logical_nc_config",
        "NeuronConfig.logical_nc_config = 2 has no effect: the CPU has no logical cores",
    )


def test_the_documents_name_of_dynamic_lora_is_accepted():
    config = LoraServingConfig(**{"enable-dynamic-multi-lora": True})
    assert config.dynamic_multi_lora is True


def test_frozen_configurations_refuse_assignments_and_copies_do_not():
    config = NeuronConfig(on_device_sampling_config=OnDeviceSamplingConfig())
    config.freeze("NeuronLlamaForCausalLM")
    assert config.frozen
    with pytest.raises(GraphgenError, match="NeuronLlamaForCausalLM uses this"):
        config.tp_degree = 2
    with pytest.raises(GraphgenError, match="GG0905"):
        sampling_of(config).top_k = 2
    draft = copy.deepcopy(config)
    draft.tp_degree = 2
    sampling_of(draft).dynamic = True
    assert (config.tp_degree, draft.tp_degree) == (1, 2)
    assert not sampling_of(config).dynamic


def test_copies_share_nothing_and_survive_pickle():
    config = NeuronConfig(tp_degree=2)
    shallow = copy.copy(config)
    shallow.tp_degree = 4
    assert config.tp_degree == 2
    assert pickle.loads(pickle.dumps(config)) == config


def test_a_rule_broken_by_assignments_is_found_when_the_configuration_is_used():
    config = NeuronConfig(seq_len=256)
    config.max_context_length = 512
    with pytest.raises(GraphgenError, match="GG0903"):
        config.freeze("an application")
    config.seq_len = 512
    config.freeze("an application")


def test_an_assigned_request_for_an_unbuilt_feature_is_refused_at_once():
    config = NeuronConfig()
    with pytest.raises(GraphgenError, match="a padded hidden size is not built yet"):
        config.padded_hidden_size = 64
    config.padded_hidden_size = None


def test_two_values_of_one_attribute_are_refused():
    with pytest.raises(GraphgenError, match="one attribute with two values"):
        NeuronConfig(logical_neuron_cores=2, logical_nc_config=1)
    with pytest.raises(GraphgenError, match="one attribute with two values"):
        NeuronConfig(**{"tp-degree": 2, "tp_degree": 4})
    assert NeuronConfig(logical_neuron_cores=2, logical_nc_config=2).logical_nc_config == 2


def test_notes_name_what_has_no_effect_and_nothing_else():
    config = NeuronConfig(mlp_kernel_enabled=True, fused_qkv=False, attn_kernel_enabled=None)
    assert config.notes() == (
        "NeuronConfig.mlp_kernel_enabled = True has no effect: kernels exist on Neuron devices "
        "only",
    )
    assert NeuronConfig(tp_degree=2).notes() == ()


def test_settings_of_quantization_without_quantized_are_remarked_on():
    config = NeuronConfig(quantization_dtype="f8e4m3", modules_to_not_convert=["lm_head"])
    assert len(config.notes()) == 2
    path = {"quantized": True, "quantized_checkpoints_path": "q"}
    assert NeuronConfig(quantization_dtype="f8e4m3", **path).notes() == ()


def test_a_top_k_above_global_topk_is_refused():
    with pytest.raises(GraphgenError, match="top_k must be at most global_topk"):
        OnDeviceSamplingConfig(do_sample=True, top_k=500)
    assert OnDeviceSamplingConfig(top_k=500, do_sample=False).notes()
    assert OnDeviceSamplingConfig(do_sample=True, top_k=500, global_topk=0).notes() == ()


@pytest.mark.parametrize("setting", [{"top_k": 5}, {"top_p": 0.5}, {"temperature": 0.7}])
def test_a_setting_that_only_drawn_tokens_depend_on_makes_programs_draw(setting: dict[str, float]):
    assert OnDeviceSamplingConfig(**setting).do_sample is True
    assert OnDeviceSamplingConfig(**setting, dynamic=True).do_sample is False
    assert OnDeviceSamplingConfig(**setting, do_sample=False).do_sample is False


def test_the_default_is_greedy():
    assert OnDeviceSamplingConfig().do_sample is False


def test_the_variable_replaces_the_attribute_with_a_note(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    config = NeuronConfig(logical_nc_config=1)
    assert config.logical_nc_config == 2
    assert config.origin("logical_nc_config") == "NEURON_LOGICAL_NC_CONFIG"
    assert "NEURON_LOGICAL_NC_CONFIG=2 replaces" in config.notes()[0]
    assert config.given == {"logical_nc_config": 1}
    # A configuration keeps the value it was made with.
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "1")
    assert config.logical_nc_config == 2


@pytest.mark.parametrize("text", ["3", "two", "0"])
def test_a_bad_value_of_the_variable_is_named(monkeypatch: pytest.MonkeyPatch, text: str):
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", text)
    with pytest.raises(GraphgenError, match="NEURON_LOGICAL_NC_CONFIG"):
        _ = NeuronConfig().logical_nc_config


def test_variables_without_effect_are_named():
    given = {"NXD_CPU_MODE": "1", "NEURON_CC_FLAGS": "-O2", "RANK": "0", "HOME": "x"}
    assert environment_notes(given) == (
        "the variable NXD_CPU_MODE has no effect: it always is on the CPU",
        "the variable NEURON_CC_FLAGS has no effect on the CPU: programs for a Neuron target "
        "read it",
    )
    assert environment_notes(given, "trn2") == (environment_notes(given)[0],)


def test_required_attributes_must_be_given():
    with pytest.raises(GraphgenError, match="worker_cls must be given"):
        FusedSpecNeuronConfig()
    made = FusedSpecNeuronConfig(NeuronConfig, draft_model_path="draft")
    assert made.worker_cls is NeuronConfig
    with pytest.raises(TypeError, match="no value without a name"):
        NeuronConfig(1)  # pyright: ignore[reportCallIssue]


def test_inspection_finds_all_errors():
    made, problems = NeuronConfig.inspect(
        {
            "tp_degre": 2,
            "seq_len": "long",
            "max_context_length": 64,
            "padded_hidden_size": 64,
            "on_device_sampling_config": {"topk": 1, "top_p": 0.5},
            "max_length": 256,
        }
    )
    codes = [error.code for error in problems]
    assert codes == ["GG0901", "GG0902", "GG0901", "GG0904", "GG0903", "GG0903"]
    assert made.max_context_length == 64
    assert sampling_of(made).top_p == 0.5


def test_element_types_are_torch_types_once_torch_is_there():
    torch = pytest.importorskip("torch")
    assert NeuronConfig(torch_dtype=torch.float16).given == {"torch_dtype": "float16"}
    assert NeuronConfig().torch_dtype is torch.bfloat16
    assert RouterConfig.from_kwargs(router_dtype="float32").dtype is torch.float32


def test_enumerations_count_as_their_values():
    assert MoENeuronConfig(glu_type=GLUType.GLU).glu_type == "glu"


def test_lists_come_back_as_lists():
    config = NeuronConfig(enable_bucketing=True, context_encoding_buckets=[64, 128])
    assert config.context_encoding_buckets == [64, 128]


def test_adapters_can_be_a_list():
    config = LoraServingConfig(max_loras=2, lora_ckpt_paths=["a : x/y", "b:z"])
    assert config.lora_ckpt_paths == {"a": "x/y", "b": "z"}
