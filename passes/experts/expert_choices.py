"""Select the routed choices to compute: of local experts, within their capacity."""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.build.range_check import in_range
from graphgen.composites.experts import ExpertCall, tokens_before
from graphgen.ir import Dim, Value
from graphgen.ir.dtype import pred


def kept_choices(b: Builder, call: ExpertCall) -> Value:
    """Choices pred [T,K] that are computed: the expert is one of E, and not yet full."""
    return choices_within(b, call.indices, fixed(call.count), call.capacity)


def choices_within(b: Builder, indices: Value, experts: int, capacity: int) -> Value:
    """Choices s32 [T,K] of one of E experts, and among the first of it where it has a capacity."""
    inside = in_range(b, indices, experts)
    if not capacity:
        return inside
    before = _earlier(b, indices, experts)
    return b.binary("and", inside, b.compare(before, b.full(capacity, before.type), "LT"))


def earlier_tokens(b: Builder, call: ExpertCall) -> Value:
    """The number s32 [T,K] of earlier tokens that have the expert of each choice; 0 for none."""
    return _earlier(b, call.indices, call.count)


def at_choices(b: Builder, call: ExpertCall, x: Value) -> Value:
    """The entry of s32 [T,E] at the expert of each choice: s32 [T,K], 0 for an expert elsewhere."""
    return _at(b, call.indices, x)


def _earlier(b: Builder, indices: Value, experts: Dim) -> Value:
    """As :func:`earlier_tokens`, of choices s32 [T,K] of E experts."""
    chosen = b.reduce(b.one_hot(indices, experts, pred), [1], "or")
    return _at(b, indices, tokens_before(b, chosen))


def _at(b: Builder, indices: Value, x: Value) -> Value:
    """As :func:`at_choices`, of choices s32 [T,K]."""
    same = b.one_hot(indices, x.shape[1], pred)
    wide = b.broadcast_in_dim(x, same.shape, [0, 2])
    return b.reduce(b.select(same, wide, b.full(0, wide.type)), [2], "add")


def clamped_indices(b: Builder, call: ExpertCall) -> Value:
    """The indices s32 [T,K] with those outside of 0..E-1 at its ends, to gather by."""
    first, last = b.full(0, call.indices.type), b.full(fixed(call.count) - 1, call.indices.type)
    return b.binary("minimum", b.binary("maximum", call.indices, first), last)


def entries_of(b: Builder, x: Value, numbers: Value) -> Value:
    """Entries [N,...] of x [E,...] by their numbers s32 [N]."""
    return b.op(
        "gather",
        x,
        numbers,
        offset_dims=tuple(range(1, x.type.rank)),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        index_vector_dim=1,
        slice_sizes=(1, *x.shape[1:]),
    )


def fixed(dim: Dim) -> int:
    """The size as a number; programs are specialized."""
    assert isinstance(dim, int)
    return dim
