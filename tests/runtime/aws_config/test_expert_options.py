"""Attributes of a MoENeuronConfig: what they set, what they contradict, and their JSON."""

from __future__ import annotations

from typing import Any

import pytest

from graphgen.errors import GraphgenError
from graphgen.models import known_shape
from graphgen.runtime.aws.nxdi import MixtralInferenceConfig, NeuronMixtralForCausalLM
from graphgen.runtime.aws_config.attribute_table import attributes_of
from graphgen.runtime.aws_config.compile_settings import compile_settings
from graphgen.runtime.aws_config.config_json import (
    config_json,
    config_text,
    read_config,
    read_object,
)
from graphgen.runtime.aws_config.expert_config import (
    BlockwiseMatmulConfig,
    HybridShardingConfig,
    MoEFusedTKGConfig,
    MoENeuronConfig,
    RoutedExpertsMLPOpsConfig,
    RouterConfig,
)
from graphgen.runtime.aws_config.mixture_checks import check_experts
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_config.strict_config import StrictConfig

SAME = {f"moe_{phase}_{kind}_degree": 2 for phase in ("cte", "tkg") for kind in ("tp", "ep")}
# A value beside the default for each attribute that has one that is not refused.
GIVEN: dict[type[StrictConfig], dict[str, Any]] = {
    RouterConfig: {"act_fn": "sigmoid", "dtype": "bfloat16"},
    BlockwiseMatmulConfig: {
        "block_size": 128,
        "use_block_parallel": True,
        "block_sharding_strategy": "PING_PONG",
        "skip_dma_token": True,
        "skip_dma_weight": True,
        "always_augment_inputs_for_blockwise_matmul": True,
        "logical_nc_config": 2,
        "blockwise_nki_autograd_cls": GraphgenError,
        "use_torch_block_wise": True,
        "parallelize_token_to_block_mapping": False,
        "optimized_block_to_token_mapping": False,
        "use_shard_on_intermediate_dynamic_while": True,
        "use_shard_on_block_dynamic_while": True,
        "num_static_blocks": 4,
    },
    MoEFusedTKGConfig: dict.fromkeys(attributes_of("MoEFusedTKGConfig"), True),
    HybridShardingConfig: SAME,
    RoutedExpertsMLPOpsConfig: {
        "num_experts": 8,
        "hidden_size": 16,
        "intermediate_size": 32,
        "top_k": 2,
        "hidden_act": "silu",
        "glu_mlp": True,
        "bias": True,
        "normalize_top_k_affinities": True,
        "input_layer_init_method": GraphgenError,
        "output_layer_init_method": GraphgenError,
        "enable_spmd_rank": True,
        "is_prefill": True,
        "glu_type": "swiglu",
        "hidden_act_scaling_factor": 1.702,
        "hidden_act_bias": 1.0,
        "gate_clamp_upper_limit": 7.0,
        "gate_clamp_lower_limit": -7.0,
        "up_clamp_upper_limit": 7.0,
        "up_clamp_lower_limit": -7.0,
        "use_index_calc_kernel": True,
        "early_expert_affinity_modulation": True,
        "capacity_factor": None,
    },
    MoENeuronConfig: {
        "tp_degree": 4,
        "glu_type": "swiglu",
        "hidden_act_scaling_factor": 1.702,
        "hidden_act_bias": 1.0,
        "gate_clamp_upper_limit": 7.0,
        "gate_clamp_lower_limit": -7.0,
        "up_clamp_upper_limit": 7.0,
        "up_clamp_lower_limit": -7.0,
        "use_index_calc_kernel": True,
        "early_expert_affinity_modulation": True,
        "capacity_factor": 1.25,
        "glu_mlp": True,
        "normalize_top_k_affinities": False,
        "disable_normalize_top_k_affinities": True,
        "moe_tp_degree": 2,
        "moe_ep_degree": 2,
        "hybrid_sharding_config": SAME,
        "router_config": {"act_fn": "sigmoid"},
        "return_expert_index": True,
        "return_router_logits": True,
        "blockwise_matmul_config": {"block_size": 64},
        "fused_shared_experts": True,
        "shared_experts_sequence_parallel_enabled": True,
        "transpose_shared_experts_weights": True,
    },
}


@pytest.mark.parametrize("kind", GIVEN, ids=lambda kind: kind.__name__)
def test_each_attribute_survives_json(kind: type[StrictConfig]):
    made = kind(**GIVEN[kind])
    own = {name for name, row in attributes_of(kind.owner).items() if not row.replaces}
    own -= attributes_of("NeuronConfig").keys() | {"moe_mask_padded_tokens"}
    assert own <= GIVEN[kind].keys()
    read = read_config(kind, read_object(config_text(made)))
    assert read == made
    assert config_json(read) == config_json(made)
    for name in own:
        assert read.value(name) == made.value(name), name


def test_padding_masked_alone_survives_json():
    made = MoENeuronConfig(moe_mask_padded_tokens=True)
    assert read_config(MoENeuronConfig, read_object(config_text(made))) == made


def test_options_that_programs_follow_reach_the_compilation():
    made = compile_settings(MoENeuronConfig(capacity_factor=1.25, blockwise_matmul_config={}))
    assert (made.capacity_factor, made.expert_block_size, made.moe_ep_degree) == (1.25, 512, 1)
    plain = compile_settings(MoENeuronConfig())
    assert (plain.capacity_factor, plain.expert_block_size) == (0.0, 0)
    assert plain.router_dtype == "f32"
    narrow = MoENeuronConfig(router_config={"router_dtype": "bfloat16"})
    assert compile_settings(narrow).router_dtype == "bf16"
    hybrid = MoENeuronConfig(tp_degree=4, hybrid_sharding_config=SAME)
    assert compile_settings(hybrid).moe_ep_degree == 2
    assert compile_settings(hybrid).moe_prefill_ep_degree == 0
    other = SAME | {"moe_cte_tp_degree": 4, "moe_cte_ep_degree": 1}
    made = compile_settings(MoENeuronConfig(tp_degree=4, hybrid_sharding_config=other))
    assert (made.moe_ep_degree, made.moe_prefill_ep_degree) == (2, 1)


@pytest.mark.parametrize(
    ("given", "code", "text"),
    [
        ({"capacity_factor": 0.0}, "GG0903", "above 0"),
        ({"capacity_factor": 1.0, "moe_mask_padded_tokens": True}, "GG0903", "exclude"),
        ({"tp_degree": 8, "hybrid_sharding_config": SAME}, "GG0903", "must be tp_degree"),
        (
            {"tp_degree": 4, "moe_ep_degree": 4, "hybrid_sharding_config": SAME},
            "GG0903",
            "moe_tkg_ep_degree is 2",
        ),
        (
            {"tp_degree": 4, "hybrid_sharding_config": SAME | {"moe_cte_ep_degree": 1}},
            "GG0903",
            "moe_cte_tp_degree 2 times moe_cte_ep_degree 1 must be tp_degree",
        ),
        ({"router_config": {"act_fn": "tanh"}}, "GG0902", "softmax or sigmoid"),
        ({"router_config": {"router_dtype": "int8"}}, "GG0904", "a router of this type"),
    ],
)
def test_impossible_options_are_named(given: dict[str, Any], code: str, text: str):
    with pytest.raises(GraphgenError) as caught:
        MoENeuronConfig(**given)
    assert caught.value.code == code
    assert text in caught.value.what


def test_kernels_are_noted_on_the_cpu_and_refused_for_devices():
    blocks = BlockwiseMatmulConfig(use_block_parallel=True, skip_dma_weight=True)
    config = MoENeuronConfig(blockwise_matmul_config=blocks, use_index_calc_kernel=True)
    assert sum("kernels exist on Neuron devices only" in note for note in config.notes()) == 3
    with pytest.raises(GraphgenError, match="computes indices is not built yet for trn2") as caught:
        MoENeuronConfig(use_index_calc_kernel=True).check("trn2")
    assert "ordinary ops compute the same" in str(caught.value.help)
    with pytest.raises(GraphgenError, match="blocks on both cores"):
        MoENeuronConfig(blockwise_matmul_config=blocks).check("trn2")


# ---- beside the model ----------------------------------------------------------------------------

MIXTRAL, QWEN, LLAMA, GPT2, LLAMA4 = map(
    known_shape,
    ("mixtral-8x7b", "qwen1.5-moe-a2.7b", "llama-3.1-8b", "gpt2", "llama-4-scout"),
)


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (MIXTRAL, {}),
        (MIXTRAL, {"glu_mlp": True, "glu_type": "glu", "normalize_top_k_affinities": True}),
        (MIXTRAL, {"router_config": {"act_fn": "softmax", "dtype": "float32"}}),
        (MIXTRAL, {"router_config": {"dtype": "bfloat16"}}),
        (QWEN, {"normalize_top_k_affinities": False}),
        (QWEN, {"return_expert_index": True, "return_router_logits": True}),
        (QWEN, {"shared_experts_sequence_parallel_enabled": True}),
        (QWEN, {"disable_normalize_top_k_affinities": True}),
        (LLAMA, {"moe_ep_degree": 1}),
        (
            LLAMA4,
            {"early_expert_affinity_modulation": True, "router_config": {"act_fn": "sigmoid"}},
        ),
    ],
)
def test_options_that_agree_with_the_model_are_taken(model: Any, given: dict[str, Any]):
    check_experts(MoENeuronConfig(**given), model)


@pytest.mark.parametrize(
    ("model", "given", "code", "text"),
    [
        (MIXTRAL, {"glu_type": "swiglu"}, "GG0903", "glu_type = 'swiglu': .* mixtral has 'glu'"),
        (MIXTRAL, {"glu_mlp": False}, "GG0903", "glu_mlp = False: .* mixtral has True"),
        (MIXTRAL, {"normalize_top_k_affinities": False}, "GG0903", "has True"),
        (MIXTRAL, {"disable_normalize_top_k_affinities": True}, "GG0903", "has False"),
        (QWEN, {"normalize_top_k_affinities": True}, "GG0903", "qwen2_moe has False"),
        (MIXTRAL, {"up_clamp_upper_limit": 7}, "GG0903", "has None"),
        (MIXTRAL, {"hidden_act_bias": 1}, "GG0903", "has 0.0"),
        (MIXTRAL, {"early_expert_affinity_modulation": True}, "GG0903", "has False"),
        (MIXTRAL, {"router_config": {"act_fn": "sigmoid"}}, "GG0903", "RouterConfig.act_fn"),
        (LLAMA, {"return_expert_index": True}, "GG0903", "llama has no experts"),
        (
            MIXTRAL,
            {"shared_experts_sequence_parallel_enabled": True},
            "GG0903",
            "mixtral has no shared experts",
        ),
        (LLAMA, {"glu_type": "swiglu"}, "GG0903", "llama has no experts"),
        (GPT2, {"early_expert_affinity_modulation": True}, "GG0903", "gpt2 has no experts"),
    ],
)
def test_options_that_contradict_the_model_are_refused(
    model: Any, given: dict[str, Any], code: str, text: str
):
    with pytest.raises(GraphgenError, match=text) as caught:
        check_experts(MoENeuronConfig(**given), model)
    assert caught.value.code == code


def test_an_application_is_checked():
    def configured(**options: Any) -> NeuronMixtralForCausalLM:
        neuron_config = MoENeuronConfig(torch_dtype="float32", **options)
        config = MixtralInferenceConfig(neuron_config, None, **known_shape("mixtral-8x7b"))
        return NeuronMixtralForCausalLM("absent", config)

    assert configured(capacity_factor=2.0).compile_config().capacity_factor == 2.0
    with pytest.raises(GraphgenError, match="glu_type = 'swiglu'"):
        configured(glu_type="swiglu").compile_config()


@pytest.mark.parametrize("kind", [MoENeuronConfig, NeuronConfig])
def test_the_configuration_of_a_model_with_experts_survives_its_file(kind: type[NeuronConfig]):
    given = {"capacity_factor": 2.0} if kind is MoENeuronConfig else {}
    neuron_config = kind(torch_dtype="float32", **given)
    made = MixtralInferenceConfig(neuron_config, None, **known_shape("mixtral-8x7b"))
    read = MixtralInferenceConfig.from_json_string(made.to_json_string())
    assert isinstance(read.neuron_config, MoENeuronConfig)
    assert read.neuron_config.value("capacity_factor") == given.get("capacity_factor")
    assert read.to_hf() == made.to_hf()


def test_a_default_in_a_file_states_nothing():
    read = read_config(MoENeuronConfig, config_json(MoENeuronConfig()))
    check_experts(read, QWEN)
    assert "normalize_top_k_affinities" not in read.given
