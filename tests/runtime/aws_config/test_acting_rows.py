"""The rows of AWS's attributes act: what a row says and what it does are one thing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.models import known_shape
from graphgen.runtime.aws_config.attribute import (
    Attribute,
    CompilerArgument,
    CompileSetting,
    NoEffect,
    Refused,
)
from graphgen.runtime.aws_config.attribute_table import ATTRIBUTES, attributes_of
from graphgen.runtime.aws_config.compile_settings import (
    ADDED,
    SettingRequest,
    applied,
    compile_settings,
    folded,
)
from graphgen.runtime.aws_config.described_settings import described
from graphgen.runtime.aws_config.expert_config import MoENeuronConfig
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_config.strict_config import StrictConfig
from graphgen.runtime.aws_config.tnx_config import TnxModelOptions, TnxNeuronConfig

TARGETS = ("cpu", "trn2")
ACTING = [
    row
    for row in ATTRIBUTES
    if not row.replaces
    and any(isinstance(row.effect(target), CompileSetting) for target in TARGETS)
]
MODEL = known_shape("qwen2-7b")
VALUES = (
    *(True, False, 2, 3, 16, 0.5, 1.25, "float16", "f16", "int8", "f8e4m3", "f8e4m3fn"),
    *("float8_e5m2", "as-declared", "dynamic", "per_channel_symmetric", "shard-over-heads"),
    *(["q_proj"], [64, 128], {}, {"do_sample": True}, {"quant_dtype": "int8"}),
    {"moe_cte_ep_degree": 2},
)
# What others must say for an attribute to be read at all.
CONTEXTS: Mapping[str, Sequence[Mapping[str, object]]] = {
    "MoENeuronConfig": (
        {},
        {"tp_degree": 2, "seq_len": 1024, "enable_bucketing": True, "batch_size": 4},
        {"tp_degree": 2, "sequence_parallel_enabled": True, "is_block_kv_layout": True},
        {"is_block_kv_layout": True, "seq_len": 1024, "enable_bucketing": True},
        {"quantized": True, "quantized_checkpoints_path": "none", "kv_cache_quant": True},
        {"speculation_length": 3, "on_device_sampling_config": {"do_sample": True}}
        | {"batch_size": 4},
        {"tp_degree": 4, "cp_degree": 2, "batch_size": 4, "is_continuous_batching": True}
        | {"sequence_parallel_enabled": True},
        {"is_medusa": True, "num_medusa_heads": 1, "medusa_speculation_length": 4}
        | {"medusa_tree": [[0]]},
        {"quantized_mlp_kernel_enabled": True, "quantized": True, "fused_qkv": True}
        | {"modules_to_not_convert": ["self_attn"], "quantized_checkpoints_path": "none"},
        {"tp_degree": 2, "hybrid_sharding_config": {"moe_cte_tp_degree": 2}},
        {"fused_qkv": True, "attn_kernel_enabled": True},
    ),
    "tnx": (
        {},
        {"context_length_estimate": 64, "sequence_parallel_norm": True},
        {"quant": {"dequant_dtype": "f32"}, "on_device_generation": {"do_sample": True}},
        {"kv_cache_quant": {"dequant_dtype": "f32"}},
    ),
}


def library(row: Attribute) -> str:
    return "tnx" if row.owner.startswith("tnx.") else "MoENeuronConfig"


def request_of(name: str, values: Mapping[str, object], target: str) -> SettingRequest:
    """A request of one library; attributes of transformers-neuronx are in one of two classes."""
    if name != "tnx":
        return SettingRequest((MoENeuronConfig(**values),), target, MODEL)
    kinds = (TnxModelOptions, TnxNeuronConfig)
    configs = [
        kind(**{key: value for key, value in values.items() if key in attributes_of(kind.owner)})
        for kind in kinds
    ]
    for config in configs:
        config.check(target)
    return SettingRequest(configs, target, MODEL)


def settings_of(name: str, values: Mapping[str, object], target: str) -> Mapping[str, object]:
    request = request_of(name, values, target)
    for config in request.configs:
        config.check(target)
    return folded(request)


def placed(row: Attribute, value: object, context: Mapping[str, object]) -> dict[str, object]:
    """The context with a value of a row, inside the configuration that holds it."""
    outer = ("MoENeuronConfig", "NeuronConfig", "tnx.from_pretrained", "tnx.NeuronConfig")
    if row.owner in outer:
        return {**context, row.name: value}
    home = next(each for each in ATTRIBUTES if each.nested == row.owner)
    inside = context.get(home.name)
    inner = dict(inside) if isinstance(inside, Mapping) else {}
    return {**context, home.name: {**inner, row.name: value}}


def changes(row: Attribute, target: str) -> Iterator[set[str]]:
    """The fields that values of an attribute change, in all contexts."""
    for context in CONTEXTS[library(row)]:
        before = settings_of(library(row), context, target)
        for value in VALUES:
            try:
                row.kind.read(value)
                after = settings_of(library(row), placed(row, value, context), target)
            except (GraphgenError, ValueError, TypeError):
                continue
            names = before.keys() | after.keys()
            yield {name for name in names if before.get(name) != after.get(name)}


@pytest.mark.parametrize("row", ACTING, ids=lambda row: f"{row.owner}.{row.name}")
def test_a_value_of_an_acting_row_changes_the_fields_that_it_names(row: Attribute):
    for target in TARGETS:
        effect = row.effect(target)
        if not isinstance(effect, CompileSetting) or row.name == "target":
            continue
        missing = set(effect.fields)
        for changed in changes(row, target):
            missing -= changed
            if not missing:
                break
        assert not missing, f"{row.name} for {target}"


def test_rows_set_fields_of_the_compile_configuration_that_they_name():
    known = {item.name for item in fields(CompileConfig)}
    for row in ACTING:
        for target in TARGETS:
            effect = row.effect(target)
            if isinstance(effect, CompileSetting):
                assert set(effect.fields) <= known, row.name
                assert effect.apply is not None or len(effect.fields) == 1
    for name, contexts in CONTEXTS.items():
        for context in contexts:
            for target in TARGETS:
                request = request_of(name, context, target)
                for config in request.configs:
                    for row in attributes_of(config.owner).values():
                        effect = row.effect(target)
                        if isinstance(effect, CompileSetting):
                            found = applied(row, effect, request)
                            assert found.keys() <= set(effect.fields), row.name


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CONTEXTS)
def test_a_field_is_set_by_one_effect_of_a_library(name: str, target: str):
    effects: dict[str, set[int]] = defaultdict(set)
    for row in ACTING:
        effect = row.effect(target)
        if library(row) == name and isinstance(effect, CompileSetting):
            for field in effect.fields:
                effects[field].add(id(effect))
    several = {field for field, found in effects.items() if len(found) > 1}
    assert several <= set(ADDED)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CONTEXTS)
def test_what_is_said_to_have_no_effect_is_not_read(
    name: str, target: str, monkeypatch: pytest.MonkeyPatch
):
    plain, read = StrictConfig.value, set[tuple[str, str]]()

    def value(self: StrictConfig, name: str) -> object:
        read.add((self.owner, name))
        return plain(self, name)

    requests = [request_of(name, context, target) for context in CONTEXTS[name]]
    monkeypatch.setattr(StrictConfig, "value", value)
    for request in requests:
        folded(request)
    assert len(read) > 15
    for owner, attribute in read:
        row = attributes_of(owner)[attribute]
        assert not isinstance(row.effect(target), NoEffect | Refused | CompilerArgument), row.name


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"tp_degree": 8, "cp_degree": 2},
        {"tp_degree": 4, "attention_dp_degree": 2, "batch_size": 4}
        | {"is_continuous_batching": True},
        {"batch_size": 4, "ctx_batch_size": 1, "max_batch_size": 8},
        {"speculation_length": 3, "batch_size": 4, "spec_batch_size": 2},
        {"kv_cache_quant": True, "kv_quant_config": {"quant_dtype": "int8"}},
        {"is_block_kv_layout": True, "pa_block_size": 16, "pa_num_blocks": 64, "seq_len": 256},
        {"attention_dtype": "float32", "rpl_reduce_dtype": "float32", "tp_degree": 2},
        {"flash_decoding_enabled": True, "tp_degree": 8},
        {"quantize_clamp_bound": 3.5, "is_continuous_batching": True},
        {"lora_config": {"max_loras": 2, "target_modules": ["q_proj"]}, "pp_degree": 2},
        {"seq_len": 4096, "max_context_length": 512, "enable_bucketing": True},
    ],
    ids=str,
)
def test_a_description_asks_for_what_it_describes(attributes: dict[str, object]):
    settings = compile_settings(NeuronConfig(**attributes), "trn2")
    said = described("NeuronConfig", settings)
    assert compile_settings(NeuronConfig(**said), "trn2") == settings
    assert described("NeuronConfig", compile_settings(NeuronConfig(**said), "trn2")) == said
