"""Attributes of models with a mixture of experts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from graphgen.config.fields import ValueType, one_of, optional, words
from graphgen.runtime.aws_config.attribute import (
    REQUIRED,
    Attribute,
    CompileRequest,
    Derived,
    DescribesModel,
    NoEffect,
    PartOf,
    Refused,
    Values,
    owned_by,
    same_as,
    sets,
)
from graphgen.runtime.aws_config.value_kinds import (
    BOOL,
    CLASS,
    COMPUTE_DTYPES,
    COUNT,
    DTYPE,
    ELEMENTS,
    NUMBER,
    TEXT,
    TORCH_DTYPES,
    accepted,
    nested,
)

_NO_KERNELS = NoEffect("kernels exist on Neuron devices only")
_ORDINARY = "leave it out: ordinary ops compute the same"


_FUNCTION = one_of(CLASS, accepted("a function", lambda each: each if callable(each) else None))
_SCORES = words("softmax", "sigmoid")
_GLU_TYPES = words("glu", "swiglu")


def _model(
    name: str, kind: ValueType[Any], default: object, source: str, doc: str, what: str = ""
) -> Attribute:
    """An attribute that states what the model computes."""
    return Attribute(name, kind, default, doc, DescribesModel(what or doc), source=source)


def _kernel(name: str, source: str, doc: str, kind: ValueType[Any] = BOOL) -> Attribute:
    """A switch for a kernel of Neuron devices, off unless it is given."""
    default = False if kind is BOOL else None
    return Attribute(name, kind, default, doc, _NO_KERNELS, Refused(doc, _ORDINARY), source=source)


def _idle(
    name: str, kind: ValueType[Any], default: object, source: str, doc: str, because: str
) -> Attribute:
    return Attribute(name, kind, default, doc, NoEffect(because), source=source)


_NORMALIZED = Derived(
    "the opposite of disable_normalize_top_k_affinities",
    lambda values: not values["disable_normalize_top_k_affinities"],
)
# Shared by MoENeuronConfig and RoutedExpertsMLPOpsConfig.
_LIMIT = optional(NUMBER)
_MLP = (
    _model("glu_type", _GLU_TYPES, "glu", "M04 M22", "the gate's form, GLU or SWIGLU"),
    _model("hidden_act_scaling_factor", NUMBER, 1.0, "M05 M22", "factor of the gate's input"),
    _model(
        *("hidden_act_bias", NUMBER, 0.0, "M05 M22"),
        "summand of the up projection, after its bounds",
    ),
    _model("gate_clamp_upper_limit", _LIMIT, None, "M06 M22", "bound of the gate"),
    _model("gate_clamp_lower_limit", _LIMIT, None, "M06 M22", "bound of the gate"),
    _model("up_clamp_upper_limit", _LIMIT, None, "M06 M22", "bound of the up projection"),
    _model("up_clamp_lower_limit", _LIMIT, None, "M06 M22", "bound of the up projection"),
    _kernel("use_index_calc_kernel", "M08 M22", "a kernel that computes indices"),
    _model(
        *("early_expert_affinity_modulation", BOOL, False, "M10 M22"),
        "weights what experts get, not what they give",
        "weighting before or after the experts",
    ),
)


def _sharers(values: Values) -> object:
    """Ranks that share an expert; 1 without groups that have experts of their own."""
    ranks, groups = (cast(int, values[name]) for name in ("tp_degree", "moe_ep_degree"))
    return max(ranks // groups, 1) if groups > 1 else 1


def _groups(request: CompileRequest, phase: str) -> int:
    """Groups of ranks with experts of their own, in the phase ``cte`` or ``tkg``."""
    hybrid = cast("Values | None", request["hybrid_sharding_config"])
    found = request["moe_ep_degree"] if hybrid is None else hybrid[f"moe_{phase}_ep_degree"]
    return cast(int, found)


def _prompt_groups(request: CompileRequest) -> int:
    """Groups of ranks while prompts are processed; 0 for those of tokens."""
    prompts = _groups(request, "cte")
    return prompts if prompts != _groups(request, "tkg") else 0


def _whole_shared_experts(request: CompileRequest) -> tuple[str, ...]:
    whole = request["shared_experts_sequence_parallel_enabled"]
    return ("*.shared_expert*.weight:{-,-}",) if whole else ()


def _block_size(request: CompileRequest) -> int:
    blocks = cast("Values | None", request["blockwise_matmul_config"])
    return 0 if blocks is None else cast(int, blocks["block_size"])


_BLOCK_SIZE = sets("expert_block_size", _block_size)
_ROUTER_DTYPE = sets("router_dtype", lambda router: ELEMENTS[str(router["dtype"])])

EXPERTS = owned_by(
    "MoENeuronConfig",
    *_MLP,
    Attribute(
        "capacity_factor",
        optional(NUMBER),
        None,
        "tokens of an expert over its share; None for all",
        sets("capacity_factor", lambda request: request["capacity_factor"] or 0.0),
        source="M07 M21",
    ),
    Attribute(
        "glu_mlp",
        BOOL,
        True,
        "whether experts have a gate",
        DescribesModel("whether experts have a gate"),
        source="M21",
        decision="the references say False, the library does True; no model that is known has "
        "experts without a gate, so the library counts",
    ),
    _model(
        *("normalize_top_k_affinities", BOOL, _NORMALIZED, "M09 M22", "weights that sum to 1"),
        "whether the weights of a token sum to 1",
    ),
    _model(
        *("disable_normalize_top_k_affinities", BOOL, False, "M09", "weights as they are"),
        "the opposite of normalize_top_k_affinities",
    ),
    Attribute(
        "moe_tp_degree",
        COUNT,
        Derived("1, or tp_degree over a moe_ep_degree above 1", _sharers),
        "ranks that share an expert; 1 without moe_ep_degree for all",
        PartOf("moe_ep_degree"),
        source="M20",
    ),
    Attribute(
        "moe_ep_degree",
        COUNT,
        1,
        "ranks with different experts",
        sets("moe_ep_degree", lambda request: _groups(request, "tkg")),
        source="M20",
    ),
    Attribute(
        "hybrid_sharding_config",
        optional(nested("HybridShardingConfig")),
        None,
        "degrees of each phase; experts are held twice where they differ",
        sets("moe_prefill_ep_degree", _prompt_groups),
        source="M20",
    ),
    _model("router_config", optional(nested("RouterConfig")), None, "M20", "the router"),
    *[
        Attribute(name, BOOL, False, doc, sets(name), source="M20")
        for name, doc in (
            ("return_expert_index", "gives the chosen experts"),
            ("return_router_logits", "gives the router's logits"),
        )
    ],
    Attribute(
        "blockwise_matmul_config",
        optional(nested("BlockwiseMatmulConfig")),
        None,
        "products in blocks",
        _BLOCK_SIZE,
        source="M20",
    ),
    _idle(
        *("moe_mask_padded_tokens", BOOL, False, "source", "padding has no expert"),
        "experts compute each token for itself, so that padding changes no other",
    ),
    _idle(
        *("fused_shared_experts", BOOL, False, "M23", "gate and up projection as one"),
        "products with one input are fused wherever their weights can be joined",
    ),
    Attribute(
        "shared_experts_sequence_parallel_enabled",
        BOOL,
        False,
        "each rank has whole shared experts, and computes them for its tokens",
        sets("rules", _whole_shared_experts),
        source="M23",
    ),
    _idle(
        *("transpose_shared_experts_weights", BOOL, False, "M23", "a layout of weights"),
        "weights have the layout that their products take",
    ),
)

ROUTER = owned_by(
    "RouterConfig",
    _model("act_fn", _SCORES, "softmax", "M01", "activation of the router"),
    Attribute(
        *("dtype", DTYPE, "float32", "element type of the router's logits"),
        _ROUTER_DTYPE,
        source="M01",
        unbuilt={
            name: Refused("a router of this type", "set it to float32, bfloat16 or float16")
            for name in TORCH_DTYPES
            if name not in COMPUTE_DTYPES
        },
    ),
    replace(
        _model("router_act_fn", _SCORES, same_as("act_fn"), "M01", "activation"), replaces="act_fn"
    ),
    Attribute(
        *("router_dtype", DTYPE, same_as("dtype"), "type", _ROUTER_DTYPE),
        source="M01",
        replaces="dtype",
    ),
)

_STATED = "weights are those of the checkpoint"

ROUTED_EXPERTS = owned_by(
    "RoutedExpertsMLPOpsConfig",
    *_MLP,
    Attribute(
        "capacity_factor",
        optional(NUMBER),
        None,
        "tokens of an expert over its share; None for all",
        Refused("a capacity of one module", "set MoENeuronConfig.capacity_factor, for all"),
        source="M07",
    ),
    _model("num_experts", COUNT, REQUIRED, "M02", "experts of a layer"),
    _model("hidden_size", COUNT, REQUIRED, "M02", "size of hidden states"),
    _model("intermediate_size", COUNT, REQUIRED, "M02", "size inside an expert"),
    _model("top_k", COUNT, REQUIRED, "M02", "experts of a token"),
    _model("hidden_act", TEXT, REQUIRED, "M02", "activation"),
    _model("glu_mlp", BOOL, REQUIRED, "M02", "whether experts have a gate"),
    _model("bias", BOOL, False, "M03", "biases of the projections"),
    _model("normalize_top_k_affinities", BOOL, False, "M09", "weights that sum to 1"),
    _idle(
        *("input_layer_init_method", optional(_FUNCTION), None, "M11", "initial weights", _STATED)
    ),
    _idle(
        *("output_layer_init_method", optional(_FUNCTION), None, "M11", "initial weights", _STATED)
    ),
    _idle(
        *("enable_spmd_rank", BOOL, False, "M11", "the rank as an input"),
        "one program of all ranks asks for its rank where it needs it",
    ),
    _idle(
        *("is_prefill", optional(BOOL), None, "M11", "the phase"),
        "programs of all phases come from one description",
    ),
)

_INDICES = "blocks follow from the routing by ordinary ops, the same in any case"

BLOCKWISE = owned_by(
    "BlockwiseMatmulConfig",
    Attribute(
        "block_size",
        COUNT,
        512,
        "tokens of a block",
        _BLOCK_SIZE,
        source="M12",
    ),
    _kernel("use_block_parallel", "M13", "blocks on both cores"),
    Attribute(
        "block_sharding_strategy",
        words("HI_LO", "PING_PONG"),
        "HI_LO",
        "halves of the blocks, or every other one",
        PartOf("use_block_parallel"),
        source="M13",
    ),
    _kernel("skip_dma_token", "M14", "no transfer of padding"),
    _kernel("skip_dma_weight", "M14", "no transfer of weights of empty blocks"),
    _idle(
        *("always_augment_inputs_for_blockwise_matmul", BOOL, False, "M14"),
        "pads the inputs in any case",
        "positions of a block without a token are found by their index",
    ),
    _idle(
        *("logical_nc_config", optional(COUNT), None, "M15"),
        "physical cores of a logical one; None for the target's",
        "NeuronConfig.logical_nc_config decides",
    ),
    _kernel("blockwise_nki_autograd_cls", "M15", "class of kernels", optional(CLASS)),
    _idle(
        *("use_torch_block_wise", BOOL, False, "M15", "PyTorch's ops"),
        "the products of blocks are ordinary ops",
    ),
    _idle(
        *("parallelize_token_to_block_mapping", BOOL, True, "M16", "indices in parallel"), _INDICES
    ),
    _idle(
        *("optimized_block_to_token_mapping", BOOL, True, "M16", "indices of top-k only"), _INDICES
    ),
    _kernel("use_shard_on_intermediate_dynamic_while", "M17", "a kernel that splits experts"),
    _kernel("use_shard_on_block_dynamic_while", "M17", "a kernel that splits blocks"),
    _idle(
        *("num_static_blocks", optional(COUNT), None, "M17", "blocks that are always computed"),
        "programs have the blocks that any routing needs",
    ),
)

FUSED_TOKEN_EXPERTS = owned_by(
    "MoEFusedTKGConfig",
    _idle(
        *("quantized", BOOL, False, "M18", "whether weights are quantized"),
        "NeuronConfig.quantized decides",
    ),
    _kernel("moe_fused_kernel_enabled", "M18", "the fused kernel", optional(BOOL)),
    _kernel("router_topk_kernel_enabled", "M18", "the router's kernel", optional(BOOL)),
    _kernel("expert_mlp_kernel_enabled", "M18", "the experts' kernel", optional(BOOL)),
    _kernel("shared_mlp_kernel_enabled", "M18", "the shared experts' kernel", optional(BOOL)),
)

_HYBRID = PartOf("MoENeuronConfig.hybrid_sharding_config")

HYBRID_SHARDING = owned_by(
    "HybridShardingConfig",
    Attribute("moe_cte_tp_degree", COUNT, 1, "ranks of an expert, prompts", _HYBRID, source="M19"),
    Attribute("moe_cte_ep_degree", COUNT, 1, "ranks of experts, prompts", _HYBRID, source="M19"),
    Attribute("moe_tkg_tp_degree", COUNT, 1, "ranks of an expert, tokens", _HYBRID, source="M19"),
    Attribute("moe_tkg_ep_degree", COUNT, 1, "ranks of experts, tokens", _HYBRID, source="M19"),
)
