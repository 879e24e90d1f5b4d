"""Blocks of tokens, each for one expert: how the choices of tokens are laid out to be computed.

The layout depends on the routing, the sizes do not: there are always N blocks of B places. Places
without a token are computed with any row, and have no reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from graphgen.build import Builder
from graphgen.composites.drawing import prefix_sums
from graphgen.composites.experts import ExpertCall, scaled, shares_by_expert
from graphgen.ir import Value, tensor
from graphgen.ir.dtype import f32, s32
from graphgen.passes.experts.expert_choices import (
    at_choices,
    clamped_indices,
    earlier_tokens,
    entries_of,
    fixed,
    kept_choices,
)


@dataclass(frozen=True, slots=True)
class TokenBlocks:
    """N blocks of B tokens.

    Attributes:
        rows: the tokens of the blocks, [N,B,H].
        experts: s32 [N], in 0..E-1.
        live: pred [N]; false for a block without tokens.
        places: the place s32 [T,K] of each choice among the N*B, or 0 where it is not kept.
        kept: pred [T,K], as :func:`kept_choices` gives it.
        slots: s32 [N,B], the adapter of each token; ``None`` without adapters.
    """

    rows: Value
    experts: Value
    live: Value
    places: Value
    kept: Value
    slots: Value | None = None


def block_count(pairs: int, experts: int, block: int) -> int:
    """N blocks of B places that hold any P choices: ``ceil((P - (E-1)) / B) + E - 1``, at most P.

    Each expert may leave all but one place of its last block empty (arXiv 2211.15841).

    Args:
        pairs: P, tokens times experts of a token.
        experts: E.
        block: B.
    """
    return min(pairs, ceil((pairs - (experts - 1)) / block) + experts - 1)


def choice_blocks(b: Builder, call: ExpertCall) -> TokenBlocks:
    """A block of one token for each choice, in the order of the tokens."""
    tokens, chosen = (fixed(size) for size in call.indices.shape)
    kept, count = kept_choices(b, call), tokens * chosen
    rows = b.reshape(_repeated(b, call), (count, 1, call.x.shape[1]))
    places = b.reshape(b.iota(s32, (count,), 0), (tokens, chosen))
    experts = b.reshape(clamped_indices(b, call), (count,))
    slots = _repeated_slots(b, call)
    slots = None if slots is None else b.reshape(slots, (count, 1))
    return TokenBlocks(rows, experts, b.reshape(kept, (count,)), places, kept, slots)


def sorted_blocks(b: Builder, call: ExpertCall, block: int) -> TokenBlocks:
    """The tokens of each expert in blocks of B, expert after expert, in the order of the tokens.

    The choices 0 1 0 2 1 0 of six tokens, by twos: ``0 2``, ``5 -``, ``1 4``, ``3 -``.
    """
    tokens, chosen = (fixed(size) for size in call.indices.shape)
    experts = fixed(call.count)
    count = block_count(tokens * chosen, experts, block)
    kept = kept_choices(b, call)
    sizes = _tokens_of_experts(b, call)
    needed = b.binary("divide", sizes + (block - 1), b.full(block, sizes.type))
    ends = _reached(b, needed)
    first = b.broadcast_in_dim((ends - needed) * block, (tokens, experts), [1])
    places = at_choices(b, call, first) + earlier_tokens(b, call)
    numbers = b.iota(s32, (count, experts), 0)
    passed = b.compare(b.broadcast_in_dim(ends, (count, experts), [1]), numbers, "LE")
    owner = b.reduce(b.convert(passed, s32), [1], "add")
    live = b.compare(owner, b.full(experts, owner.type), "LT")
    owner = b.binary("minimum", owner, b.full(experts - 1, owner.type))
    return _filled(b, call, places, kept, (count, block), owner, live)


def expert_buffers(b: Builder, call: ExpertCall, places: int) -> TokenBlocks:
    """A buffer of C places for each expert, in the order of the tokens.

    Args:
        b: where to build.
        call: the mixture.
        places: C, no less than the tokens that an expert computes.
    """
    experts = fixed(call.count)
    sizes = _tokens_of_experts(b, call)
    live = b.compare(sizes, b.full(0, sizes.type), "GT")
    at = clamped_indices(b, call) * places + earlier_tokens(b, call)
    own = b.iota(s32, (experts,), 0)
    return _filled(b, call, at, kept_choices(b, call), (experts, places), own, live)


def placed_tokens(b: Builder, places: Value, kept: Value, count: int, *, choices: bool) -> Value:
    """The number s32 [P] of the token in each of P places, -1 for none.

    Args:
        b: where to build.
        places: s32 [T,K].
        kept: pred [T,K].
        count: P.
        choices: whether to number choices, t*K+k, and not tokens.
    """
    tokens, chosen = (fixed(size) for size in places.shape)
    flat = (tokens * chosen,)
    rows = b.iota(s32, places.shape, 0)
    numbers = b.iota(s32, flat, 0) if choices else b.reshape(rows, flat)
    # Dropped choices go to a place of their own, which is cut off.
    to = b.select(kept, places, b.full(count, places.type))
    empty = b.full(-1, tensor(s32, (count + 1,)))
    found = b.op(
        "scatter",
        empty,
        b.reshape(to, (*flat, 1)),
        numbers,
        update_window_dims=(),
        inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,),
        index_vector_dim=1,
    )
    return b.slice_dim(found, 0, 0, count)


def _filled(
    b: Builder,
    call: ExpertCall,
    places: Value,
    kept: Value,
    sizes: tuple[int, int],
    experts: Value,
    live: Value,
) -> TokenBlocks:
    """The blocks [N,B] with these places of choices."""
    count = sizes[0] * sizes[1]
    source = _repeated(b, call) if call.early else call.x
    numbers = placed_tokens(b, places, kept, count, choices=call.early)
    numbers = b.binary("maximum", numbers, b.full(0, numbers.type))
    rows = b.reshape(entries_of(b, source, numbers), (*sizes, call.x.shape[1]))
    slots = _repeated_slots(b, call) if call.early else call.slots
    slots = None if slots is None else b.reshape(entries_of(b, slots, numbers), sizes)
    places = b.select(kept, places, b.full(0, places.type))
    return TokenBlocks(rows, experts, live, places, kept, slots)


def _repeated(b: Builder, call: ExpertCall) -> Value:
    """The token of each choice [T*K,H], times its weight if weights multiply inputs."""
    tokens, chosen, width = (*call.indices.shape, call.x.shape[1])
    wide = b.broadcast_in_dim(call.x, (tokens, chosen, width), [0, 2])
    wide = scaled(b, wide, call.weights) if call.early else wide
    return b.reshape(wide, (fixed(tokens) * fixed(chosen), width))


def _repeated_slots(b: Builder, call: ExpertCall) -> Value | None:
    """The adapter of the token of each choice, s32 [T*K]."""
    if call.slots is None:
        return None
    shape = tuple(fixed(size) for size in call.indices.shape)
    return b.reshape(b.broadcast_in_dim(call.slots, shape, [0]), (shape[0] * shape[1],))


def _tokens_of_experts(b: Builder, call: ExpertCall) -> Value:
    """The number s32 [E] of tokens that each expert computes."""
    _, chosen = shares_by_expert(b, call)
    return b.reduce(b.convert(chosen, s32), [0], "add")


def _reached(b: Builder, x: Value) -> Value:
    """Sums of s32 [E] up to each place, exact below 2**24."""
    row = b.reshape(b.convert(x, f32), (1, *x.shape))
    return b.convert(b.reshape(prefix_sums(b, row, inclusive=True), x.shape), s32)
