"""Collective ops: communication between the ranks of the mesh."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Attrs, TensorType, tensor
from graphgen.ops.attr_types import GROUPS, INTEGER, choice
from graphgen.ops.linalg import REDUCERS
from graphgen.ops.opdef import attr, define, reducible_operand, require
from graphgen.ops.traits import Trait

KIND = attr("kind", choice(*REDUCERS))
REPLICA_GROUPS = attr("replica_groups", GROUPS)
Groups = tuple[tuple[int, ...], ...]
# Result elements are operand elements of some rank.
MOVES = (Trait.COLLECTIVE, Trait.DATA_MOVEMENT)


def _check_groups(groups: Groups) -> None:
    ranks = [rank for group in groups for rank in group]
    require(bool(groups) and all(groups), f"needs replica groups that are not empty, got {groups}")
    require(sorted(ranks) == list(range(len(ranks))), f"{groups} do not cover ranks 0..n-1 once")


def _group_size(groups: Groups) -> int:
    """The number of ranks per group, which must be equal for all groups."""
    _check_groups(groups)
    sizes = {len(group) for group in groups}
    require(len(sizes) == 1, f"{groups} differ in size")
    return sizes.pop()


def _dimension(types: Sequence[TensorType], attrs: Attrs, key: str) -> int:
    dim = attrs.integer(key)
    require(0 <= dim < types[0].rank, f"{key} {dim} of {types[0].text}", 0)
    return dim


def _divided(types: Sequence[TensorType], dim: int, parts: int) -> TensorType:
    """The type with one dimension divided by ``parts``."""
    shape = list(types[0].shape)
    size = shape[dim]
    if not isinstance(size, int) or size % parts:
        require(False, f"dimension {dim} of {types[0].text} does not divide into {parts} parts", 0)
    assert isinstance(size, int)
    shape[dim] = size // parts
    return tensor(types[0].dtype, shape)


@define("all_reduce", "operand", KIND, REPLICA_GROUPS, traits=(Trait.COLLECTIVE,))
def _all_reduce(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Combine the operands of the ranks of each group; all of them get the result.

    Example:
        %y = all_reduce(%x) kind=add replica_groups=[[0,1]] : f32[B,4]
    """
    _check_groups(attrs.groups("replica_groups"))
    reducible_operand(types, attrs.text("kind"))
    return (types[0],)


@define("all_gather", "operand", attr("dimension", INTEGER), REPLICA_GROUPS, traits=MOVES)
def _all_gather(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The operands of the ranks of each group one after the other, in the order of the group.

    Example:
        %y = all_gather(%x) dimension=1 replica_groups=[[0,1]] : f32[B,8]
    """
    parts = _group_size(attrs.groups("replica_groups"))
    dim = _dimension(types, attrs, "dimension")
    shape = list(types[0].shape)
    require(shape[dim] != 0, f"has nothing to gather along dimension {dim}", 0)
    shape[dim] = shape[dim] * parts
    return (tensor(types[0].dtype, shape),)


@define(
    "reduce_scatter",
    "operand",
    KIND,
    attr("dimension", INTEGER),
    REPLICA_GROUPS,
    traits=(Trait.COLLECTIVE,),
)
def _reduce_scatter(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Combine the operands of each group; the rank at place i of a group gets part i of the result.

    Example:
        %y = reduce_scatter(%x) kind=add dimension=1 replica_groups=[[0,1]] : f32[B,2]
    """
    parts = _group_size(attrs.groups("replica_groups"))
    reducible_operand(types, attrs.text("kind"))
    dim = _dimension(types, attrs, "dimension")
    require(types[0].shape[dim] != 0, f"has nothing to scatter along dimension {dim}", 0)
    return (_divided(types, dim, parts),)


@define(
    "all_to_all",
    "operand",
    attr("split_dimension", INTEGER),
    attr("concat_dimension", INTEGER),
    REPLICA_GROUPS,
    traits=MOVES,
)
def _all_to_all(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Part i of every operand of a group goes to the rank at place i, which joins what it gets.

    Operands are cut along ``split_dimension`` and joined along ``concat_dimension``, in the order
    of the group.

    Example:
        %y = all_to_all(%x) split_dimension=1 concat_dimension=0 replica_groups=[[0,1]] : f32[2*B,2]
    """
    parts = _group_size(attrs.groups("replica_groups"))
    part = _divided(types, _dimension(types, attrs, "split_dimension"), parts)
    shape = list(part.shape)
    dim = _dimension(types, attrs, "concat_dimension")
    shape[dim] = shape[dim] * parts
    return (tensor(part.dtype, shape),)


@define("collective_permute", "operand", attr("source_target_pairs", GROUPS), traits=MOVES)
def _collective_permute(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The target of each pair gets the operand of its source; a rank that is not a target: zeros.

    Example:
        %y = collective_permute(%x) source_target_pairs=[[0,1],[1,0]] : f32[B,4]
    """
    pairs = attrs.groups("source_target_pairs")
    require(all(len(pair) == 2 and min(pair) >= 0 for pair in pairs), f"{pairs} are not pairs")
    for what, ranks in zip(("source", "target"), zip(*pairs, strict=True), strict=False):
        require(len(set(ranks)) == len(ranks), f"a rank is a {what} twice in {pairs}")
    return (types[0],)
