"""The default pipeline: the phases of a compilation, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphgen.config.compile_config import (
    AdapterOptions,
    CacheOptions,
    CompileConfig,
    ProgramOptions,
)
from graphgen.config.fields import integer, list_of, option
from graphgen.config.option_words import (
    ACTIVATIONS_STATIC,
    ACTIVATIONS_WIDE,
    ATTENTION_OF_MODEL,
    DTYPES,
    KERNELS_ON,
)
from graphgen.config.rank_config import RankConfig
from graphgen.errors import GraphgenError
from graphgen.passes.attention.absorb_latent_projections import AbsorbLatentProjections
from graphgen.passes.attention.tile_attention import TileAttention
from graphgen.passes.canonical.canonicalize import Canonicalize
from graphgen.passes.canonical.cse import CommonSubexpressions
from graphgen.passes.canonical.dce import DeadCodeElimination
from graphgen.passes.canonical.fuse_projections import FuseProjections
from graphgen.passes.canonical.unfuse_projections import UnfuseProjections
from graphgen.passes.core import Pass, parse_pipeline
from graphgen.passes.core.fuel import labels
from graphgen.passes.core.order import check_order
from graphgen.passes.core.registry import NamedPipeline, Phase, parse_phases, register_pipeline
from graphgen.passes.experts.dispatch_experts import DispatchExperts
from graphgen.passes.experts.limit_expert_capacity import LimitExpertCapacity
from graphgen.passes.gqa.assign_heads import AssignHeads
from graphgen.passes.gqa.gather_heads import GatherHeads
from graphgen.passes.gqa.head_strategies import BY_ROWS, GATHERED
from graphgen.passes.inspect.debug_log import pick
from graphgen.passes.kernels.select_kernels import SelectKernels
from graphgen.passes.kv_cache.cache_bits import CacheAsBits
from graphgen.passes.kv_cache.flash_decoding import FlashDecoding
from graphgen.passes.kv_cache.pad_cache_slots import PadCacheSlots
from graphgen.passes.kv_cache.page_cache import PageCache
from graphgen.passes.kv_cache.roll_window_cache import RollWindowCache
from graphgen.passes.legalize.integer_products import IntegerProducts
from graphgen.passes.legalize.legalize import Legalize
from graphgen.passes.legalize.neuron_f8 import F8Formats
from graphgen.passes.legalize.order_interface import OrderInterface
from graphgen.passes.lora.adapter_forms import AdapterForms
from graphgen.passes.lora.join_adapters import JoinAdapters
from graphgen.passes.lora.multi_lora import MultiLora
from graphgen.passes.option_conflicts import check_combinations
from graphgen.passes.outline.outline_layers import OutlineLayers
from graphgen.passes.precision.attention_dtype import AttentionDtype
from graphgen.passes.precision.cast_logits import CastLogits
from graphgen.passes.precision.reduce_dtype import ReduceDtype
from graphgen.passes.precision.router_dtype import RouterDtype
from graphgen.passes.precision.softmax_dtype import SoftmaxDtype
from graphgen.passes.programs.specialize import Specialize
from graphgen.passes.quantization.quantize_activations import QuantizeActivations
from graphgen.passes.quantization.quantize_cache import QuantizeCache
from graphgen.passes.quantization.quantize_weights import QuantizeWeights
from graphgen.passes.sharding.pad_to_mesh import PadToMesh
from graphgen.passes.sharding.pipeline_stages import PipelineStages
from graphgen.passes.sharding.shard import Shard
from graphgen.passes.spmd.balance_tokens import BalanceTokens
from graphgen.passes.spmd.hierarchical_collectives import HierarchicalCollectives
from graphgen.passes.spmd.merge_collectives import MergeCollectives
from graphgen.passes.spmd.partition import Partition
from graphgen.passes.spmd.window_prompts import WindowPrompts
from graphgen.passes.weights.lift import LiftWeights
from graphgen.targets import Target, find_target, target_names

# Passes that targets and options name: imported here, so that finding one by its name does not
# import every other pass (and NumPy with them).
NAMED_PASSES: tuple[type[Pass], ...] = (
    CacheAsBits,
    F8Formats,
    IntegerProducts,
    OrderInterface,
    PadCacheSlots,
    QuantizeWeights,
)
# The default type of sums, softmax and logits.
_PLAIN = DTYPES[0]


def phases(config: CompileConfig) -> tuple[Phase, ...]:
    """The phases that bring a logical module to programs ready to be lowered.

    A target adds passes at the end of a phase: see ``graphgen/targets``.

    Raises:
        GraphgenError: GG0301 and GG0302 for a pass or an option that does not exist, GG0302 for
            fewer ranks than one, for batch sizes that a strategy cannot have, for kernels of
            another target and for caches in a format that the target has not.
    """
    if config.tp < 1:
        raise GraphgenError("GG0302", f"default: tp={config.tp} must be at least 1")
    check_combinations(config)
    # Kernels take in the terms of adapters, and leave some.
    adapted = config.max_loras > 0 and config.target == "cpu" and bool(_kernels(config))
    own = {
        "canonicalize": _canonicalize(config),
        "quantize": [*parse_pipeline(config.quantization), *narrow_caches(config)],
        "specialize": _specialize(config),
        "shard": [*(_shard(config) if config.tp > 1 else []), *_pages(config)],
        "fuse": [
            AbsorbLatentProjections(config.latent_attention, config.target),
            DispatchExperts(config.expert_dispatch, config.expert_block_size, config.target),
            *([] if adapted else _adapter_forms(config)),
            *(CommonSubexpressions(), FuseProjections()),
            *([JoinAdapters(), DeadCodeElimination()] if adapted else []),
            *_narrow_activations(config),
            *_attention(config),
            *(_adapter_forms(config) if adapted else []),
        ],
        "weights": [LiftWeights()],
        "legalize": _legalize(config),
        "outline": [OutlineLayers()] if config.outline else [],
        "steps": _several_steps(config),
        "stages": _stages(config),
    }
    _check_target(config.target, tuple(own))
    return tuple(Phase(name, (*passes, *_of_target(config, name))) for name, passes in own.items())


def _attention(config: CompileConfig) -> list[Pass]:
    """Attention by kernels, in tiles or by ops, in the order of preference of the target.

    Those of accelerators are made for long prompts; what the CPU's are slower at is in tiles.
    """
    softmax, kernels = config.softmax_dtype, _kernels(config)
    follow = config.target == "cpu" and bool(kernels) and softmax == _PLAIN
    tiles = TileAttention(config.attention_block, config.target, softmax, follow)
    if softmax != _PLAIN:
        return [tiles, SoftmaxDtype(softmax), *kernels]
    return [tiles, *kernels] if config.target == "cpu" else [*kernels, tiles]


def _several_steps(config: ProgramOptions) -> list[Pass]:
    """Programs of several decode steps; by name, since the pass needs NumPy."""
    count = config.steps_per_launch
    return parse_pipeline(f"unroll-steps{{steps={count}}}") if count > 1 else []


def _stages(config: RankConfig) -> list[Pass]:
    """Layers in stages of a pipeline, when every rank's program is whole."""
    count = config.pp_degree
    return [PipelineStages(count, config.target)] if count > 1 else []


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


def default(config: CompileConfig) -> list[Pass]:
    """The passes of all :func:`phases`."""
    return passes_of(phases(config))


def _canonicalize(config: CompileConfig) -> list[Pass]:
    """One form for what models write in several ways, and the element types of the options."""
    cast, attention = config.cast_logits_dtype, config.attention_dtype
    router = config.router_dtype
    return [
        *([CastLogits(cast)] if cast != _PLAIN else []),
        *parse_pipeline(config.sampling),
        *(Canonicalize(), UnfuseProjections()),
        *([AttentionDtype(attention)] if attention != ATTENTION_OF_MODEL else []),
        *([RouterDtype(router)] if router != _PLAIN else []),
        *_adapters(config),
    ]


def _adapters(config: AdapterOptions) -> list[Pass]:
    """Adapters before all that lays out, quantizes, splits or fuses projections."""
    slots, rank, targets = config.max_loras, config.max_lora_rank, config.lora_target_modules
    return [MultiLora(slots, rank, targets)] if slots else []


def _adapter_forms(config: CompileConfig) -> list[Pass]:
    """The forms of the terms of adapters that no kernel has taken in."""
    return [AdapterForms(target=config.target)] if config.max_loras else []


def narrow_caches(config: CacheOptions) -> list[Pass]:
    """Caches in 8 bits; before heads are laid out, so that scales go with them."""
    narrow = QuantizeCache(config.kv_cache_dtype, config.cache_scale, config.kv_cache_ranges)
    return [narrow] if config.kv_cache_quant else []


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


def _specialize(config: CompileConfig) -> list[Pass]:
    """One program per bucket; caches roll before they are laid out or split."""
    sizes = Specialize(
        batch=config.batch,
        prefill_batch=config.prefill_batch,
        context=config.context or Specialize.context,
        # Without prefill buckets prompts go through the decode programs.
        context_length_estimate=None if config.context else 0,
        tokens=config.tokens,
        chunk=config.chunk,
        speculation_length=config.speculation_length,
        verify_lengths=config.verify_lengths,
        verify_batch=config.verify_batch,
        tree_nodes=config.tree_nodes,
        rows=config.rows,
        slots=config.slots,
        dims=config.dims,
        in_place=True,
    )
    return [
        sizes,
        *([RollWindowCache()] if config.roll_window_cache else []),
        *([LimitExpertCapacity(config.capacity_factor)] if config.capacity_factor else []),
    ]


def _shard(config: CompileConfig) -> list[Pass]:
    """The program of one rank, with explicit collectives."""
    flash, slot_ranks = config.flash_decoding, config.flash_decoding_ranks
    return [
        AssignHeads(
            tp=config.tp // config.attention_dp_degree,
            strategy=config.heads,
            flash=flash,
            slot_ranks=slot_ranks,
        ),
        *([FlashDecoding(slot_ranks, config.tp)] if flash else []),
        *_shared_prompts(config),
        Shard(
            tp=config.tp,
            ep=config.moe_ep_degree,
            prefill_ep=config.moe_prefill_ep_degree,
            cp=config.cp_degree,
            cp_form=config.cp_form,
            mlp_cp=config.mlp_cp_degree,
            dp=config.attention_dp_degree,
            by_rows=config.heads == BY_ROWS,
            flash=flash,
            slot_ranks=slot_ranks,
            rules=config.rules,
            target=config.target if config.cp_degree > 1 else "cpu",
        ),
        PadToMesh(),
        Partition(
            gather_weights=config.weight_gather_length, expert_exchange=config.expert_exchange
        ),
        *([GatherHeads()] if config.heads == GATHERED else []),
        MergeCollectives(),
        *([ReduceDtype(config.rpl_reduce_dtype)] if config.rpl_reduce_dtype != _PLAIN else []),
        *([HierarchicalCollectives(config.nodes, config.target)] if config.nodes > 1 else []),
    ]


def _shared_prompts(config: RankConfig) -> list[Pass]:
    """The order of tokens that ranks share, and the slots of windowed layers that they need."""
    form, balance = config.cp_form, config.cp_balance
    ranks = config.tp, config.cp_degree, config.attention_dp_degree
    if config.cp_degree == 1:
        return []
    return [
        BalanceTokens(*ranks, form, balance, config.target),
        WindowPrompts(*ranks, form, config.target),
    ]


def _pages(config: CacheOptions) -> list[Pass]:
    """Caches in blocks; after the ranks have their heads."""
    return [PageCache(config.page_cache, config.cache_blocks)] if config.page_cache else []


def _legalize(config: CompileConfig) -> list[Pass]:
    """Primitive ops in the forms of the target, and nothing that is not read."""
    return [
        Legalize(target=config.target, min_rows=config.min_rows),
        CommonSubexpressions(),
        DeadCodeElimination(),
    ]


def _check_target(name: str, known: Sequence[str]) -> None:
    """Refuse a target that adds passes to a phase that does not exist (GG0302)."""
    target = find_target(name) if name in target_names() else Target(name)
    for phase in (*target.passes, *target.quantized_passes):
        if phase not in known:
            what = f"target '{name}' adds passes to the unknown phase '{phase}'"
            raise GraphgenError("GG0302", what, help=f"phases: {', '.join(known)}")


def _of_target(config: CompileConfig, phase: str) -> list[Pass]:
    """The passes that the target adds to a phase; ``legalize`` refuses an unknown target."""
    if config.target not in target_names():
        return []
    target = find_target(config.target)
    texts = [target.passes.get(phase, "")]
    if config.quantization:
        texts.append(target.quantized_passes.get(phase, ""))
    return parse_pipeline(",".join([text for text in texts if text]))


@register_pipeline
@dataclass(frozen=True, kw_only=True)
class Default(CompileConfig, NamedPipeline):
    """From the logical module to programs ready to be lowered for a target."""

    name: ClassVar[str] = "default"

    def passes(self) -> list[Pass]:
        """The passes, for these options."""
        return default(self)

    def phases(self) -> tuple[Phase, ...]:
        """The table of the default pipeline, for these options."""
        return phases(self)


# Sizes of programs that NumPy evaluates in seconds: rows that differ, and a change of bucket.
SMALL = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16))


@register_pipeline
@dataclass(frozen=True, kw_only=True)
class Small(Default):
    """The default pipeline with programs that NumPy runs in seconds, as ``validate`` takes them."""

    name: ClassVar[str] = "small"
    batch: tuple[int, ...] = option(list_of(integer()), SMALL.batch, "sizes of B.", flag=None)
    context: tuple[int, ...] = option(
        list_of(integer()), SMALL.context, "buckets of the prefill programs.", flag=None
    )
    tokens: tuple[int, ...] = option(
        list_of(integer()), SMALL.tokens, "buckets of the decode programs.", flag=None
    )


def parse(text: str, config: CompileConfig | None = None) -> list[Pass]:
    """Passes from text, where ``default{target=cpu,tp=2}`` stands for the default pipeline.

    Args:
        text: see :func:`parse_pipeline`.
        config: the options of the default pipeline that the text does not name.

    Raises:
        GraphgenError: GG0301, GG0302, and GG0303 for an order that is wrong for every module.
    """
    return passes_of(parse_in_phases(text, config))


def parse_in_phases(text: str, config: CompileConfig | None = None) -> list[Phase]:
    """The same in phases; passes that ``text`` names one by one are in phases without a name."""
    named = Default(**vars(config)) if config is not None else Default()
    found = parse_phases(text, [named])
    check_order(passes_of(found))
    return found


def passes_of(phases: Sequence[Phase]) -> list[Pass]:
    """The passes of all phases."""
    return [item for phase in phases for item in phase.passes]


def range_of(phases: Sequence[Phase], name: str, option: str) -> range:
    """The positions in :func:`passes_of` of the pass, or of the passes of the phase, ``name``.

    Args:
        phases: of a pipeline.
        name: of a pass, ``cse#2`` for the second of one name; else of a phase. ``phase:NAME`` is a
            phase even if a pass has the name.
        option: for the error.

    Raises:
        GraphgenError: GG0705 for an unknown name, with the passes of the pipeline.
    """
    passes = passes_of(phases)
    wanted = name.removeprefix("phase:")
    if wanted != name or name not in labels(passes):
        at = 0
        for phase in phases:
            if phase.name and phase.name == wanted:
                return range(at, at + len(phase.passes))
            at += len(phase.passes)
    number = pick(passes, name, option)
    return range(number, number + 1)
