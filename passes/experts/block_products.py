"""The MLPs of blocks of tokens: all at once with gathered matrices, or one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphgen.build import Builder
from graphgen.build.range_check import in_range
from graphgen.composites.experts import (
    ExpertAdapters,
    ExpertCall,
    Term,
    gated,
    plus_bias,
    slot_mask,
)
from graphgen.ir import Attrs, Value, tensor
from graphgen.ir.dtype import f32, s32
from graphgen.passes.experts.expert_choices import entries_of, fixed
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


# (builder, mixture, blocks) -> results f32 [N,B,H].
Compute = Callable[[Builder, ExpertCall, TokenBlocks], Value]


def gathered(b: Builder, call: ExpertCall, blocks: TokenBlocks) -> Value:
    """All blocks at once, with the matrices of their experts: [N,I,H] and [N,H,I]."""
    chosen = [entries_of(b, weight, blocks.experts) for weight in weights_of(call)]
    return mlp(b, call.attrs, blocks.rows, chosen, gathered_adapters(b, call, blocks))


def in_place(b: Builder, call: ExpertCall, blocks: TokenBlocks) -> Value:
    """All blocks at once, where block n is that of expert n."""
    adapters = in_place_adapters(b, call, blocks)
    return mlp(b, call.attrs, blocks.rows, weights_of(call), adapters)


def weights_of(call: ExpertCall) -> list[Value]:
    """The matrices, then the biases if there are any."""
    given = (call.gate, call.up, call.down, call.gate_bias, call.up_bias, call.down_bias)
    return [value for value in given if value is not None]


def mlp(
    b: Builder,
    attrs: Attrs,
    rows: Value,
    weights: Sequence[Value],
    adapters: ExpertAdapters | None = None,
) -> Value:
    """The results f32 of rows [N,B,H] with matrices of each block [N,...], or of [B,H] with one.

    Args:
        b: where to build.
        attrs: of the mixture.
        rows: tokens.
        weights: as :func:`weights_of` orders them.
        adapters: of the tokens.
    """
    gate, up, down, *biases = weights
    gate_bias, up_bias, down_bias = biases or (None, None, None)
    terms: tuple[Term | None, Term | None, Term | None] = (None, None, None)
    if adapters is not None:
        terms = adapters.of_all(b, 0) if rows.type.rank == 3 else adapters.of_one(b)
    first = _product(b, rows, gate, gate_bias, terms[0])
    second = _product(b, rows, up, up_bias, terms[1])
    hidden = gated(b, first, second, attrs, rows.dtype)
    return _product(b, hidden, down, down_bias, terms[2])


def _product(b: Builder, x: Value, matrix: Value, bias: Value | None, term: Term | None) -> Value:
    """``x matrix^T + term(x) + bias`` f32 of x [N,B,H], or of one block [B,H] with its matrix."""
    last = x.type.rank - 1
    batch: tuple[list[int], list[int]] = ([0], [0]) if last == 2 else ([], [])
    y = b.dot_general(x, matrix, ([last], [last]), batch, f32)
    y = y if term is None else y + term(x)
    return plus_bias(b, y, bias, [0, 2] if last == 2 else [1])
