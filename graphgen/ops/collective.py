"""Ops that talk to the other ranks of the program."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Attrs, TensorType
from graphgen.ops.linalg import REDUCERS
from graphgen.ops.opdef import Attr, define, number_operand, require


@define(
    "all_reduce",
    "operand",
    Attr("kind", "text", choices=REDUCERS),
    Attr("replica_groups", "groups"),
    collective=True,
)
def _all_reduce(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Combine the operands of the ranks of each group; all of them get the result.

    Example:
        %y = all_reduce(%x) kind=add replica_groups=[[0,1]] : f32[B,4]
    """
    groups = attrs.groups("replica_groups")
    ranks = [rank for group in groups for rank in group]
    require(bool(groups) and all(groups), f"needs replica groups that are not empty, got {groups}")
    require(sorted(ranks) == list(range(len(ranks))), f"{groups} do not cover ranks 0..n-1 once")
    number_operand(types)
    return (types[0],)
