"""Configurations as AWS's JSON, in both directions."""

from __future__ import annotations

import json
from math import inf
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.attribute import REQUIRED, Attribute, Refused
from graphgen.runtime.aws_config.attribute_table import attributes_of, owners
from graphgen.runtime.aws_config.compile_settings import compile_settings
from graphgen.runtime.aws_config.config_json import (
    config_json,
    config_text,
    inspect_config,
    read_config,
    read_object,
)
from graphgen.runtime.aws_config.neuron_config import (
    FusedSpecNeuronConfig,
    KVQuantizationConfig,
    LoraServingConfig,
    NeuronConfig,
    OnDeviceSamplingConfig,
)
from graphgen.runtime.aws_config.strict_config import StrictConfig, config_class

# The file of a version of the library that knows fewer attributes, for four sequences of 1024.
OLDER = {
    "async_mode": False,
    "attn_cls": "NeuronLlamaAttention",
    "attn_kernel_enabled": None,
    "batch_size": 4,
    "buckets": [1024],
    "cast_type": "config",
    "cc_pipeline_tiling_factor": 2,
    "chunked_prefill_config": None,
    "ctx_batch_size": 1,
    "enable_long_context_mode": False,
    "enable_token_tree": False,
    "is_block_kv_layout": None,
    "is_chunked_prefill": False,
    "is_continuous_batching": True,
    "is_prefill_stage": None,
    "kv_cache_batch_size": 4,
    "lm_head_pad": False,
    "local_ranks_size": 2,
    "logical_nc_config": 1,
    "lora_config": None,
    "max_batch_size": 4,
    "max_context_length": 1024,
    "max_length": 1024,
    "max_new_tokens": None,
    "medusa_tree": None,
    "n_active_tokens": 1024,
    "n_positions": 1024,
    "on_device_sampling_config": {
        "deterministic": False,
        "do_sample": False,
        "dynamic": True,
        "global_topk": 256,
        "on_device_sampling_config": True,
        "temperature": 1.0,
        "top_k": 1,
        "top_k_kernel_enabled": False,
        "top_p": 1.0,
    },
    "overrides_torch_dtype": True,
    "pa_block_size": 1024,
    "pa_num_blocks": 4,
    "quantization_dtype": "int8",
    "quantization_type": "per_tensor_symmetric",
    "quantize_clamp_bound": inf,
    "quantized": False,
    "save_sharded_checkpoint": False,
    "seq_len": 1024,
    "spec_batch_size": 4,
    "tile_cc": False,
    "tkg_batch_size": 4,
    "torch_dtype": "bfloat16",
    "tp_degree": 2,
    "weights_to_skip_layout_optimization": [],
    "world_size": 2,
}


def test_a_file_of_aws_is_read_and_every_value_is_kept():
    text = json.dumps(OLDER, indent=2, sort_keys=True)
    assert '"quantize_clamp_bound": Infinity' in text
    config = read_config(NeuronConfig, read_object(text))
    written = cast("dict[str, object]", json.loads(config_text(config)))
    assert {name: written[name] for name in OLDER} == OLDER
    assert config.notes() == (
        "NeuronConfig.is_continuous_batching = True has no effect: sequences come and go one by "
        "one in any case",
    )


def test_saved_logical_cores_count_whatever_the_target_has_by_default():
    assert read_config(NeuronConfig, OLDER).logical_cores("trn2") == 1
    two = config_json(NeuronConfig(target="trn2"))
    assert read_config(NeuronConfig, two).logical_cores("trn2") == two["logical_nc_config"] == 2


def test_a_change_of_a_length_reaches_the_lengths_that_followed_from_it():
    config = read_config(NeuronConfig, {**OLDER, "batch_size": 4})
    assert config.origin("max_length") == "derived: seq_len"
    config.seq_len = 512
    assert (config.max_length, config.max_context_length, config.buckets) == (512, 512, [512])


def test_the_text_is_sorted_and_indented():
    text = config_text(NeuronConfig(torch_dtype="float16"))
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True)
    assert '\n  "torch_dtype": "float16",\n' in text
    assert "logical_neuron_cores" not in text


def test_our_files_have_the_attributes_of_aws():
    assert set(OLDER) <= set(config_json(NeuronConfig()))


def test_nested_configurations_survive():
    made = KVQuantizationConfig(k_quant_method="per_channel_symmetric", quant_dtype="float8_e5m2")
    assert read_config(KVQuantizationConfig, config_json(made)) == made
    config = NeuronConfig(on_device_sampling_config=OnDeviceSamplingConfig(top_k=7, top_p=0.5))
    read = read_config(NeuronConfig, read_object(config_text(config)))
    assert read == config
    assert read.on_device_sampling_config == config.on_device_sampling_config
    lora = LoraServingConfig(max_loras=2, lora_ckpt_paths={"a": "x"}, target_modules=["q_proj"])
    assert read_config(LoraServingConfig, config_json(lora)) == lora


def test_classes_are_their_module_and_name():
    made = FusedSpecNeuronConfig(NeuronConfig, draft_model_path="draft")
    written = config_json(made)
    assert written["worker_cls"] == {
        "__module__": NeuronConfig.__module__,
        "__name__": "NeuronConfig",
    }
    assert read_config(FusedSpecNeuronConfig, written).worker_cls is NeuronConfig


@pytest.mark.parametrize(
    "module",
    [
        "neuronx_distributed_inference.models.config",
        "graphgen.runtime.aws.config.neuron_config",
        "os",
        "no.such.module",
    ],
)
def test_a_file_chooses_no_code_to_run(module: str):
    named = {"__module__": module, "__name__": "NeuronConfig"}
    read = read_config(FusedSpecNeuronConfig, {"worker_cls": named})
    known = module.endswith("config")
    assert read.worker_cls is NeuronConfig if known else read.worker_cls == named


def test_an_unknown_key_is_refused_with_the_nearest_name():
    with pytest.raises(GraphgenError, match="did you mean sequence_parallel_enabled"):
        read_config(NeuronConfig, {**OLDER, "sequence_parallel_enable": True})


@pytest.mark.parametrize(
    ("text", "what"), [("{", "not valid JSON"), ("[]", "is list"), ('"a"', "is str")]
)
def test_other_texts_are_refused(text: str, what: str):
    with pytest.raises(GraphgenError, match=what):
        read_object(text)


def test_what_cannot_be_used_can_be_inspected_and_written_back():
    values = {
        "lora_config": {"max_loras": 3},
        "kv_quant_config": {"quant_dtype": "float8_e4m3fn", "direct_cast": False},
        "chunked_prefill_config": {"max_num_seqs": 8},
    }
    config, problems = inspect_config(NeuronConfig, values)
    assert {error.code for error in problems} == {"GG0903", "GG0904"}
    again, _ = inspect_config(NeuronConfig, config_json(config))
    assert again == config
    assert isinstance(again.kv_quant_config, KVQuantizationConfig)


def test_peers_n12_the_numbers_of_caches_survive_json():
    """NxD Inference writes a KVQuantizationConfig as text that it cannot read."""
    config = NeuronConfig(
        kv_cache_quant=True, kv_quant_config=KVQuantizationConfig(quant_dtype="float8_e5m2")
    )
    again, problems = inspect_config(NeuronConfig, json.loads(json.dumps(config_json(config))))
    assert (again, list(problems)) == (config, [])
    made = compile_settings(again)
    assert (made.kv_cache_quant, made.kv_cache_dtype) == (True, "f8e5m2")


def test_int8_caches_have_a_scale_a_token():
    """Cast to whole numbers, as the library would, nearly all keys and values were 0 or 1."""
    numbers = KVQuantizationConfig(quant_dtype="int8")
    made = compile_settings(NeuronConfig(kv_cache_quant=True, kv_quant_config=numbers))
    assert (made.kv_cache_dtype, made.cache_scale) == ("int8", "per_token")


def test_peers_n2_the_flag_alone_quantizes_caches():
    """In NxD Inference kv_cache_quant changes nothing without a kv_quant_config."""
    made = compile_settings(NeuronConfig(kv_cache_quant=True))
    assert (made.kv_cache_quant, made.kv_cache_dtype) == (True, "f8e4m3")
    assert not compile_settings(NeuronConfig()).kv_cache_quant


INTEGERS = st.integers(1, 1 << 20)
SAMPLES: dict[str, st.SearchStrategy[object]] = {
    "true or false": st.booleans(),
    "an integer >= 1": INTEGERS,
    "an integer >= 0": st.integers(0, 1 << 20),
    "a number": st.floats(allow_nan=False),
    "a string": st.text(max_size=8),
    "a list of positive integers": st.lists(INTEGERS, max_size=4),
    "a list of one or more positive integers": st.lists(INTEGERS, min_size=1, max_size=4),
    "a list of strings": st.lists(st.text(max_size=4), max_size=3),
    "1 or 2": st.sampled_from([1, 2]),
    "a number in (0, 1]": st.floats(0, 1, exclude_min=True),
    "an integer >= -1": st.integers(-1, 99),
    "a number >= 0": st.floats(0, 1e30),
    "a torch.dtype or one of bfloat16, float16, float32": st.sampled_from(
        ["bfloat16", "torch.float16", "float32"]
    ),
    "softmax or sigmoid": st.sampled_from(["softmax", "sigmoid"]),
    "glu or swiglu": st.sampled_from(["glu", "swiglu"]),
    "HI_LO or PING_PONG": st.sampled_from(["HI_LO", "PING_PONG"]),
    "right or left": st.sampled_from(["right", "left"]),
    "config or as-declared": st.sampled_from(["config", "as-declared"]),
    "int8, f8e4m3 or f8e5m2": st.sampled_from(["int8", "f8e4m3", "f8e5m2"]),
}


def sample(row: Attribute) -> st.SearchStrategy[object] | None:
    """Values of an attribute; ``None`` for a kind that is not among the samples."""
    text = row.kind.noun.removesuffix(", or None")
    values = SAMPLES.get(text)
    return values if values is None or text == row.kind.noun else st.none() | values


@st.composite
def configurations(draw: st.DrawFn) -> StrictConfig:
    """A configuration of any class with any values, impossible ones too."""
    owner = draw(st.sampled_from([name for name in owners() if not name.startswith("tnx.")]))
    rows = {name: sample(row) for name, row in attributes_of(owner).items() if not row.replaces}
    names = draw(
        st.sets(st.sampled_from([name for name, values in rows.items() if values is not None]))
    )
    values = {name: draw(cast("st.SearchStrategy[object]", rows[name])) for name in sorted(names)}
    return config_class(owner).inspect(values)[0]


def survives_json(config: StrictConfig) -> None:
    """Write a configuration, read it, compare both and write it again."""
    written = json.dumps(config_json(config), sort_keys=True)
    read, _ = inspect_config(type(config), json.loads(written))
    assert read == config
    assert json.dumps(config_json(read), sort_keys=True) == written


@settings(max_examples=120, deadline=None)
@given(configurations())
def test_any_configuration_survives_its_json(config: StrictConfig):
    survives_json(config)


@pytest.mark.slow
@settings(max_examples=500, deadline=None, derandomize=True)
@given(configurations())
def test_five_hundred_configurations_survive_their_json(config: StrictConfig):
    """The same ones each time."""
    survives_json(config)


def test_the_samples_reach_most_attributes():
    rows = attributes_of("NeuronConfig").values()
    plain = [row for row in rows if sample(row) is not None]
    assert len(plain) > 0.8 * len(rows)
    assert any(isinstance(row.cpu, Refused) for row in plain)
    assert REQUIRED not in [row.default for row in plain]
