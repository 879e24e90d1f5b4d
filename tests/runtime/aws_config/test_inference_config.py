"""InferenceConfig: aliases, defaults of the family, required attributes, JSON."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.models import known_shape
from graphgen.runtime.aws_config.attribute_table import attributes_of
from graphgen.runtime.aws_config.expert_config import MoENeuronConfig
from graphgen.runtime.aws_config.inference_config import InferenceConfig, load_pretrained_config
from graphgen.runtime.aws_config.neuron_config import (
    FusedSpecNeuronConfig,
    KVQuantizationConfig,
    LlamaNeuronConfig,
    LoraServingConfig,
    NeuronConfig,
    OnDeviceSamplingConfig,
)
from graphgen.runtime.aws_nxdi.model_classes import (
    LlamaInferenceConfig,
    MixtralInferenceConfig,
    NeuronLlamaModel,
)

SIZES = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 61,
}
GPT2 = {"model_type": "gpt2", "n_embd": 32, "n_head": 4, "n_layer": 2, "vocab_size": 61}


class DerivedConfig(InferenceConfig):
    only_for_code = frozenset({"cores_per_group"})

    def get_required_attributes(self) -> list[str]:
        return ["hidden_size", "num_attention_heads"]

    def add_derived_config(self) -> None:
        self.cores_per_group = 1

    @classmethod
    def get_neuron_config_cls(cls) -> type[NeuronConfig]:
        return LlamaNeuronConfig


def saved(folder: Path, values: dict[str, object]) -> Path:
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def test_attributes_are_loaded_and_replaced(tmp_path: Path):
    hook = load_pretrained_config(saved(tmp_path, SIZES))
    config = InferenceConfig(NeuronConfig(), load_config=hook, num_hidden_layers=1)
    assert (config.hidden_size, config.num_hidden_layers) == (32, 1)
    assert config.to_hf() == {**SIZES, "num_hidden_layers": 1}


def test_what_is_not_set_has_the_default_of_the_family():
    config = InferenceConfig(NeuronConfig(), **SIZES)
    assert (config.num_key_value_heads, config.head_dim, config.rms_norm_eps) == (4, 8, 1e-6)
    config.hidden_size = 64
    assert config.head_dim == 16
    with pytest.raises(AttributeError, match="InferenceConfig has no attribute 'hiden_size'"):
        _ = config.hiden_size


def test_aliases_read_and_write_the_original():
    config = InferenceConfig(NeuronConfig(), **GPT2)
    assert (config.hidden_size, config.num_hidden_layers) == (32, 2)
    config.hidden_size = 64
    assert config.n_embd == 64
    assert "hidden_size" not in config.to_hf()


def test_the_map_of_a_pretrained_config_is_inherited():
    import transformers

    hook = load_pretrained_config(hf_config=transformers.GPT2Config(n_embd=48))
    config = InferenceConfig(NeuronConfig(), load_config=hook)
    assert config.attribute_map["hidden_size"] == "n_embd"
    assert config.hidden_size == 48


def test_a_hook_has_one_source(tmp_path: Path):
    with pytest.raises(GraphgenError, match="takes a model path or hf_config"):
        load_pretrained_config()


def test_required_attributes_have_to_be_there():
    with pytest.raises(GraphgenError, match="DerivedConfig must define num_attention_heads") as e:
        DerivedConfig(LlamaNeuronConfig(), hidden_size=32)
    assert e.value.code == "GG0503"


def test_derived_attributes_are_not_the_model_s():
    config = DerivedConfig(LlamaNeuronConfig(), **SIZES)
    assert config.cores_per_group == 1
    assert config.to_hf() == SIZES


def test_the_class_of_the_neuron_config_is_checked():
    with pytest.raises(GraphgenError, match="neuron_config is a NeuronConfig, not a Llama") as e:
        DerivedConfig(NeuronConfig(), **SIZES)
    assert e.value.code == "GG0902"


def test_the_neuron_config_is_frozen_and_a_copy_is_not():
    given = NeuronConfig(batch_size=2, torch_dtype="float32")
    config = InferenceConfig(given, **SIZES)
    with pytest.raises(GraphgenError, match="InferenceConfig uses this configuration"):
        given.batch_size = 3
    draft = copy.deepcopy(config)
    draft.neuron_config.batch_size = 3
    draft.num_hidden_layers = 1
    assert (config.neuron_config.batch_size, config.num_hidden_layers) == (2, 2)
    config.freeze("Application")
    with pytest.raises(GraphgenError, match="num_hidden_layers cannot be set: Application") as e:
        config.num_hidden_layers = 3
    assert e.value.code == "GG0905"


def test_the_element_type_is_the_model_s_unless_it_is_given():
    plain = NeuronConfig()
    config = InferenceConfig(plain, **SIZES, torch_dtype="float16")
    assert config.neuron_config.value("torch_dtype") == "float16"
    assert plain.value("torch_dtype") == "bfloat16"
    given = InferenceConfig(NeuronConfig(torch_dtype="float32"), **SIZES, torch_dtype="float16")
    assert given.neuron_config.value("torch_dtype") == "float32"


def test_json_is_read_back_with_nested_configurations(tmp_path: Path):
    sampling = OnDeviceSamplingConfig(do_sample=True, top_k=5)
    nested = LlamaNeuronConfig(
        batch_size=2, torch_dtype="float16", on_device_sampling_config=sampling
    )
    config = DerivedConfig(nested, **SIZES)
    config.save(tmp_path / "new")
    text = (tmp_path / "new" / "neuron_config.json").read_text()
    assert text == config.to_json_string() + "\n"
    assert json.loads(text)["neuron_config"]["torch_dtype"] == "float16"
    read = DerivedConfig.load(tmp_path / "new")
    assert read == config
    again = read.neuron_config.on_device_sampling_config
    assert isinstance(again, OnDeviceSamplingConfig)
    assert again.top_k == 5
    over = DerivedConfig.load(tmp_path / "new", num_hidden_layers=1)
    assert over.num_hidden_layers == 1
    assert DerivedConfig.from_json_string(config.to_json_string()) == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not valid JSON"),
        ("[]", "not a JSON object"),
        ("{}", "has no neuron_config"),
        ('{"neuron_config": {"batchsize": 1}}', "no attribute 'batchsize'"),
    ],
)
def test_a_file_without_a_configuration_is_refused(tmp_path: Path, text: str, message: str):
    file = tmp_path / "neuron_config.json"
    file.write_text(text)
    with pytest.raises(GraphgenError, match=message) as error:
        InferenceConfig.load(tmp_path)
    assert error.value.where == str(file)


def test_a_missing_file_is_refused(tmp_path: Path):
    with pytest.raises(GraphgenError, match="cannot read the configuration") as error:
        InferenceConfig.load(tmp_path)
    assert error.value.code == "GG0906"


def fused(**given: object) -> FusedSpecNeuronConfig:
    attributes: dict[str, object] = {"draft_model_path": "draft", **given}
    return FusedSpecNeuronConfig(NeuronLlamaModel, **attributes)


def every_attribute_given() -> NeuronConfig:
    """Each attribute that may be set has a value that is not its default, where one is allowed."""
    made = NeuronConfig(
        lora_config=LoraServingConfig(lora_ckpt_paths={"a": "/a"}, max_lora_rank=4),
        on_device_sampling_config=OnDeviceSamplingConfig(do_sample=True, top_k=5, temperature=0.5),
        kv_quant_config=KVQuantizationConfig(quant_dtype="float8_e5m2"),
    )
    for name, row in attributes_of("NeuronConfig").items():
        for value in (True, False, 3, 64, "draft", ("a",), (16, 64), {"a": 1}, "float16", 0.5):
            if row.replaces or value == made.default(name) or name in made.given:
                continue
            changed = copy.deepcopy(made)
            try:
                setattr(changed, name, value)
                changed.check()
            except GraphgenError:
                continue
            made = changed
    return made


def test_a_written_configuration_is_the_one_that_is_read(tmp_path: Path):
    own = every_attribute_given()
    assert len(own.given) > 60
    draft = LlamaInferenceConfig(copy.deepcopy(own), **SIZES, rope_scaling={"factor": 2.0})
    made = LlamaInferenceConfig(own, **SIZES, dt="float16", ids=[1, 2])
    made.fused_spec_config = fused(draft_config=draft)
    made.save(tmp_path)
    read = LlamaInferenceConfig.load(tmp_path)
    assert read == made
    assert read.fused_spec_config is not None
    assert read.fused_spec_config.value("draft_config") == draft
    assert read.fused_spec_config.value("worker_cls") is NeuronLlamaModel
    other = copy.deepcopy(draft)
    other.neuron_config.max_context_length = 8
    assert read.fused_spec_config.value("draft_config") != other


@pytest.mark.parametrize("name", ["attribute_map", "element type", "tuple"])
def test_attributes_of_the_model_survive_their_file(name: str):
    torch = pytest.importorskip("torch")
    made = InferenceConfig(NeuronConfig(), **GPT2)
    if name == "attribute_map":
        made.attribute_map = {"width": "n_embd"}
    else:
        made.kept = torch.float16 if name == "element type" else (1, {"a": (2, torch.int8)})
    read = InferenceConfig.from_json_string(made.to_json_string())
    assert read == made
    assert name != "attribute_map" or read.width == 32


def test_of_private_attributes_a_file_has_those_that_the_family_reads():
    config = InferenceConfig(
        NeuronConfig(), model_type="opt", _remove_final_layer_norm=True, _name_or_path="a/folder"
    )
    read = InferenceConfig.from_json_string(config.to_json_string())
    assert config == read
    assert read.to_hf() == {"model_type": "opt", "_remove_final_layer_norm": True}
    assert not InferenceConfig(NeuronConfig(), _name_or_path="a/folder").to_hf()


def test_an_attribute_that_a_file_cannot_hold_is_named():
    made = InferenceConfig(NeuronConfig(), **SIZES, hook=object())
    with pytest.raises(GraphgenError, match="the attribute hook is a object, which") as caught:
        made.to_json_string()
    assert caught.value.code == "GG0902"


def test_a_draft_of_another_class_keeps_it():
    kinds = (MixtralInferenceConfig, LlamaInferenceConfig)
    made = kinds[0](MoENeuronConfig(capacity_factor=2.0), None, **known_shape("mixtral-8x7b"))
    made.fused_spec_config = fused(draft_config=kinds[1](NeuronConfig(seq_len=16), **SIZES))
    read = kinds[0].from_json_string(made.to_json_string())
    assert read == made
    assert read.fused_spec_config is not None
    assert type(read.fused_spec_config.value("draft_config")) is LlamaInferenceConfig


def test_the_file_of_awss_library_has_a_draft():
    draft = {**SIZES, "neuron_config": {"seq_len": 64, "is_eagle_draft": True}}
    module = "neuronx_distributed_inference.models.llama.modeling_llama"
    text = json.dumps(
        {
            **SIZES,
            "neuron_config": {"seq_len": 64, "speculation_length": 4},
            "fused_spec_config": {
                "draft_config": {**draft, "fused_spec_config": None},
                "draft_model_path": "/draft",
                "worker_cls": {"__module__": module, "__name__": "NeuronLlamaModel"},
            },
        }
    )
    read = LlamaInferenceConfig.from_json_string(text).fused_spec_config
    assert read is not None
    assert (read.value("worker_cls"), read.value("draft_model_path")) == (
        NeuronLlamaModel,
        "/draft",
    )
    own = read.value("draft_config")
    assert isinstance(own, LlamaInferenceConfig)
    assert own.neuron_config.value("is_eagle_draft") is True


@pytest.mark.parametrize("value", ["draft", 3, NeuronConfig()])
def test_a_draft_of_another_type_is_refused(value: object):
    made = InferenceConfig(NeuronConfig(), **SIZES)
    words = f"fused_spec_config is a {type(value).__name__}, not a FusedSpecNeuronConfig"
    with pytest.raises(GraphgenError, match=words) as caught:
        setattr(made, "fused_spec_config", value)  # noqa: B010 - of another type on purpose
    assert caught.value.code == "GG0902"
    with pytest.raises(GraphgenError, match=words):
        InferenceConfig(NeuronConfig(), fused_spec_config=value, **SIZES)


def test_a_draft_that_nothing_uses_is_noted():
    made = InferenceConfig(NeuronConfig(), fused_spec_config=fused(), **SIZES)
    assert any("fused_spec_config has no effect" in note for note in made.notes())
    used = NeuronConfig(speculation_length=4, enable_fused_speculation=True)
    assert not InferenceConfig(used, fused_spec_config=fused(), **SIZES).notes()
