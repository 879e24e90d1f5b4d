"""Low-rank adapters (LoRA) of experts, for blocks of tokens that share an expert.

A block of several tokens is multiplied by the matrices of all slots of its expert, and keeps what
is of the slot of each token. A block of one token reads those of its slot alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.build.range_check import in_range
from graphgen.composites.expert_adapters import ExpertAdapters, slot_mask
from graphgen.composites.mixture_of_experts import ExpertCall
from graphgen.ir import Value, tensor
from graphgen.ir.dtype import f32, s32
from graphgen.passes.experts.expert_choices import fixed
from graphgen.passes.experts.token_blocks import TokenBlocks


def in_place_adapters(b: Builder, call: ExpertCall, blocks: TokenBlocks) -> ExpertAdapters | None:
    """The adapters of blocks of which number n is of expert n."""
    if blocks.slots is None:
        return None
    mask = slot_mask(b, blocks.slots, call.low_rank[0].shape[0])
    return ExpertAdapters(mask, call.low_rank)


def gathered_adapters(b: Builder, call: ExpertCall, blocks: TokenBlocks) -> ExpertAdapters | None:
    """The adapters of blocks of any experts: [L,N,...], or [1,N,...] for one token each."""
    if blocks.slots is None:
        return None
    slots, size = call.low_rank[0].shape[0], fixed(blocks.slots.shape[1])
    if size > 1:
        chosen = [b.take(matrix, blocks.experts, 1) for matrix in call.low_rank]
        return ExpertAdapters(slot_mask(b, blocks.slots, slots), chosen)
    own = b.reshape(blocks.slots, blocks.experts.shape)
    places = own * fixed(call.count) + blocks.experts
    inside = in_range(b, own, fixed(slots))
    places = b.select(inside, places, b.full(-1, places.type))
    found = [_taken(b, matrix, places) for matrix in call.low_rank]
    # Of a token without an adapter, ``take`` gives zeros.
    return ExpertAdapters(b.full(1.0, tensor(f32, (*blocks.slots.shape, 1))), found)


def adapters_of_block(
    b: Builder, slots: Value, matrices: Sequence[Value], expert: Value
) -> ExpertAdapters:
    """The adapters of one block.

    Args:
        b: where to build.
        slots: s32 [B], of its tokens.
        matrices: of all slots and experts.
        expert: s32 scalar.
    """
    count, zero = fixed(matrices[0].shape[0]), b.literal(0, s32)
    if fixed(slots.shape[0]) > 1:
        kept, first, mask = count, zero, slot_mask(b, slots, count)
    else:
        last = b.full(count - 1, slots.type)
        inside = b.binary("minimum", b.binary("maximum", slots, b.full(0, slots.type)), last)
        kept, first = 1, b.reshape(inside, ())
        mask = b.reshape(b.convert(in_range(b, slots, count), f32), (1, 1))
    found: list[Value] = []
    for matrix in matrices:
        sizes = matrix.shape[2:]
        part = b.dynamic_slice(matrix, [first, expert, zero, zero], (kept, 1, *sizes))
        found.append(b.reshape(part, (kept, *sizes)))
    return ExpertAdapters(mask, found)


def _taken(b: Builder, matrix: Value, places: Value) -> Value:
    """Matrices [1,N,...] of [L,E,...] by their numbers s32 [N], ``slot * E + expert``."""
    slots, experts, *sizes = (fixed(dim) for dim in matrix.shape)
    rows = b.take(b.reshape(matrix, (slots * experts, *sizes)), places, 0)
    return b.reshape(rows, (1, *rows.shape))
