"""Choices of experts that count: those of an expert that is here, and within its capacity."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.composites.mixture_of_experts import ExpertCall, tokens_before
from graphgen.ir import Dim, Value
from graphgen.ir.dtype import s32


def kept_choices(b: Builder, call: ExpertCall) -> Value:
    """Choices pred [T,K] that are computed: the expert is one of E, and not yet full."""
    first, end = b.full(0, call.indices.type), b.full(_fixed(call.count), call.indices.type)
    inside = b.binary(
        "and", b.compare(call.indices, first, "GE"), b.compare(call.indices, end, "LT")
    )
    if not call.capacity:
        return inside
    before = earlier_tokens(b, call)
    return b.binary("and", inside, b.compare(before, b.full(call.capacity, before.type), "LT"))


def earlier_tokens(b: Builder, call: ExpertCall) -> Value:
    """The number s32 [T,K] of earlier tokens that have the expert of each choice; 0 for none."""
    shape = (*call.indices.shape, call.count)
    experts = b.iota(s32, shape, 2)
    same = b.compare(b.broadcast_in_dim(call.indices, shape, [0, 1]), experts, "EQ")
    before = tokens_before(b, b.reduce(same, [1], "or"))
    wide = b.broadcast_in_dim(before, shape, [0, 2])
    return b.reduce(b.select(same, wide, b.full(0, wide.type)), [2], "add")


def clamped_indices(b: Builder, call: ExpertCall) -> Value:
    """The indices s32 [T,K] with those outside of 0..E-1 at its ends, to gather by."""
    first, last = b.full(0, call.indices.type), b.full(_fixed(call.count) - 1, call.indices.type)
    return b.binary("minimum", b.binary("maximum", call.indices, first), last)


def matrices_of(b: Builder, weight: Value, experts: Value) -> Value:
    """Entry ``experts[...]`` of a weight [E,...]: [...,...]."""
    outer = len(experts.shape)
    sizes: Sequence[Dim] = weight.shape[1:]
    return b.op(
        "gather",
        weight,
        experts,
        offset_dims=tuple(range(outer, outer + len(sizes))),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        index_vector_dim=outer,
        slice_sizes=(1, *sizes),
    )


def _fixed(dim: Dim) -> int:
    assert isinstance(dim, int)
    return dim
