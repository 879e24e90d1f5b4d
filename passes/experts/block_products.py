"""The MLPs of blocks of tokens: all at once with gathered matrices, or one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphgen.build import Builder
from graphgen.composites.expert_adapters import ExpertAdapters, Term
from graphgen.composites.mixture_of_experts import ExpertCall, gated, plus_bias
from graphgen.ir import Attrs, Value
from graphgen.ir.dtype import f32
from graphgen.passes.experts.block_adapters import gathered_adapters, in_place_adapters
from graphgen.passes.experts.expert_choices import entries_of
from graphgen.passes.experts.token_blocks import TokenBlocks

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
