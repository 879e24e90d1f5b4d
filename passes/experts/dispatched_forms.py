"""The forms of a mixture of experts: each lays tokens out in blocks, or computes all of them."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.composites.mixture_of_experts import (
    ExpertCall,
    expert_call,
    experts,
    result_of,
)
from graphgen.ir import Attrs, Value
from graphgen.passes.experts.block_products import Compute, gathered, in_place
from graphgen.passes.experts.expert_choices import entries_of, fixed
from graphgen.passes.experts.token_blocks import (
    TokenBlocks,
    choice_blocks,
    expert_buffers,
    sorted_blocks,
)


def dispatched(
    b: Builder,
    operands: Sequence[Value],
    attrs: Attrs,
    form: str,
    block: int,
    compute: Compute | None = None,
) -> Value:
    """A mixture in simple ops.

    Args:
        b: where to build.
        operands: of the op.
        attrs: of the op.
        form: all, selective, capacity or blockwise.
        block: places of a block, for ``blockwise``.
        compute: the MLPs of blocks; by default all at once.
    """
    if form == "all":
        return experts(b, operands, attrs)[0]
    call, at_once = expert_call(b, operands, attrs), gathered
    if form == "selective":
        blocks = choice_blocks(b, call)
    elif form == "blockwise":
        blocks = sorted_blocks(b, call, block)
    else:
        blocks, at_once = expert_buffers(b, call, most_tokens(call)), in_place
    made = (compute or at_once)(b, call, blocks)
    return result_of(b, _combined(b, call, blocks, made), operands[0], attrs)


def most_tokens(call: ExpertCall) -> int:
    """The most tokens that an expert computes: its capacity, or all."""
    tokens = fixed(call.x.shape[0])
    return min(tokens, call.capacity) if call.capacity else tokens


def _combined(b: Builder, call: ExpertCall, blocks: TokenBlocks, y: Value) -> Value:
    """The sums f32 [T,H] over the choices of each token of results f32 [N,B,H], or [N+1,B,H]."""
    count, size, width = (fixed(dim) for dim in y.shape)
    shape, places = (*call.indices.shape, width), blocks.places
    ends_with_zeros = count > fixed(blocks.rows.shape[0])
    if ends_with_zeros:
        last = b.full((count - 1) * size, places.type)
        places = b.select(blocks.kept, places, last)
    numbers = b.reshape(places, (fixed(shape[0]) * fixed(shape[1]),))
    found = b.reshape(entries_of(b, b.reshape(y, (count * size, width)), numbers), shape)
    if not call.early:
        none = b.full(0.0, call.weights.type)
        shares = b.select(blocks.kept, call.weights, none)
        found = found * b.broadcast_in_dim(shares, shape, [0, 1])
    if not ends_with_zeros:
        kept = b.broadcast_in_dim(blocks.kept, shape, [0, 1])
        found = b.select(kept, found, b.full(0.0, found.type))
    return b.reduce(found, [1], "add")
