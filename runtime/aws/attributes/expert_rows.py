"""Attributes of models with a mixture of experts."""

from __future__ import annotations

from graphgen.runtime.aws.attributes.attribute import (
    REQUIRED,
    Attribute,
    CompileSetting,
    PartOf,
    Refused,
    owned_by,
    same_as,
)
from graphgen.runtime.aws.attributes.value_kinds import (
    BOOL,
    CLASS,
    COUNT,
    DTYPE,
    NUMBER,
    TEXT,
    AttributeType,
    choice,
    nested,
    one_of,
    optional,
)

EXPERTS_LATER = Refused("mixture of experts", "use a family without experts")


def _callable(value: object) -> object:
    if not callable(value):
        raise TypeError
    return value


_FUNCTION = one_of(CLASS, AttributeType("a function", _callable))
_GLU_TYPES = choice("glu", "swiglu")


def _expert(name: str, kind: AttributeType, default: object, source: str, doc: str) -> Attribute:
    return Attribute(name, kind, default, source, doc, EXPERTS_LATER)


# Shared by MoENeuronConfig and RoutedExpertsMLPOpsConfig.
_MLP = (
    _expert("glu_type", _GLU_TYPES, "glu", "M04 M22", "the gate's form, GLU or SWIGLU"),
    _expert("hidden_act_scaling_factor", NUMBER, 1.0, "M05 M22", "factor of the gate's input"),
    _expert("hidden_act_bias", NUMBER, 0.0, "M05 M22", "summand of the up projection"),
    _expert("gate_clamp_upper_limit", optional(NUMBER), None, "M06 M22", "bound of the gate"),
    _expert("gate_clamp_lower_limit", optional(NUMBER), None, "M06 M22", "bound of the gate"),
    _expert("up_clamp_upper_limit", optional(NUMBER), None, "M06 M22", "bound of the product"),
    _expert("up_clamp_lower_limit", optional(NUMBER), None, "M06 M22", "bound of the product"),
    _expert(
        "capacity_factor", optional(NUMBER), None, "M07 M21", "tokens of an expert; None for all"
    ),
    _expert("use_index_calc_kernel", BOOL, False, "M08 M22", "a kernel that computes indices"),
    _expert("early_expert_affinity_modulation", BOOL, False, "M10 M22", "scales inputs"),
)

EXPERTS = owned_by(
    "MoENeuronConfig",
    *_MLP,
    Attribute(
        "glu_mlp",
        BOOL,
        False,
        "M21",
        "whether experts have a gate",
        EXPERTS_LATER,
        decision="the references say False, the library does True; the references count",
    ),
    _expert("normalize_top_k_affinities", BOOL, True, "M09 M22", "weights that sum to 1"),
    _expert("disable_normalize_top_k_affinities", BOOL, False, "M09", "weights as they are"),
    Attribute(
        "moe_tp_degree",
        COUNT,
        1,
        "M20",
        "ranks that share an expert; 1 without moe_ep_degree for all",
        PartOf("moe_ep_degree"),
    ),
    Attribute(
        "moe_ep_degree",
        COUNT,
        1,
        "M20",
        "ranks with different experts",
        CompileSetting("moe_ep_degree"),
    ),
    _expert(
        "hybrid_sharding_config",
        optional(nested("HybridShardingConfig")),
        None,
        "M20",
        "degrees of each phase",
    ),
    _expert("router_config", optional(nested("RouterConfig")), None, "M20", "the router"),
    _expert("return_expert_index", BOOL, False, "M20", "gives the chosen experts"),
    _expert("return_router_logits", BOOL, False, "M20", "gives the router's logits"),
    _expert(
        "blockwise_matmul_config",
        optional(nested("BlockwiseMatmulConfig")),
        None,
        "M20",
        "products in blocks",
    ),
    _expert("moe_mask_padded_tokens", BOOL, False, "source", "padding has no expert"),
    _expert("fused_shared_experts", BOOL, False, "M23", "gate and up projection as one"),
    _expert("shared_experts_sequence_parallel_enabled", BOOL, False, "M23", "splits the sequence"),
    _expert("transpose_shared_experts_weights", BOOL, False, "M23", "a layout of weights"),
)

_ROUTER = PartOf("MoENeuronConfig.router_config")

ROUTER = owned_by(
    "RouterConfig",
    Attribute("act_fn", TEXT, "softmax", "M01", "activation of the router", _ROUTER),
    Attribute("dtype", DTYPE, "float32", "M01", "element type of the router", _ROUTER),
    Attribute(
        "router_act_fn", TEXT, same_as("act_fn"), "M01", "activation", _ROUTER, replaces="act_fn"
    ),
    Attribute(
        "router_dtype", DTYPE, same_as("dtype"), "M01", "element type", _ROUTER, replaces="dtype"
    ),
)

ROUTED_EXPERTS = owned_by(
    "RoutedExpertsMLPOpsConfig",
    *_MLP,
    _expert("num_experts", COUNT, REQUIRED, "M02", "experts of a layer"),
    _expert("hidden_size", COUNT, REQUIRED, "M02", "size of hidden states"),
    _expert("intermediate_size", COUNT, REQUIRED, "M02", "size inside an expert"),
    _expert("top_k", COUNT, REQUIRED, "M02", "experts of a token"),
    _expert("hidden_act", TEXT, REQUIRED, "M02", "activation"),
    _expert("glu_mlp", BOOL, REQUIRED, "M02", "whether experts have a gate"),
    _expert("bias", BOOL, False, "M03", "biases"),
    _expert("normalize_top_k_affinities", BOOL, False, "M09", "weights that sum to 1"),
    _expert("input_layer_init_method", optional(_FUNCTION), None, "M11", "initial weights"),
    _expert("output_layer_init_method", optional(_FUNCTION), None, "M11", "initial weights"),
    _expert("enable_spmd_rank", BOOL, False, "M11", "the rank as an input"),
    _expert("is_prefill", optional(BOOL), None, "M11", "the phase"),
)

_BLOCKWISE = PartOf("MoENeuronConfig.blockwise_matmul_config")

BLOCKWISE = owned_by(
    "BlockwiseMatmulConfig",
    Attribute("block_size", COUNT, 512, "M12", "tokens of a block", _BLOCKWISE),
    Attribute("use_block_parallel", BOOL, False, "M13", "blocks on both cores", _BLOCKWISE),
    Attribute(
        "block_sharding_strategy",
        choice("HI_LO", "PING_PONG"),
        "HI_LO",
        "M13",
        "halves of the blocks, or every other one",
        _BLOCKWISE,
    ),
    Attribute("skip_dma_token", BOOL, False, "M14", "no transfer of padding", _BLOCKWISE),
    Attribute("skip_dma_weight", BOOL, False, "M14", "no transfer of padding", _BLOCKWISE),
    Attribute(
        "always_augment_inputs_for_blockwise_matmul",
        BOOL,
        False,
        "M14",
        "pads the inputs in any case",
        _BLOCKWISE,
    ),
    Attribute(
        "logical_nc_config",
        optional(COUNT),
        None,
        "M15",
        "physical cores of a logical one; None for the target's",
        _BLOCKWISE,
    ),
    Attribute(
        "blockwise_nki_autograd_cls", optional(CLASS), None, "M15", "class of kernels", _BLOCKWISE
    ),
    Attribute("use_torch_block_wise", BOOL, False, "M15", "PyTorch's ops", _BLOCKWISE),
    Attribute(
        "parallelize_token_to_block_mapping", BOOL, True, "M16", "indices in parallel", _BLOCKWISE
    ),
    Attribute(
        "optimized_block_to_token_mapping", BOOL, True, "M16", "indices of top-k only", _BLOCKWISE
    ),
    Attribute(
        "use_shard_on_intermediate_dynamic_while", BOOL, False, "M17", "a kernel", _BLOCKWISE
    ),
    Attribute("use_shard_on_block_dynamic_while", BOOL, False, "M17", "a kernel", _BLOCKWISE),
    Attribute(
        "num_static_blocks",
        optional(COUNT),
        None,
        "M17",
        "blocks that are always computed",
        _BLOCKWISE,
    ),
)

FUSED_TOKEN_EXPERTS = owned_by(
    "MoEFusedTKGConfig",
    _expert("quantized", BOOL, False, "M18", "whether weights are quantized"),
    _expert("moe_fused_kernel_enabled", optional(BOOL), None, "M18", "the fused kernel"),
    _expert("router_topk_kernel_enabled", optional(BOOL), None, "M18", "the router's kernel"),
    _expert("expert_mlp_kernel_enabled", optional(BOOL), None, "M18", "the experts' kernel"),
    _expert("shared_mlp_kernel_enabled", optional(BOOL), None, "M18", "the shared experts'"),
)

_HYBRID = PartOf("MoENeuronConfig.hybrid_sharding_config")

HYBRID_SHARDING = owned_by(
    "HybridShardingConfig",
    Attribute("moe_cte_tp_degree", COUNT, 1, "M19", "ranks of an expert, prompts", _HYBRID),
    Attribute("moe_cte_ep_degree", COUNT, 1, "M19", "ranks of experts, prompts", _HYBRID),
    Attribute("moe_tkg_tp_degree", COUNT, 1, "M19", "ranks of an expert, tokens", _HYBRID),
    Attribute("moe_tkg_ep_degree", COUNT, 1, "M19", "ranks of experts, tokens", _HYBRID),
)
