"""The phase ``shard``: programs of one rank each, and its caches."""

from __future__ import annotations

from graphgen.config.compile_config import CacheOptions, CompileConfig
from graphgen.config.option_words import PLAIN_DTYPE
from graphgen.config.rank_config import RankConfig
from graphgen.passes.core import Pass
from graphgen.passes.gqa.assign_heads import AssignHeads
from graphgen.passes.gqa.gather_heads import GatherHeads
from graphgen.passes.gqa.head_strategies import BY_ROWS, GATHERED
from graphgen.passes.kv_cache.flash_decoding import FlashDecoding
from graphgen.passes.kv_cache.page_cache import PageCache
from graphgen.passes.precision.reduce_dtype import ReduceDtype
from graphgen.passes.sharding.pad_to_mesh import PadToMesh
from graphgen.passes.sharding.shard import Shard
from graphgen.passes.spmd.balance_tokens import BalanceTokens
from graphgen.passes.spmd.hierarchical_collectives import HierarchicalCollectives
from graphgen.passes.spmd.merge_collectives import MergeCollectives
from graphgen.passes.spmd.partition import Partition
from graphgen.passes.spmd.window_prompts import WindowPrompts


def shard(config: CompileConfig) -> list[Pass]:
    """The program of one rank, and caches in blocks."""
    return [*(_ranks(config) if config.tp > 1 else []), *_pages(config)]


def _ranks(config: CompileConfig) -> list[Pass]:
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
        *([ReduceDtype(config.rpl_reduce_dtype)] if config.rpl_reduce_dtype != PLAIN_DTYPE else []),
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
