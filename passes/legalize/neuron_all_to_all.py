"""Exchanges in the forms neuronx-cc accepts: along dimension 0, and between more than two ranks."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import RANK, Op, Value
from graphgen.ir.dtype import s32
from graphgen.passes.core import NoMatch, no_match, rule
from graphgen.passes.legalize.neuron_rank_input import rank_of


@rule("all_to_all")
def exchange_along_the_first(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """Parts change hands along dimension 0 alone: they go there before and back after.

    Given:
        arg %x : f32[4,6]
        %y = all_to_all(%x) split_dimension=1 concat_dimension=1 replica_groups=[[0,1]] : f32[4,6]

    Result:
        arg %x : f32[4,6]
        %0 = reshape(%x) shape=[4,2,3] : f32[4,2,3]
        %1 = transpose(%0) permutation=[1,0,2] : f32[2,4,3]
        %2 = all_to_all(%1) split_dimension=0 concat_dimension=0 replica_groups=[[0,1]] : f32[2,4,3]
        %3 = transpose(%2) permutation=[1,0,2] : f32[4,2,3]
        %y = reshape(%3) shape=[4,6] : f32[4,6]
    """
    (x,) = op.operands
    split, joined = op.attrs.integer("split_dimension"), op.attrs.integer("concat_dimension")
    if (split, joined) == (0, 0):
        return no_match("parts change hands along dimension 0", x)
    groups = op.attrs.groups("replica_groups")
    shape, ranks = x.type.dims, len(groups[0])
    cut = b.reshape(x, (*shape[:split], ranks, shape[split] // ranks, *shape[split + 1 :]))
    front = [split, *[dim for dim in range(len(shape) + 1) if dim != split]]
    moved = b.all_to_all(b.transpose(cut, front) if split else cut, groups, 0, 0)
    back = [*range(1, joined + 1), 0, *range(joined + 1, len(shape) + 1)]
    return [b.reshape(b.transpose(moved, back) if joined else moved, op.result.shape)]


@rule("all_to_all")
def exchange_of_two(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """Two ranks exchange halves by handing each other the one that is not theirs.

    With two physical cores to a logical one (LNC 2), an exchange of two ranks is refused.

    Given:
        arg %x : f32[4]
        %y = all_to_all(%x) split_dimension=0 concat_dimension=0 replica_groups=[[0,1]] : f32[4]

    Result:
        arg %x : f32[4]
        arg %rank : s32[1]
        %0 = constant() value=s32[2](0,1) : s32[2]
        %1 = reshape(%rank) shape=[1,1] : s32[1,1]
        %2 = gather(%0, %1) offset_dims=[] collapsed_slice_dims=[0] start_index_map=[0] \
index_vector_dim=1 slice_sizes=[1] : s32[1]
        %3 = reshape(%2) shape=[] : s32[]
        %4 = constant() value=s32[](0) : s32[]
        %5 = compare(%3, %4) direction=EQ : pred[]
        %6 = slice(%x) start_indices=[0] limit_indices=[2] : f32[2]
        %7 = slice(%x) start_indices=[2] limit_indices=[4] : f32[2]
        %8 = broadcast_in_dim(%5) shape=[2] : pred[2]
        %9 = select(%8, %7, %6) : f32[2]
        %10 = collective_permute(%9) source_target_pairs=[[0,1],[1,0]] : f32[2]
        %11 = select(%8, %6, %7) : f32[2]
        %12 = select(%8, %11, %10) : f32[2]
        %13 = select(%8, %10, %11) : f32[2]
        %y = concatenate(%12, %13) dimension=0 : f32[4]
    """
    (x,) = op.operands
    groups = op.attrs.groups("replica_groups")
    if len(groups[0]) != 2:
        return no_match(f"{len(groups[0])} ranks exchange parts", x)
    rank = rank_of(b)
    if rank is None:
        return no_match(f"the input called {RANK} is something else", depth=2)
    split, joined = op.attrs.integer("split_dimension"), op.attrs.integer("concat_dimension")
    place = {one: index for group in groups for index, one in enumerate(group)}
    table = b.literal([place[one] for one in range(len(place))], s32)
    index = b.op(
        "gather",
        table,
        b.reshape(rank, (1, 1)),
        offset_dims=(),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        index_vector_dim=1,
        slice_sizes=(1,),
    )
    first = b.compare(b.reshape(index, ()), b.literal(0, s32), "EQ")
    half = x.type.dims[split] // 2
    low, high = b.slice_dim(x, split, 0, half), b.slice_dim(x, split, half, 2 * half)
    here = b.broadcast_in_dim(first, low.shape, ())
    pairs = [pair for one, other in groups for pair in ((one, other), (other, one))]
    given = b.collective_permute(b.select(here, high, low), pairs)
    kept = b.select(here, low, high)
    parts = [b.select(here, kept, given), b.select(here, given, kept)]
    return [b.concatenate(parts, joined)]
