"""The phase ``specialize``: one program a bucket."""

from __future__ import annotations

from graphgen.config.compile_config import CompileConfig
from graphgen.passes.core import Pass
from graphgen.passes.experts.limit_expert_capacity import LimitExpertCapacity
from graphgen.passes.kv_cache.roll_window_cache import RollWindowCache
from graphgen.passes.programs.specialize import Specialize


def specialize(config: CompileConfig) -> list[Pass]:
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
