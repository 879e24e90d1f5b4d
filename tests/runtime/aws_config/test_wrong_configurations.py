"""Wrong configurations: each error names the attribute, its value, the rule, and what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.compile_settings import compile_settings
from graphgen.runtime.aws_config.config_json import read_config, read_object
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_config.strict_config import config_class


@dataclass(frozen=True, slots=True)
class Case:
    """A wrong configuration.

    Attributes:
        values: attributes; the error names the first one unless ``named`` is another.
        owner: name of the class.
        target: to compile for; the others are refused when they are made.
        from_file: read from JSON text.
        named: the attribute that the error names.
    """

    values: dict[str, object]
    owner: str = "NeuronConfig"
    target: str = ""
    from_file: bool = False
    named: str = ""

    @property
    def attribute(self) -> str:
        """The attribute that the error names."""
        return self.named or next(iter(self.values))

    def __str__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.values.items())
        how = f" for {self.target}" if self.target else " from JSON" if self.from_file else ""
        return f"{self.owner}({inside}){how}"

    def run(self) -> None:
        """Make the configuration, and compile it where a target is named."""
        if self.from_file:
            text = json.dumps(self.values)
            read_config(config_class(self.owner), read_object(text))
            return
        made = config_class(self.owner)(**self.values)
        assert isinstance(made, NeuronConfig)
        compile_settings(made, self.target)


def case(**values: object) -> Case:
    """A NeuronConfig."""
    return Case(values)


MISSPELLED = [
    case(sequence_paralel_enabled=True),
    case(seq_length=512),
    case(max_context_len=512),
    case(tensor_parallel_degree=8),
    case(on_device_sampling=True),
    case(quantisation_dtype="int8"),
    Case({"quantized-mlp-kernels-enabled": True}),
    Case({"topk": 5}, "OnDeviceSamplingConfig"),
    Case({"global_top_k": 64}, "OnDeviceSamplingConfig"),
    Case({"lora_paths": {"a": "b"}}, "LoraServingConfig"),
    Case({"on_device_sampling_config": {"temprature": 0.5}}, named="temprature"),
    case(xyzzy=1),
]
WRONG_TYPES = [
    case(batch_size="2"),
    case(batch_size=0),
    case(batch_size=True),
    case(seq_len=128.0),
    Case({"context_encoding_buckets": [], "enable_bucketing": True}),
    Case({"token_generation_buckets": [], "enable_bucketing": True}),
    case(tp_degree=-1),
    case(torch_dtype="float8_e4m3fn"),
    case(torch_dtype="bf16"),
    case(padding_side="top"),
    case(cast_type="declared"),
    case(enable_bucketing="yes"),
    case(context_encoding_buckets=512),
    case(token_generation_buckets=[128, "256"]),
    case(quantization_dtype="int4"),
    case(quantization_type="per_row_symmetric"),
    case(modules_to_not_convert="lm_head"),
    case(logical_nc_config=3),
    case(on_device_sampling_config=True),
    case(lora_config=5),
    case(target="gpu"),
    Case({"top_k": 2.5}, "OnDeviceSamplingConfig"),
    Case({"top_p": 0.0}, "OnDeviceSamplingConfig"),
    Case({"top_p": 1.5}, "OnDeviceSamplingConfig"),
    Case({"temperature": -1.0}, "OnDeviceSamplingConfig"),
    Case({"global_topk": -1}, "OnDeviceSamplingConfig"),
    Case({"lora_ckpt_paths": ["no colon"]}, "LoraServingConfig"),
    Case({"draft_model_path": "draft"}, "FusedSpecNeuronConfig", named="worker_cls"),
]
IMPOSSIBLE = [
    case(cp_degree=3, tp_degree=4),
    case(max_context_length=512, seq_len=256),
    case(max_length=512, seq_len=256),
    case(max_new_tokens=512, seq_len=256),
    case(n_positions=64, seq_len=128),
    case(context_encoding_buckets=[128, 2048], seq_len=1024, enable_bucketing=True),
    case(token_generation_buckets=[2048], seq_len=1024, enable_bucketing=True),
    case(context_encoding_buckets=[64]),
    case(quantized=True),
    case(is_medusa=True, async_mode=True),
    case(async_mode=True),
    case(rmsnorm_quantize_kernel_enabled=True),
    case(qkv_kernel_enabled=True),
    case(qkv_kernel_enabled=True, fused_qkv=True, torch_dtype="float32"),
    case(mlp_kernel_enabled=True, torch_dtype="float16"),
    case(activation_quantization_type="dynamic"),
    case(is_prefix_caching=True),
    case(is_chunked_prefill=True),
    case(is_prefix_caching=True, is_chunked_prefill=True, is_block_kv_layout=True),
    case(prefix_buckets=[512], is_block_kv_layout=True),
    Case(
        {
            "pa_num_blocks": 2,
            "is_block_kv_layout": True,
            "chunked_prefill_config": {"max_num_seqs": 4},
        }
    ),
    case(
        is_prefix_caching=True,
        enable_fused_speculation=True,
        speculation_length=3,
        is_block_kv_layout=True,
    ),
    case(
        attention_dp_degree=2,
        tp_degree=2,
        batch_size=2,
        is_continuous_batching=True,
        is_block_kv_layout=True,
    ),
    Case({"lora_config": {}, "is_chunked_prefill": True, "is_block_kv_layout": True}),
    case(attention_dp_degree=2, tp_degree=2, batch_size=2),
    case(mlp_cp_degree=2),
    case(mlp_cp_degree=2, cp_degree=4, tp_degree=4, sequence_parallel_enabled=True),
    case(
        attention_dp_degree=2,
        tp_degree=2,
        is_continuous_batching=True,
        batch_size=2,
        kv_cache_batch_size=4,
    ),
    case(token_generation_batches=[1, 8], batch_size=4),
    case(token_generation_batches=[1], speculation_length=5),
    case(speculation_length=1),
    case(speculation_length=300, seq_len=256),
    case(speculation_length=3, spec_batch_size=2),
    case(sequence_parallel_enabled=True, tp_degree=3),
    case(padding_side="left", is_block_kv_layout=True),
    case(ctx_batch_size=4, max_batch_size=2),
    case(enable_eagle_draft_input_norm=True),
    case(enable_eagle_speculation=True),
    case(attn_tkg_nki_kernel_enabled=True, attn_tkg_builtin_kernel_enabled=True),
    case(strided_context_parallel_kernel_enabled=True),
    case(k_cache_transposed=True, flash_decoding_enabled=True),
    Case(
        {
            "modules_to_not_convert": None,
            "quantized": True,
            "quantized_checkpoints_path": "q",
            "qkv_kernel_enabled": True,
            "fused_qkv": True,
        }
    ),
    Case({"logical_neuron_cores": 2, "logical_nc_config": 1}),
    Case({"tp-degree": 2, "tp_degree": 4}),
    Case({"on_device_sampling_config": False}, "OnDeviceSamplingConfig"),
    Case({"max_loras": 1, "lora_ckpt_paths": {"a": "x", "b": "y"}}, "LoraServingConfig"),
    Case({"top_k": 50, "do_sample": True, "global_topk": 4}, "OnDeviceSamplingConfig"),
    Case({"lora_ckpt_json": "a.json", "lora_ckpt_paths": {"a": "x"}}, "LoraServingConfig"),
    Case(
        {
            "top_k": 9,
            "num_experts": 8,
            "hidden_size": 64,
            "intermediate_size": 64,
            "hidden_act": "silu",
            "glu_mlp": True,
        },
        "RoutedExpertsMLPOpsConfig",
    ),
    Case({"tp_degree": 4, "moe_ep_degree": 3}, "MoENeuronConfig"),
    Case({"tp_degree": 4, "moe_ep_degree": 2, "moe_tp_degree": 4}, "MoENeuronConfig"),
    Case({"tp_degree": 4, "hybrid_sharding_config": {"moe_cte_ep_degree": 2}}, "MoENeuronConfig"),
]
LATER = [
    Case({"direct_cast": False}, "KVQuantizationConfig"),
    Case({"lora_bias": "all"}, "LoraServingConfig"),
    case(start_rank_id=8, world_size=16, local_ranks_size=8, tp_degree=16),
    case(windowed_context_encoding_size=512),
    case(quantization_type="blockwise_symmetric", quantized=True, quantized_checkpoints_path="q"),
    Case({"dtype": "float64"}, "RouterConfig"),
]
FILES = [
    Case({"tp_degree": 2, "sequence_parallel": False}, from_file=True, named="sequence_parallel"),
    Case({"torch_dtype": "int64"}, from_file=True),
    Case({"mlp_kernels_enabled": True}, from_file=True),
    Case({"buckets": [64, 128], "seq_len": 128}, from_file=True),
    Case({"lora_config": {"max_lora": 2}}, from_file=True, named="max_lora"),
    Case({"vllm_option": {"a": 1}}, from_file=True),
]
TARGETS = [
    Case({"k_cache_transposed": True}, target="trn1"),
    Case({"tp_degree": 12}, target="trn2"),
    Case({"tp_degree": 16}, target="inf2"),
    Case({"logical_nc_config": 2}, target="inf2"),
    Case({"target": "trn1"}, target="trn2"),
    Case({"on_cpu": True}, target="trn2"),
]
GROUPS = {
    "misspelled names": MISSPELLED,
    "wrong types": WRONG_TYPES,
    "impossible combinations": IMPOSSIBLE,
    "features that are not built": LATER,
    "files": FILES,
    "targets": TARGETS,
}
CASES = [item for group in GROUPS.values() for item in group]


def refusal(wrong: Case) -> GraphgenError:
    """The error of a wrong configuration."""
    with pytest.raises(GraphgenError) as caught:
        wrong.run()
    return caught.value


def test_the_errors_are_these(golden: Callable[[str, str], None]):
    assert len(CASES) >= 60
    shown = [
        f"## {title}\n\n" + "\n\n".join(f"# {item}\n{refusal(item)}" for item in group)
        for title, group in GROUPS.items()
    ]
    golden("runtime/wrong_configurations.txt", "\n\n".join(shown))


@pytest.mark.parametrize("wrong", CASES, ids=str)
def test_an_error_names_attribute_value_and_remedy(wrong: Case):
    error = refusal(wrong)
    assert error.code in ("GG0901", "GG0902", "GG0903", "GG0904")
    assert wrong.attribute in error.what
    assert error.help
    value = wrong.values.get(wrong.attribute)
    if wrong.attribute in wrong.values and not isinstance(value, dict):
        assert repr(value) in error.what
