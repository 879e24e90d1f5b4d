"""The table of attributes: complete, each attribute with an effect that is true."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import graphgen
from graphgen.runtime.aws_config import expert_config, neuron_config
from graphgen.runtime.aws_config.attribute import (
    Attribute,
    CompileSetting,
    Derived,
    NoEffect,
    PartOf,
    Refused,
    RunTimeSetting,
)
from graphgen.runtime.aws_config.attribute_table import ATTRIBUTES, attributes_of, owners
from graphgen.runtime.aws_config.combination_rules import NOTES, RULES
from graphgen.runtime.aws_config.environment import VARIABLES
from graphgen.runtime.aws_config.strict_config import StrictConfig, config_class

# Rows of the tables of features C and M, and attributes that only AWS's sources have.
FEATURES = {
    "NeuronConfig": """
        batch_size padding_side seq_len max_context_length max_new_tokens max_length n_active_tokens
        n_positions torch_dtype rpl_reduce_dtype cast_type async_mode save_sharded_checkpoint
        logical_nc_config logical_neuron_cores skip_sharding weights_to_skip_layout_optimization
        skip_warmup scratchpad_page_size tp_degree flash_decoding_enabled fused_qkv
        sequence_parallel_enabled qk_layernorm attention_dtype on_device_sampling_config
        enable_bucketing context_encoding_buckets token_generation_buckets quantized
        quantized_checkpoints_path quantization_dtype quantization_type modules_to_not_convert
        draft_model_modules_to_not_convert kv_cache_quant attn_kernel_enabled qkv_kernel_enabled
        mlp_kernel_enabled quantized_mlp_kernel_enabled rmsnorm_quantize_kernel_enabled
        is_continuous_batching max_batch_size ctx_batch_size tkg_batch_size trace_tokengen_model
        speculation_length spec_batch_size enable_eagle_speculation enable_eagle_draft_input_norm
        enable_fused_speculation is_eagle_draft is_medusa medusa_speculation_length num_medusa_heads
        medusa_tree lora_config cc_pipeline_tiling_factor output_logits
        allow_input_truncation on_cpu vocab_parallel enable_cte_modular_flow layer_boundary_markers
        weight_gather_seq_len_threshold attn_cls kv_cache_batch_size kv_cache_padding_size
        disable_argmax_kernel buckets bucket_n_active_tokens prefix_buckets token_generation_batches
        quantization_block_size quantization_block_axis quantization_scale_dtype is_mxfp4_compute
        is_full_model_shuffled is_hidden_dim_shuffled is_intermediate_dim_shuffled
        eagle_rolling_buffer_kernel_enabled is_eagle3 token_tree_config enable_token_tree
        is_block_kv_layout pa_num_blocks pa_block_size is_prefix_caching
        windowed_context_encoding_size chunked_prefill_config kv_quant_config tensor_capture_config
        tensor_replacement_config cp_degree mlp_cp_degree attention_dp_degree pp_degree ep_degree
        world_size start_rank_id local_ranks_size pre_rope_rmsnorm kv_cache_tiling
        k_cache_transposed strided_context_parallel_kernel_enabled qkv_nki_kernel_enabled
        qkv_cte_nki_kernel_fuse_rope qkv_kernel_nbsd_layout mlp_kernel_fuse_residual_add
        qkv_kernel_fuse_residual_add fused_rmsnorm_skip_gamma out_proj_kernel_enabled
        attn_tkg_nki_kernel_enabled attn_tkg_builtin_kernel_enabled
        attn_block_tkg_nki_kernel_enabled attn_block_tkg_nki_kernel_cache_update
        attn_block_tkg_nki_kernel_cascaded_attention attn_block_tkg_nki_kernel_use_online_softmax
        attn_block_cte_nki_kernel_enabled activation_quantization_type quantize_clamp_bound
        lm_head_pad lm_head_pad_alignment_size padded_hidden_size padded_intermediate_size
        seq_len_threshold_for_cc_tiling tile_cc target enable_spill_reload_dge dma_order_config
        apply_seq_ids_mask enable_output_completion_notifications disable_numeric_cc_token switch_cc
        ep_dispatch_cc_option overrides_torch_dtype is_prefill_stage enable_long_context_mode
        disable_kv_cache_tiling is_chunked_prefill moe_fused_nki_kernel_enabled
        router_topk_nki_kernel_enabled expert_mlp_nki_kernel_enabled shared_mlp_nki_kernel_enabled
        mlp_tkg_nki_kernel_enabled kv_cache_update_with_kernel sampling_dp_degree
    """,
    "OnDeviceSamplingConfig": """
        do_sample top_k top_p temperature dynamic deterministic global_topk
        on_device_sampling_config top_k_kernel_enabled
    """,
    "KVQuantizationConfig": "k_quant_method v_quant_method quant_dtype direct_cast",
    "LoraServingConfig": """
        max_loras max_cpu_loras dynamic_multi_lora enable_dynamic_multi_lora lora_ckpt_paths
        lora_ckpt_paths_cpu lora_ckpt_json lora_memory_transpose lora_shard_linear_layer
        base_model_quantized max_lora_rank target_modules
    """,
    "FusedSpecNeuronConfig": "worker_cls draft_config draft_model_path draft_model_cls",
    "ChunkedPrefillConfig": "max_num_seqs tkg_model_enabled kernel_q_tile_size kernel_kv_tile_size",
    "RouterConfig": "act_fn dtype router_act_fn router_dtype",
    "RoutedExpertsMLPOpsConfig": """
        num_experts hidden_size intermediate_size top_k hidden_act glu_mlp bias glu_type
        hidden_act_scaling_factor hidden_act_bias gate_clamp_upper_limit gate_clamp_lower_limit
        up_clamp_upper_limit up_clamp_lower_limit capacity_factor use_index_calc_kernel
        normalize_top_k_affinities early_expert_affinity_modulation input_layer_init_method
        output_layer_init_method enable_spmd_rank is_prefill
    """,
    "BlockwiseMatmulConfig": """
        block_size use_block_parallel block_sharding_strategy skip_dma_token skip_dma_weight
        always_augment_inputs_for_blockwise_matmul logical_nc_config blockwise_nki_autograd_cls
        use_torch_block_wise parallelize_token_to_block_mapping optimized_block_to_token_mapping
        use_shard_on_intermediate_dynamic_while use_shard_on_block_dynamic_while num_static_blocks
    """,
    "MoEFusedTKGConfig": """
        quantized moe_fused_kernel_enabled router_topk_kernel_enabled expert_mlp_kernel_enabled
        shared_mlp_kernel_enabled
    """,
    "HybridShardingConfig": """
        moe_cte_tp_degree moe_cte_ep_degree moe_tkg_tp_degree moe_tkg_ep_degree
    """,
    "MoENeuronConfig": """
        moe_tp_degree moe_ep_degree hybrid_sharding_config router_config return_expert_index
        return_router_logits blockwise_matmul_config capacity_factor glu_mlp glu_type
        hidden_act_scaling_factor hidden_act_bias gate_clamp_upper_limit gate_clamp_lower_limit
        up_clamp_upper_limit up_clamp_lower_limit use_index_calc_kernel
        early_expert_affinity_modulation normalize_top_k_affinities
        disable_normalize_top_k_affinities fused_shared_experts
        shared_experts_sequence_parallel_enabled transpose_shared_experts_weights
        moe_mask_padded_tokens batch_size tp_degree
    """,
}
NXD = [row for row in ATTRIBUTES if not row.owner.startswith("tnx.")]


@pytest.mark.parametrize("owner", FEATURES)
def test_every_attribute_has_a_row(owner: str):
    assert sorted(set(FEATURES[owner].split()) - set(attributes_of(owner))) == []


@pytest.mark.parametrize("owner", FEATURES)
def test_no_row_is_without_its_name_in_the_list(owner: str):
    rows = {row.name for row in ATTRIBUTES if row.owner == owner}
    assert sorted(rows - set(FEATURES[owner].split())) == sorted(rows & EXTRA.get(owner, set()))


# Attributes of newer versions of the library.
EXTRA = {
    "LoraServingConfig": {
        "lora_bias",
        "lora_dtype",
        "batch_size",
        "eviction_policy",
        "lfu_decay_period",
        "is_context_encoding",
    }
}


def test_rows_of_all_numbers_are_there():
    sources = " ".join(row.source for row in NXD).split()
    missing = {f"C{n:02}" for n in range(1, 69)} | {f"M{n:02}" for n in range(1, 24)}
    assert sorted(missing - set(sources)) == []
    assert sorted({f"E{n:02}" for n in range(1, 22)} - {row.source for row in VARIABLES}) == []


def test_a_name_has_one_row_in_a_class():
    names = [(row.owner, row.name) for row in ATTRIBUTES]
    assert len(names) == len(set(names))


def test_parts_name_attributes():
    for row in NXD:
        if isinstance(row.cpu, PartOf):
            owner, _, name = row.cpu.attribute.rpartition(".")
            if owner != "InferenceConfig":
                assert name in attributes_of(owner or row.owner), row.name


def test_each_class_of_the_table_is_a_class_of_configurations():
    homes = [neuron_config, expert_config]
    classes = {
        item.owner: item
        for home in homes
        for _, item in inspect.getmembers(home, inspect.isclass)
        if issubclass(item, StrictConfig) and "owner" in vars(item)
    }
    for owner in owners():
        if not owner.startswith("tnx."):
            assert config_class(owner).owner == owner or owner not in classes


@pytest.mark.parametrize(
    "row",
    [row for row in NXD if isinstance(row.default, Derived)],
    ids=lambda row: f"{row.owner}.{row.name}",
)
def test_a_derived_default_reads_attributes_of_its_class(row: Attribute):
    made, _ = config_class(row.owner).inspect({})
    row.kind.read(made.value(row.name))


def test_defaults_are_values_of_their_kind():
    for row in NXD:
        if not isinstance(row.default, Derived) and repr(row.default) != "none: must be given":
            assert row.kind.read(row.default) == row.default, row.name


def test_contradictions_of_the_documents_are_decided():
    decided = {row.name for row in NXD if row.decision}
    assert decided >= {
        "do_sample",
        "rpl_reduce_dtype",
        "logical_nc_config",
        "logical_neuron_cores",
        "dynamic_multi_lora",
        "save_sharded_checkpoint",
        "trace_tokengen_model",
        "attn_kernel_enabled",
        "kv_cache_quant",
    }


@pytest.mark.parametrize(
    "name",
    [
        "attn_kernel_enabled",
        "qkv_kernel_enabled",
        "mlp_kernel_enabled",
        "rmsnorm_quantize_kernel_enabled",
    ],
)
def test_kernels_have_no_effect_on_the_cpu_and_are_settings_on_devices(name: str):
    row = attributes_of("NeuronConfig")[name]
    assert isinstance(row.cpu, NoEffect)
    assert isinstance(row.neuron, CompileSetting)
    assert row.neuron.fields == ("native_kernels",)


@pytest.mark.parametrize("name", ["world_size", "start_rank_id", "local_ranks_size"])
def test_ranks_of_a_process_are_refused_by_applications_and_compared_by_the_server(name: str):
    row = attributes_of("NeuronConfig")[name]
    assert isinstance(row.cpu, Refused)
    assert "must be" in row.served


def test_rules_name_attributes_of_their_class():
    for rule in (*RULES, *NOTES):
        rows = attributes_of(rule.owner)
        assert all(name in rows for name in rule.attributes), rule.attributes
        made, _ = config_class(rule.owner).inspect({})
        assert made.owner == rule.owner


def test_texts_are_clauses_without_a_period():
    for row in NXD:
        texts = [row.doc]
        texts.extend(e.because for e in (row.cpu, row.neuron) if isinstance(e, NoEffect))
        assert not any(text.endswith(".") for text in texts), row.name


def test_each_effect_is_carried_out_by_code_that_reads_the_attribute():
    # A compiler argument is read by the table itself, and a compile setting acts in its row.
    root = Path(inspect.getfile(graphgen)).resolve().parents[1]
    rooms = ("runtime/aws_config", "runtime/aws_nxdi", "runtime/aws_tnx", "graphgen/cli")
    paths = [path for room in rooms for path in (root / room).glob("*.py")]
    table = ("attribute", "attribute_table", "combination_rules", "demo_flags", "environment")
    readers = [path for path in paths if not path.stem.endswith("_rows") and path.stem not in table]
    text = "".join(path.read_text("utf-8") for path in readers)
    settings = [row for row in NXD if isinstance(row.cpu, RunTimeSetting)]
    assert len(settings) > 20
    assert [row.name for row in settings if f'"{row.name}"' not in text] == []
