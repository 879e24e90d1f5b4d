"""The phase ``fuse``: experts, projections, kernels, attention and forms of adapters."""

from __future__ import annotations

from graphgen.config.compile_config import CompileConfig
from graphgen.config.option_words import (
    ACTIVATIONS_STATIC,
    ACTIVATIONS_WIDE,
    KERNELS_ON,
    PLAIN_DTYPE,
)
from graphgen.errors import GraphgenError
from graphgen.passes.attention.absorb_latent_projections import AbsorbLatentProjections
from graphgen.passes.attention.tile_attention import TileAttention
from graphgen.passes.canonical.cse import CommonSubexpressions
from graphgen.passes.canonical.dce import DeadCodeElimination
from graphgen.passes.canonical.fuse_projections import FuseProjections
from graphgen.passes.core import Pass
from graphgen.passes.experts.dispatch_experts import DispatchExperts
from graphgen.passes.kernels.select_kernels import SelectKernels
from graphgen.passes.lora.adapter_forms import AdapterForms
from graphgen.passes.lora.join_adapters import JoinAdapters
from graphgen.passes.precision.softmax_dtype import SoftmaxDtype
from graphgen.passes.quantization.quantize_activations import QuantizeActivations
from graphgen.targets import Target, find_target, target_names


def fuse(config: CompileConfig) -> list[Pass]:
    """Fewer and larger ops: dispatched experts, joined projections, kernels and tiles."""
    # Kernels take in the terms of adapters, and leave some.
    adapted = config.max_loras > 0 and config.target == "cpu" and bool(_kernels(config))
    return [
        AbsorbLatentProjections(config.latent_attention, config.target),
        DispatchExperts(config.expert_dispatch, config.expert_block_size, config.target),
        *([] if adapted else _adapter_forms(config)),
        *(CommonSubexpressions(), FuseProjections()),
        *([JoinAdapters(), DeadCodeElimination()] if adapted else []),
        *_narrow_activations(config),
        *_attention(config),
        *(_adapter_forms(config) if adapted else []),
    ]


def _attention(config: CompileConfig) -> list[Pass]:
    """Attention by kernels, in tiles or by ops, in the order of preference of the target.

    Those of accelerators are made for long prompts; what the CPU's are slower at is in tiles.
    """
    softmax, kernels = config.softmax_dtype, _kernels(config)
    follow = config.target == "cpu" and bool(kernels) and softmax == PLAIN_DTYPE
    tiles = TileAttention(config.attention_block, config.target, softmax, follow)
    if softmax != PLAIN_DTYPE:
        return [tiles, SoftmaxDtype(softmax), *kernels]
    return [tiles, *kernels] if config.target == "cpu" else [*kernels, tiles]


def _kernels(config: CompileConfig) -> list[Pass]:
    """Kernels of the target, and those in NKI that are requested or given."""
    native = config.native_kernels or config.kernel_artifacts
    if config.target == "cpu":
        return [SelectKernels()] if config.kernels == KERNELS_ON else []
    documented = config.kernels == KERNELS_ON
    if not documented and not native:
        return []
    chosen, given = config.native_kernels, config.kernel_artifacts
    return [SelectKernels(config.target, documented, chosen, given)]


def _adapter_forms(config: CompileConfig) -> list[Pass]:
    """The forms of the terms of adapters that no kernel has taken in."""
    return [AdapterForms(target=config.target)] if config.max_loras else []


def _narrow_activations(config: CompileConfig) -> list[Pass]:
    """Products of 8-bit rows, of the types that the target has; each rank scales its own rows."""
    kind, ranges = config.activation_quantization_type, config.activation_ranges
    if ranges and kind != ACTIVATIONS_STATIC:
        raise GraphgenError(
            "GG0302",
            f"default: activation_ranges has no effect on {kind} activations",
            help="give activation_quantization_type=static, or leave the ranges out",
        )
    if kind == ACTIVATIONS_WIDE:
        return []
    target = find_target(config.target) if config.target in target_names() else Target("")
    # Scales of checkpoints are OCP's, as their weights are until they are read.
    rescaled = kind == ACTIVATIONS_STATIC and not ranges and target.is_accelerator
    bound = config.quantize_clamp_bound
    weights = config.activation_quantization_weights
    return [QuantizeActivations(target.narrow_products, bound, kind, ranges, rescaled, weights)]
