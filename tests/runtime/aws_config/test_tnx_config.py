"""transformers-neuronx's configurations: values, rules, copies."""

from __future__ import annotations

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.attribute_table import ATTRIBUTES
from graphgen.runtime.aws_config.tnx_config import (
    GQA,
    BlkSparseAttnConfig,
    ContinuousBatchingConfig,
    KVCacheQuantizationConfig,
    SparseAttnConfig,
    TnxGenerationConfig,
    TnxModelOptions,
    TnxNeuronConfig,
    TnxQuantizationConfig,
)
from graphgen.runtime.aws_config.tnx_rows import sampling_pass
from graphgen.runtime.aws_config.tnx_settings import compile_config


def config_of(**options: object) -> dict[str, object]:
    shape = {
        "model_type": "llama",
        "vocab_size": 64,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "max_position_embeddings": 4096,
    }
    return {**shape, **options}


def refusal(code: str, make: object, **values: object) -> str:
    with pytest.raises(GraphgenError) as raised:
        make(**values)  # type: ignore[operator]
    assert raised.value.code == code, raised.value
    assert raised.value.help
    return str(raised.value)


def test_every_attribute_has_a_row_with_its_documented_default():
    neuron = TnxNeuronConfig()
    expected = {
        "sparse_attn": None,
        "quant": None,
        "kv_cache_quant": None,
        "continuous_batching": None,
        "attention_layout": "HSB",
        "collectives_layout": "HSB",
        "cache_layout": "SBH",
        "padding_side": "left",
        "group_query_attention": None,
        "sequence_parallel_norm": False,
        "sequence_parallel_norm_threshold": 2048,
        "bf16_rms_norm": False,
        "on_device_embedding": False,
        "on_device_generation": None,
        "all_reduce_dtype": None,
        "cast_logits_dtype": "float32",
        "fuse_qkv": False,
        "qkv_tiling": False,
        "weight_tiling": False,
        "mlp_in_weight_tiling_permute_order": [1, 2, 0, 3],
        "mlp_out_weight_tiling_permute_order": [1, 2, 0, 3],
        "log_softmax_scores": False,
        "output_all_logits": False,
        "shard_over_sequence": False,
        "duplicate_q_weight_sos": False,
        "attn_output_transposed": False,
        "mlp_out_weight_transpose": False,
        "fuse_mlp": False,
        "fused_rmsnorm_qkv": False,
        "fused_rmsnorm_mlp": False,
        "is_eagle_target": False,
        "is_eagle_draft": False,
        "has_pre_attention_norm": True,
        "compilation_worker_count": None,
        "use_2d_cache_ids": False,
        "lhs_aligned": False,
    }
    assert {name: getattr(neuron, name) for name in expected} == expected
    assert {row.name for row in ATTRIBUTES if row.owner == "tnx.NeuronConfig"} == set(expected)


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"qkv_tiling": True}, "fuse_qkv"),
        ({"fused_rmsnorm_qkv": True}, "attention_layout"),
        ({"fused_rmsnorm_mlp": True, "attention_layout": "BSH"}, "replicated-heads"),
        ({"continuous_batching": {"max_num_seqs": 2}, "padding_side": "left"}, "right"),
        ({"mlp_in_weight_tiling_permute_order": [1, 3, 0, 2]}, "permutes"),
        (
            {"shard_over_sequence": True, "group_query_attention": "shard-over-heads"},
            "set it to 'replicated-heads'",
        ),
    ],
)
def test_impossible_combinations_are_refused(values: dict[str, object], word: str):
    assert word in refusal("GG0903", TnxNeuronConfig, **values)


@pytest.mark.parametrize(
    "values",
    [
        {"sparse_attn": SparseAttnConfig(attn_type="window")},
        {"bf16_rms_norm": True},
        {"output_all_logits": True},
        {"is_eagle_target": True},
        {"has_pre_attention_norm": False},
    ],
)
def test_features_that_are_not_built_are_refused_by_name(values: dict[str, object]):
    assert f"tnx.NeuronConfig.{next(iter(values))}" in refusal("GG0904", TnxNeuronConfig, **values)


def test_parts_of_a_configuration_refuse_what_is_not_built():
    refusal("GG0904", TnxQuantizationConfig, quantize_method="direct_cast")
    refusal("GG0904", ContinuousBatchingConfig, optimized_paged_attention=True)
    refusal("GG0904", ContinuousBatchingConfig, enable_chunked_prefill=True)


def test_element_types_are_checked():
    # Peers take any string and fail in the compiler.
    assert "float32, float16 or bfloat16" in refusal(
        "GG0902", TnxNeuronConfig, all_reduce_dtype="bf16"
    )
    refusal("GG0902", TnxModelOptions, amp="float32")
    refusal("GG0902", TnxQuantizationConfig, quant_dtype="int8")


@pytest.mark.parametrize("name", ["n_positions", "batch_size", "context_length_estimate"])
def test_a_list_of_no_sizes_is_refused(name: str):
    message = refusal("GG0902", TnxModelOptions, **{name: []})
    assert f"{name} = []" in message
    assert "a list of one or more positive integers" in message


def test_unknown_arguments_are_refused_with_the_nearest_name():
    # Peers ignore them.
    assert "n_positions" in refusal("GG0901", TnxModelOptions, n_position=64)
    assert "batch_size" in refusal("GG0901", TnxModelOptions, batchsize=2)


def test_two_sparse_configurations_share_no_masks():
    one, other = SparseAttnConfig(), SparseAttnConfig(sparse_attn_config=BlkSparseAttnConfig())
    masks = one.value("sparse_mask_dict")
    assert isinstance(masks, dict)
    masks[(4, 4)] = "a mask"
    assert other.value("sparse_mask_dict") == {}
    assert SparseAttnConfig().value("sparse_mask_dict") == {}


def test_older_names_of_right_padding():
    assert TnxNeuronConfig(lhs_aligned=True).padding_side == "right"
    assert TnxNeuronConfig(use_2d_cache_ids=True).padding_side == "right"
    assert TnxNeuronConfig(continuous_batching={"max_num_seqs": 2}).padding_side == "right"
    old = ContinuousBatchingConfig(batch_size_for_shared_caches=3)
    assert old.max_num_seqs == 3


def test_a_generation_config_stays_assignable_and_the_model_has_a_copy():
    generation = TnxGenerationConfig(do_sample=True, dynamic=True, top_k=4)
    neuron = TnxNeuronConfig(on_device_generation=generation).freeze("a model")
    generation.top_k = 9
    kept = neuron.value("on_device_generation")
    assert isinstance(kept, TnxGenerationConfig)
    assert (generation.top_k, kept.top_k) == (9, 4)


def test_lists_are_for_lines_of_a_batch():
    refusal("GG0903", TnxGenerationConfig, top_k=[1, 2])
    lines = TnxGenerationConfig(per_batch_line=True, top_k=[1, 2], temperature=[1.0, 0.5])
    assert [lines.of_row("top_k", row, 2) for row in range(2)] == [1, 2]
    assert lines.of_row("top_p", 1, 2) == 1.0
    refusal("GG0903", lambda: lines.of_row("top_k", 0, 3))
    refusal("GG0903", TnxGenerationConfig, per_batch_line=True, top_k=[1, 2], top_p=[0.5])
    refusal("GG0902", TnxGenerationConfig, top_k=2.5)


def test_sizes_become_buckets():
    def made(**options: object):
        return compile_config(config_of(), TnxModelOptions(**options), TnxNeuronConfig())

    ladder = made(n_positions=1000, tp_degree=1)
    assert ladder.tokens == (128, 256, 512, 1000)
    assert ladder.context == (64, 128, 256, 500)
    explicit = made(n_positions=[512, 128, 300], context_length_estimate=[256, 100])
    assert (explicit.tokens, explicit.context) == ((128, 300, 512), (100, 256))
    assert (explicit.tp, explicit.dtype, explicit.max_len) == (2, "f32", 512)
    assert made(context_length_estimate=0).context == ()
    assert made().tokens[-1] == 2048


def test_sizes_that_contradict_the_model_or_each_other_are_refused():
    def made(model: dict[str, object], neuron: TnxNeuronConfig | None = None, **options: object):
        return compile_config(model, TnxModelOptions(**options), neuron or TnxNeuronConfig())

    small = config_of(max_position_embeddings=96)
    assert made(small).tokens == (96,)
    assert "96 positions" in refusal("GG0903", lambda: made(small, n_positions=128))
    refusal("GG0903", lambda: made(small, n_positions=64, context_length_estimate=65))
    refusal("GG0903", lambda: made(small, batch_size=5, prompt_batch_size=2))
    batching = TnxNeuronConfig(continuous_batching=ContinuousBatchingConfig(max_num_seqs=3))
    refusal("GG0903", lambda: made(small, batching, batch_size=2))


@pytest.mark.parametrize(
    ("tp", "values", "sums", "logits"),
    [
        (1, {"all_reduce_dtype": "bfloat16"}, "f32", "f32"),
        (2, {}, "f16", "f32"),
        (2, {"all_reduce_dtype": "bfloat16"}, "bf16", "f32"),
        (2, {"cast_logits_dtype": "bfloat16"}, "f16", "bf16"),
    ],
)
def test_types_of_sums_and_logits(tp: int, values: dict[str, object], sums: str, logits: str):
    options = TnxModelOptions(amp="f16", tp_degree=tp, n_positions=64)
    config = compile_config(config_of(), options, TnxNeuronConfig(**values))
    assert (config.rpl_reduce_dtype, config.cast_logits_dtype) == (sums, logits)


def test_strategies_of_heads():
    for strategy in GQA:
        neuron = TnxNeuronConfig(group_query_attention=strategy)
        assert neuron.group_query_attention == strategy.value
        made = compile_config(config_of(), TnxModelOptions(batch_size=2), neuron)
        assert made.heads == strategy.name
    refusal("GG0902", TnxNeuronConfig, group_query_attention="shard-over-rows")


def test_quantized_weights_are_those_of_transformers_neuronx():
    def text(**values: object) -> str:
        neuron = TnxNeuronConfig(quant=TnxQuantizationConfig(dequant_dtype="bf16", **values))
        return compile_config(config_of(), TnxModelOptions(amp="bf16"), neuron).quantization

    # The pass's own defaults: int8, a scale for each output channel, all but lm_head.
    assert text() == "quantize-weights"
    assert "f8e4m3" in text(quant_dtype="f8e4m3fn")
    assert "self_attn" in text(quantize_attn=False)
    assert "mlp" in text(no_quantize_list=["mlp"])


def test_amp_is_the_type_of_dequantized_products():
    neuron = TnxNeuronConfig(quant=TnxQuantizationConfig(dequant_dtype="bf16"))
    wrong = TnxModelOptions(amp="f32")
    message = refusal("GG0903", lambda: compile_config(config_of(), wrong, neuron))
    assert "'bf16'" in message
    assert "'f32'" in message
    made = compile_config(config_of(), TnxModelOptions(amp="bf16"), neuron)
    assert made.quantization.startswith("quantize-weights")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, "on-device-sampling"),
        (
            {"do_sample": True, "top_k": 10},
            "on-device-sampling{do_sample=true,global_topk=256}",
        ),
        (
            {"do_sample": True, "top_k": 300, "deterministic": True},
            "on-device-sampling{do_sample=true,global_topk=0,deterministic=true}",
        ),
        (
            {"dynamic": True, "global_top_k": 64},
            "on-device-sampling{do_sample=true,global_topk=64,top_p_min_tokens=true}",
        ),
    ],
)
def test_programs_choose_tokens(values: dict[str, object], text: str):
    neuron = TnxNeuronConfig(on_device_generation=TnxGenerationConfig(**values))
    assert sampling_pass(neuron) == text


@pytest.mark.parametrize(
    ("quant_dtype", "made"), [("s8", ("int8", "per_token")), ("f8e4m3fn", ("f8e4m3", "none"))]
)
def test_quantized_caches(quant_dtype: str, made: tuple[str, str]):
    """transformers-neuronx casts keys to whole numbers, which keeps next to nothing of them."""
    neuron = TnxNeuronConfig(kv_cache_quant=KVCacheQuantizationConfig(quant_dtype=quant_dtype))
    config = compile_config(config_of(), TnxModelOptions(amp="bf16"), neuron)
    assert config.kv_cache_quant
    assert (config.kv_cache_dtype, config.cache_scale) == made
    message = refusal("GG0903", lambda: compile_config(config_of(), TnxModelOptions(), neuron))
    assert "KVCacheQuantizationConfig.dequant_dtype" in message


def test_norms_of_long_prompts_are_split_along_their_tokens():
    def rules(tp: int, **values: object) -> tuple[str, ...]:
        options = TnxModelOptions(tp_degree=tp)
        return compile_config(config_of(), options, TnxNeuronConfig(**values)).rules

    # transformers-neuronx splits those of prompts above the threshold.
    assert rules(2, sequence_parallel_norm=True) == ("prefill>=2049:sequence:tp",)
    short = {"sequence_parallel_norm": True, "sequence_parallel_norm_threshold": 7}
    assert rules(2, **short) == ("prefill>=8:sequence:tp",)
    assert rules(1, **short) == rules(2) == ()


@pytest.mark.parametrize(
    ("strategy", "ranks", "says"),
    [
        (GQA.SHARD_OVER_HEADS, 4, "2 of 4 ranks would have no key-value head"),
        (GQA.SHARD_OVER_BATCH, 2, "a batch of 3 rows does not divide by 2 ranks"),
        (GQA.ALL_GATHER_HEADS, 3, "3 ranks are not a multiple of 2 key-value heads"),
    ],
)
def test_heads_that_a_strategy_cannot_distribute_are_refused(strategy: GQA, ranks: int, says: str):
    """Before any pass, in transformers-neuronx's names."""
    model = config_of(num_attention_heads=4, num_key_value_heads=2)

    def made(chosen: GQA | None) -> CompileConfig:
        options = TnxModelOptions(tp_degree=ranks, batch_size=3)
        return compile_config(model, options, TnxNeuronConfig(group_query_attention=chosen))

    message = refusal("GG0903", lambda: made(strategy))
    assert f"group_query_attention is '{strategy.value}' with 4 query and 2 key-value" in message
    assert says in message
    assert "'replicated-heads'" in message
    assert made(GQA.REPLICATED_HEADS).heads == "REPLICATED_HEADS"
    assert made(None).heads == "auto"
