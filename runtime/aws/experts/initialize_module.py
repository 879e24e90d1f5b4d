"""A mixture of experts from a model's configuration and its MoENeuronConfig."""

from __future__ import annotations

from typing import cast

from graphgen.errors import GraphgenError
from graphgen.runtime.aws.attributes.attribute_table import attributes_of
from graphgen.runtime.aws.config.expert_config import (
    MoENeuronConfig,
    RoutedExpertsMLPOpsConfig,
    RouterConfig,
)
from graphgen.runtime.aws.experts.moe_modules import ExpertMLPs, MoE, RouterTopK, SharedExperts

# Names of a model's configuration for each size, the first that is there.
_SIZES = {
    "num_experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "top_k": ("num_experts_per_tok", "top_k"),
    "hidden_size": ("hidden_size",),
    "intermediate_size": ("moe_intermediate_size", "intermediate_size"),
    "hidden_act": ("hidden_act",),
}


def initialize_moe_module(
    config: object,
    num_experts: int | None = None,
    top_k: int | None = None,
    hidden_size: int | None = None,
    intermediate_size: int | None = None,
    hidden_act: str | None = None,
    *,
    neuron_config: MoENeuronConfig | None = None,
    router_bias: bool = False,
    experts_bias: bool = False,
    apply_act_fn_over_topk: bool = False,
    init_tkg_module: bool = False,
) -> MoE:
    """The module of NxD Inference's function of this name.

    Args:
        config: an InferenceConfig, or any object with the sizes as attributes under Hugging Face's
            names, ``n_shared_experts`` among them.
        num_experts: E; by default ``num_local_experts``, ``num_experts`` or ``n_routed_experts``.
        top_k: K; by default ``num_experts_per_tok`` or ``top_k``.
        hidden_size: H.
        intermediate_size: I of an expert; by default ``moe_intermediate_size`` or
            ``intermediate_size``.
        hidden_act: the activation.
        neuron_config: how experts compute; by default ``config.neuron_config``, or that of no
            options.
        router_bias: whether the router has a bias.
        experts_bias: whether experts have biases.
        apply_act_fn_over_topk: activate the chosen logits alone.
        init_tkg_module: no effect: programs of all phases come from one description.

    Raises:
        GraphgenError: GG0503 for a size that ``config`` does not have, GG0902 for a configuration
            without options of experts, GG0903 and GG0904 for options.
    """
    given = (num_experts, top_k, hidden_size, intermediate_size, hidden_act)
    sizes = {
        name: _size(config, name) if value is None else value
        for name, value in zip(_SIZES, given, strict=True)
    }
    options = neuron_config or _options(config)
    routed = RoutedExpertsMLPOpsConfig(**sizes, bias=experts_bias, **_expert_options(options))
    return MoE(
        _router(options, routed, bias=router_bias, over_chosen=apply_act_fn_over_topk),
        ExpertMLPs(routed),
        _shared(config, routed),
        return_router_logits=bool(options.value("return_router_logits")),
        return_expert_index=bool(options.value("return_expert_index")),
    )


def _router(
    options: MoENeuronConfig, routed: RoutedExpertsMLPOpsConfig, *, bias: bool, over_chosen: bool
) -> RouterTopK:
    """The router of as many experts."""
    found = options.value("router_config")
    router = found if isinstance(found, RouterConfig) else RouterConfig()
    experts, chosen, width = (
        cast(int, routed.value(name)) for name in ("num_experts", "top_k", "hidden_size")
    )
    return RouterTopK(
        *(experts, chosen, width),
        act_fn=str(router.value("act_fn")),
        dtype=router.value("dtype"),
        bias=bias,
        apply_act_fn_over_topk=over_chosen,
    )


def _size(config: object, name: str) -> object:
    """A size under the first of its names that the configuration has (GG0503)."""
    for word in _SIZES[name]:
        found = getattr(config, word, None)
        if found is not None:
            return found
    raise GraphgenError(
        "GG0503",
        f"{type(config).__name__} has no {' or '.join(_SIZES[name])}",
        help=f"give {name} to initialize_moe_module, or set it in the configuration",
    )


def _options(config: object) -> MoENeuronConfig:
    """The options in a model's configuration; none where it has no NeuronConfig (GG0902)."""
    found = getattr(config, "neuron_config", None)
    if found is None:
        return MoENeuronConfig()
    if not isinstance(found, MoENeuronConfig):
        raise GraphgenError(
            "GG0902",
            f"neuron_config is a {type(found).__name__}, not a MoENeuronConfig",
            help="make the configuration of a MoENeuronConfig",
        )
    return found


def _expert_options(options: MoENeuronConfig) -> dict[str, object]:
    """The options that experts have too; a capacity is one of all experts of a model."""
    shared = attributes_of("RoutedExpertsMLPOpsConfig").keys() - {"capacity_factor"}
    found = {name: value for name, value in options.given.items() if name in shared}
    normalize = options.value("normalize_top_k_affinities")
    disabled = options.value("disable_normalize_top_k_affinities")
    return {
        **found,
        "glu_mlp": options.value("glu_mlp"),
        "normalize_top_k_affinities": bool(normalize and not disabled),
    }


def _shared(config: object, routed: RoutedExpertsMLPOpsConfig) -> SharedExperts | None:
    count = getattr(config, "n_shared_experts", None)
    if not count:
        return None
    width, inner = (cast(int, routed.value(name)) for name in ("hidden_size", "intermediate_size"))
    return SharedExperts(width, inner, count, str(routed.value("hidden_act")))
