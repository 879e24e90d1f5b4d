"""The forms neuronx-cc takes, by what AWS publishes about it: the rules of each target."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import bf16, f8e4m3fn
from graphgen.passes.core import NoMatch, Rule, no_match, rule
from graphgen.passes.legalize.neuron_erf import erf_by_quotients
from graphgen.passes.legalize.neuron_integers import (
    integer_dot,
    integer_extreme_over_ranks,
    integer_scatter_add,
    integer_sum_over_ranks,
    wide_shift,
)
from graphgen.passes.legalize.neuron_memory import (
    gather_of_elements,
    gather_of_rows,
    scatter_of_rows,
)


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


@rule("dot_general")
def widened_f8_dot(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """Before trn3 there are no products of f8e4m3fn (NCC_EVRF051): bf16 holds its values exactly.

    Given:
        arg %x : f8e4m3fn[2,4]
        arg %w : f8e4m3fn[3,4]
        %y = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[2,3]

    Result:
        arg %x : f8e4m3fn[2,4]
        arg %w : f8e4m3fn[3,4]
        %0 = convert(%x) dtype=bf16 : bf16[2,4]
        %1 = convert(%w) dtype=bf16 : bf16[3,4]
        %y = dot_general(%0, %1) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[2,3]
    """
    if op.operands[0].dtype is not f8e4m3fn:
        return no_match(f"the operands are {op.operands[0].dtype}", op.operands[0])
    wide = [b.convert(x, bf16) for x in op.operands]
    return [b.emit("dot_general", wide, dict(op.attrs)).result]


_EVERYWHERE: tuple[Rule, ...] = (
    integer_dot,
    integer_sum_over_ranks,
    integer_extreme_over_ranks,
    integer_scatter_add,
    wide_shift,
    exchange_along_the_first,
    gather_of_elements,
    gather_of_rows,
    scatter_of_rows,
    erf_by_quotients,
)
RULES: dict[str, tuple[Rule, ...]] = {
    "inf2": (*_EVERYWHERE, widened_f8_dot),
    "trn1": (*_EVERYWHERE, widened_f8_dot),
    "trn2": (*_EVERYWHERE, widened_f8_dot),
    "trn3": _EVERYWHERE,
}
