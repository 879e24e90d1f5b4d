"""Attributes as AWS's references document them: defaults, notes, and methods of configurations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.inference_config import InferenceConfig
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_config.strict_config import config_class
from graphgen.runtime.aws_config.tnx_config import TnxNeuronConfig

# Defaults of the newer reference. Those that differ here are decisions: the attributes of
# test_contradictions_of_the_documents_are_decided, which the tables of docs list.
DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "NeuronConfig": {
        "batch_size": 1,
        "padding_side": "right",
        "seq_len": 128,
        "torch_dtype": "bfloat16",
        "rpl_reduce_dtype": None,
        "cast_type": "config",
        "async_mode": False,
        "save_sharded_checkpoint": True,
        "skip_sharding": False,
        "skip_warmup": False,
        "weights_to_skip_layout_optimization": (),
        "tp_degree": 1,
        "flash_decoding_enabled": False,
        "fused_qkv": False,
        "qk_layernorm": False,
        "sequence_parallel_enabled": False,
        "attention_dtype": None,
        "on_device_sampling_config": None,
        "enable_bucketing": False,
        "quantized": False,
        "quantization_dtype": "int8",
        "quantization_type": "per_tensor_symmetric",
        "modules_to_not_convert": None,
        "kv_cache_quant": False,
        "output_logits": False,
        "qkv_kernel_enabled": False,
        "mlp_kernel_enabled": False,
        "quantized_mlp_kernel_enabled": False,
        "rmsnorm_quantize_kernel_enabled": False,
        "is_continuous_batching": False,
        "speculation_length": 0,
        "is_medusa": False,
        "enable_eagle_speculation": False,
        "enable_eagle_draft_input_norm": False,
        "enable_fused_speculation": False,
        "medusa_speculation_length": 0,
        "num_medusa_heads": 0,
        "lora_config": None,
        "cc_pipeline_tiling_factor": 2,
    },
    "OnDeviceSamplingConfig": {
        "do_sample": False,
        "top_k": 1,
        "dynamic": False,
        "deterministic": False,
        "global_topk": 256,
    },
    "LoraServingConfig": {
        "max_loras": 1,
        "dynamic_multi_lora": False,
        "lora_memory_transpose": True,
        "lora_shard_linear_layer": True,
        "base_model_quantized": False,
    },
    "RouterConfig": {"act_fn": "softmax", "dtype": "float32"},
    "RoutedExpertsMLPOpsConfig": {
        "bias": False,
        "glu_type": "glu",
        "hidden_act_scaling_factor": 1.0,
        "hidden_act_bias": 0.0,
        "capacity_factor": None,
        "use_index_calc_kernel": False,
        "gate_clamp_upper_limit": None,
        "gate_clamp_lower_limit": None,
        "up_clamp_upper_limit": None,
        "up_clamp_lower_limit": None,
        "normalize_top_k_affinities": False,
        "early_expert_affinity_modulation": False,
        "input_layer_init_method": None,
        "output_layer_init_method": None,
        "enable_spmd_rank": False,
        "is_prefill": None,
    },
    "BlockwiseMatmulConfig": {"parallelize_token_to_block_mapping": True},
    "MoEFusedTKGConfig": {
        "moe_fused_kernel_enabled": None,
        "router_topk_kernel_enabled": None,
        "expert_mlp_kernel_enabled": None,
        "shared_mlp_kernel_enabled": None,
    },
    "HybridShardingConfig": {
        "moe_cte_tp_degree": 1,
        "moe_cte_ep_degree": 1,
        "moe_tkg_tp_degree": 1,
        "moe_tkg_ep_degree": 1,
    },
    "MoENeuronConfig": {
        "moe_tp_degree": 1,
        "moe_ep_degree": 1,
        "hybrid_sharding_config": None,
        "return_expert_index": False,
        "return_router_logits": False,
        "capacity_factor": None,
        "glu_type": "glu",
        "hidden_act_scaling_factor": 1.0,
        "hidden_act_bias": 0.0,
        "gate_clamp_upper_limit": None,
        "gate_clamp_lower_limit": None,
        "up_clamp_upper_limit": None,
        "up_clamp_lower_limit": None,
        "use_index_calc_kernel": False,
        "early_expert_affinity_modulation": False,
        "normalize_top_k_affinities": True,
        "fused_shared_experts": False,
        "shared_experts_sequence_parallel_enabled": False,
        "transpose_shared_experts_weights": False,
    },
}
REQUIRED = {
    "RoutedExpertsMLPOpsConfig": {
        "num_experts": 4,
        "hidden_size": 8,
        "intermediate_size": 8,
        "top_k": 2,
        "hidden_act": "silu",
        "glu_mlp": True,
    }
}


@pytest.mark.parametrize("owner", DEFAULTS)
def test_an_attribute_has_the_documented_default(owner: str):
    made = config_class(owner)(**REQUIRED.get(owner, {}))
    found = {name: made.value(name) for name in DEFAULTS[owner]}
    assert found == DEFAULTS[owner]


def test_a_default_follows_from_the_attributes_that_the_reference_names():
    made = NeuronConfig(seq_len=96, batch_size=3, max_context_length=64)
    assert made.value("max_new_tokens") == 32
    assert NeuronConfig(seq_len=96).value("max_new_tokens") is None
    followed = {
        "max_length": 96,
        "n_active_tokens": 96,
        "n_positions": 96,
        "max_batch_size": 3,
        "ctx_batch_size": 3,
        "tkg_batch_size": 3,
        "spec_batch_size": 3,
    }
    assert {name: made.value(name) for name in followed} == followed
    assert NeuronConfig(seq_len=96).value("max_context_length") == 96
    eagle = NeuronConfig(enable_eagle_speculation=True, speculation_length=4)
    assert eagle.value("enable_fused_speculation") is True


def test_async_mode_needs_programs_that_choose_tokens():
    with pytest.raises(GraphgenError, match="async_mode needs on_device_sampling_config") as caught:
        NeuronConfig(async_mode=True)
    assert caught.value.code == "GG0903"
    assert NeuronConfig(async_mode=True, on_device_sampling_config={}).value("async_mode")


def noted(owner: str, name: str, value: object) -> str:
    """What a configuration with one attribute says of it, on the CPU."""
    made = config_class(owner)(**REQUIRED.get(owner, {}), **{name: value})
    (note,) = [note for note in made.notes() if name in note]
    return note


@pytest.mark.parametrize(
    ("owner", "name", "value", "reason"),
    [
        ("LoraServingConfig", "lora_memory_transpose", False, "as their weights are"),
        ("LoraServingConfig", "base_model_quantized", True, "whether their weights are quantized"),
        ("RoutedExpertsMLPOpsConfig", "enable_spmd_rank", True, "asks for its rank"),
        ("RoutedExpertsMLPOpsConfig", "is_prefill", True, "from one description"),
        ("RoutedExpertsMLPOpsConfig", "input_layer_init_method", print, "of the checkpoint"),
        ("RoutedExpertsMLPOpsConfig", "output_layer_init_method", print, "of the checkpoint"),
        ("BlockwiseMatmulConfig", "logical_nc_config", 2, "NeuronConfig.logical_nc_config"),
        ("BlockwiseMatmulConfig", "use_torch_block_wise", True, "ordinary ops"),
        ("BlockwiseMatmulConfig", "num_static_blocks", 4, "any routing needs"),
        (
            "BlockwiseMatmulConfig",
            "always_augment_inputs_for_blockwise_matmul",
            True,
            "found by their index",
        ),
        ("MoEFusedTKGConfig", "quantized", True, "NeuronConfig.quantized decides"),
        ("MoENeuronConfig", "fused_shared_experts", True, "are fused wherever"),
        ("MoENeuronConfig", "transpose_shared_experts_weights", True, "their products take"),
        ("tnx.NeuronConfig", "fuse_qkv", True, "joins products of one input"),
        ("tnx.NeuronConfig", "attention_layout", "BSH", "not the results"),
    ],
)
def test_what_changes_nothing_is_noted_with_its_reason(
    owner: str, name: str, value: object, reason: str
):
    assert reason in noted(owner, name, value)


KERNELS = [
    ("RoutedExpertsMLPOpsConfig", "use_index_calc_kernel", True),
    ("BlockwiseMatmulConfig", "use_block_parallel", True),
    ("BlockwiseMatmulConfig", "skip_dma_token", True),
    ("BlockwiseMatmulConfig", "skip_dma_weight", True),
    ("BlockwiseMatmulConfig", "blockwise_nki_autograd_cls", dict),
    ("BlockwiseMatmulConfig", "use_shard_on_intermediate_dynamic_while", True),
    ("BlockwiseMatmulConfig", "use_shard_on_block_dynamic_while", True),
    ("MoEFusedTKGConfig", "moe_fused_kernel_enabled", True),
    ("MoEFusedTKGConfig", "router_topk_kernel_enabled", True),
    ("MoEFusedTKGConfig", "expert_mlp_kernel_enabled", True),
    ("MoEFusedTKGConfig", "shared_mlp_kernel_enabled", True),
]


@pytest.mark.parametrize(("owner", "name", "value"), KERNELS)
def test_kernels_of_experts_are_noted_and_refused_for_a_device(
    owner: str, name: str, value: object
):
    assert "kernels exist on Neuron devices only" in noted(owner, name, value)
    made = config_class(owner)(**REQUIRED.get(owner, {}), **{name: value})
    with pytest.raises(GraphgenError, match=name) as caught:
        made.check("trn2")
    assert caught.value.code == "GG0904"


def test_token_programs_are_there_in_any_case():
    made = NeuronConfig(trace_tokengen_model=False)
    (note,) = [note for note in made.notes() if "trace_tokengen_model" in note]
    assert "there are token programs" in note


class OwnConfig(InferenceConfig):
    """Loads its attributes itself, and has a rule of its own."""

    width: int

    def load_config(self) -> None:
        self.width = 7

    def validate_config(self) -> None:
        super().validate_config()
        if self.width > 10:
            raise ValueError(f"width {self.width} is above 10")


def test_a_configuration_of_ones_own_loads_and_validates():
    assert OwnConfig(NeuronConfig()).width == 7

    def wide(config: InferenceConfig) -> None:
        vars(config)["width"] = 11

    with pytest.raises(ValueError, match="width 11 is above 10"):
        OwnConfig(NeuronConfig(), load_config=wide)


def test_files_and_texts_of_configurations_are_read_with_other_values(tmp_path: Path):
    made = InferenceConfig(NeuronConfig(batch_size=2), model_type="llama", hidden_size=32)
    made.save(tmp_path / "folder")
    made.to_json_file(tmp_path / "file.json")
    text = (tmp_path / "file.json").read_text()
    assert text.strip() == made.to_json_string()
    assert (tmp_path / "folder" / "neuron_config.json").read_text() == text
    read = (
        InferenceConfig.load(tmp_path / "folder", hidden_size=64),
        InferenceConfig.from_json_file(tmp_path / "file.json", hidden_size=64),
        InferenceConfig.from_json_string(text, hidden_size=64),
    )
    for config in read:
        assert (config.hidden_size, config.neuron_config.value("batch_size")) == (64, 2)
    assert InferenceConfig.from_json_string(text) == made


def test_flash_decoding_excludes_speculation_in_nxd_inference():
    """The other library's classes have both."""
    with pytest.raises(GraphgenError, match="flash_decoding_enabled and speculation_length"):
        NeuronConfig(flash_decoding_enabled=True, speculation_length=4, tp_degree=8)
    assert TnxNeuronConfig(shard_over_sequence=True).value("shard_over_sequence") is True
