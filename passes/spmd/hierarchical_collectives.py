"""Collectives over several nodes in stages: inside of each node, and between nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from graphgen.analysis.collective_traffic import (
    Groups,
    LevelTraffic,
    flat_traffic,
    groups_of,
    ring_traffic,
    traffic_seconds,
)
from graphgen.build import Builder
from graphgen.config.fields import option, words
from graphgen.errors import GraphgenError
from graphgen.ir import Module, Op, Value
from graphgen.ops import OPS
from graphgen.passes.core import NoMatch, Pass, Rewriter, Rule, no_match, register, rule
from graphgen.targets import LinkLevel, accelerator_names, node_levels, target_names

# Groups of ranks, as attributes have them.
_Ranks = tuple[tuple[int, ...], ...]
_STAGED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
# Collectives that gloo does in a ring of all ranks. It exchanges in a mesh, and scatters by
# recursive halving, in which the nearest ranks send most (XLA: cpu/collectives/gloo_communicator).
_RINGS = ("all_reduce", "all_gather")


@register
@dataclass(frozen=True)
class HierarchicalCollectives(Pass):
    """Split collectives across nodes into one inside of each node and one between nodes.

    A sum is scattered inside of each node, summed between the ranks of one place in all nodes, and
    gathered inside; gathering begins between nodes, where it sends less, scattering ends there, and
    an exchange is one of both. Between nodes each rank then has a part of what its node sends, and
    the steps that wait for the network are as many as nodes, not as ranks.

    A collective is rewritten if its stages take less time on the links of the target, where each is
    a ring or a mesh of all its ranks (:mod:`graphgen.analysis.collective_traffic`). On the CPU,
    whose links have no figures, it is if they send less between nodes, or in fewer steps, than one
    of gloo's rings. AWS's runtime makes stages of its own: this is for engines that do not.

    Options:
        nodes: that share the ranks evenly, in order.
        target: the device whose links there are; ``graphgen cost --nodes`` shows them.
        instance: the type of each node, empty for the usual one.
        always: also where stages take as long or longer.

    Given:
        module @m level=sharded mesh=tp:4 {
        }

        func @f {
          arg %rank : s32[1]
          arg %x : f32[2,3]
          %y = all_reduce(%x) kind=add replica_groups=[[0,1,2,3]] : f32[2,3]
          return y = %y
        }

    Result (``hierarchical-collectives{always=true}``):
        module @m level=sharded mesh=tp:4 {
        }

        func @f {
          arg %rank : s32[1]
          arg %x : f32[2,3]
          %0 = reshape(%x) shape=[6] : f32[6]
          %1 = reduce_scatter(%0) kind=add dimension=0 replica_groups=[[0,1],[2,3]] : f32[3]
          %2 = all_reduce(%1) kind=add replica_groups=[[0,2],[1,3]] : f32[3]
          %3 = all_gather(%2) dimension=0 replica_groups=[[0,1],[2,3]] : f32[6]
          %y = reshape(%3) shape=[2,3] : f32[2,3]
          return y = %y
        }
    """

    name: ClassVar[str] = "hierarchical-collectives"
    input_stages: ClassVar[tuple[str, ...]] = ("sharded", "target")
    # A sum of sums is taken in another order.
    rounding: ClassVar[float] = 2e-2
    nodes: int = 2
    target: str = option(words(target_names), "cpu")
    instance: str = ""
    always: bool = False

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Every collective of every function, the outermost level of links first.

        Raises:
            GraphgenError: GG0302 for less than two nodes, and for an instance without figures of a
                network; GG0705 for ranks that the nodes cannot share.
        """
        if self.nodes < 2:
            raise GraphgenError("GG0302", f"{self.name}: nodes={self.nodes} is below 2")
        ops = (op for function in module.functions.values() for op in function.block)
        if not any(OPS[op.name].collective for op in ops):
            return
        levels = node_levels(self.target, self.nodes, self.instance, module.ranks)
        rings = self.target not in accelerator_names()
        for level in reversed(levels[1:]):
            staged = _in_stages(module, levels, level.part, rings, self.always)
            for function in module.functions.values():
                rewriter.apply_rules(function, (staged,))


def _in_stages(
    module: Module, levels: Sequence[LinkLevel], part: int, rings: bool, always: bool
) -> Rule:
    @rule(*_STAGED)
    def in_stages(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """A collective is one between nodes, of those inside of each."""
        if not op.result.type.static:
            return no_match("its sizes are not known yet", op.result)
        groups = groups_of(module, op)
        stages = _stages(op, _ordered(op, groups), part)
        if isinstance(stages, str):
            return no_match(stages, op.result)
        why = "" if always else _why_not(op, groups, stages, levels, rings)
        if why:
            return no_match(why, op.operands[0])
        return [_MAKERS[op.name](b, op, *stages)]

    return in_stages


def _ordered(op: Op, groups: Groups) -> Groups:
    """The groups, each in an order in which the op means the same: any for a sum."""
    return [sorted(group) for group in groups] if op.name == "all_reduce" else groups


def _stages(op: Op, groups: Groups, part: int) -> tuple[_Ranks, _Ranks] | str:
    """Groups inside of parts, and groups of one rank of each part; or why there are none."""
    first = groups[0]
    inside = sum([rank // part == first[0] // part for rank in first])
    if inside == len(first):
        return "all ranks of a group are on one node"
    if inside == 1:
        return "a group has one rank of a node"
    within: list[tuple[int, ...]] = []
    between: list[tuple[int, ...]] = []
    for group in groups:
        rows = [tuple(group[at : at + inside]) for at in range(0, len(group), inside)]
        nodes = [{rank // part for rank in row} for row in rows]
        alike = all(len(row) == inside for row in rows) and all(len(node) == 1 for node in nodes)
        if not alike or len(set[int]().union(*nodes)) != len(rows):
            return "its groups do not have as many ranks of each node, one after the other"
        within += rows
        between += zip(*rows, strict=True)
    if op.name == "all_reduce" and prod(op.result.type.dims) % inside:
        return f"{op.result.type.text} does not divide over {inside} ranks"
    return tuple(within), tuple(between)


def _why_not(
    op: Op,
    groups: Groups,
    stages: tuple[_Ranks, _Ranks],
    levels: Sequence[LinkLevel],
    rings: bool,
) -> str:
    """Why stages would not be better; empty where they are."""
    if rings and op.name not in _RINGS:
        return f"gloo has no ring for {op.name}"
    measure = ring_traffic if rings else flat_traffic
    size = max(op.operands[0].type.nbytes, op.result.type.nbytes)
    within, between = stages
    # Between nodes a rank has a part of what it has inside of one.
    part = size if op.name == "all_to_all" else size / len(within[0])
    near = ("reduce_scatter", "all_gather") if op.name == "all_reduce" else (op.name,)
    made = [measure(name, size, within, levels) for name in near]
    made.append(measure(op.name, part, between, levels))
    whole = measure(op.name, size, groups, levels)
    if rings:
        return _why_no_less(whole[-1], [each[-1] for each in made])
    before, after = traffic_seconds(whole), sum(map(traffic_seconds, made))
    return "" if after < before else f"takes {1e6 * before:.1f} us, in stages {1e6 * after:.1f} us"


def _why_no_less(whole: LevelTraffic, stages: Sequence[LevelTraffic]) -> str:
    """Why stages do not send less between nodes, or in fewer steps."""
    sent, steps = sum(each.bytes for each in stages), sum(each.steps for each in stages)
    if sent <= whole.bytes and steps <= whole.steps and (sent, steps) != (whole.bytes, whole.steps):
        return ""
    return f"sends {whole.bytes} bytes in {whole.steps} steps, in stages {sent} in {steps}"


def _all_reduce(b: Builder, op: Op, within: _Ranks, between: _Ranks) -> Value:
    x, kind = op.operands[0], op.attrs.text("kind")
    flat = b.reshape(x, (x.type.size,))
    mine = _emit(b, "reduce_scatter", flat, within, kind=kind, dimension=0)
    summed = _emit(b, "all_reduce", mine, between, kind=kind)
    return b.reshape(_emit(b, "all_gather", summed, within, dimension=0), op.result.shape)


def _all_gather(b: Builder, op: Op, within: _Ranks, between: _Ranks) -> Value:
    (x,), dim = op.operands, op.attrs.integer("dimension")
    rows = b.reshape(x, (1, x.type.size))
    rows = _emit(b, "all_gather", rows, between, dimension=0)
    rows = _emit(b, "all_gather", rows, within, dimension=0)
    apart = b.reshape(rows, (len(within[0]), len(between[0]), *x.shape))
    # Nodes, then ranks of a node, before the dimension along which they are joined.
    order = [*range(2, dim + 2), 1, 0, *range(dim + 2, len(x.shape) + 2)]
    return b.reshape(b.transpose(apart, order), op.result.shape)


def _reduce_scatter(b: Builder, op: Op, within: _Ranks, between: _Ranks) -> Value:
    (x,), dim, kind = op.operands, op.attrs.integer("dimension"), op.attrs.text("kind")
    parts = _parts_first(b, x, dim, len(between[0]), len(within[0]))
    mine = _emit(b, "reduce_scatter", parts, within, kind=kind, dimension=0)
    mine = b.reshape(mine, mine.shape[1:])
    return b.reshape(
        _emit(b, "reduce_scatter", mine, between, kind=kind, dimension=0), op.result.shape
    )


def _all_to_all(b: Builder, op: Op, within: _Ranks, between: _Ranks) -> Value:
    (x,), dim = op.operands, op.attrs.integer("split_dimension")
    nodes, ranks, joined = len(between[0]), len(within[0]), op.attrs.integer("concat_dimension")
    parts = _parts_first(b, x, dim, nodes, ranks)
    along = {"split_dimension": 0, "concat_dimension": 0}
    near = _emit(b, "all_to_all", parts, within, **along)
    swapped = b.transpose(near, [1, 0, *range(2, len(near.shape))])
    found = _emit(b, "all_to_all", swapped, between, **along)
    shape = list(x.type.dims)
    shape[dim] = op.result.type.dims[dim] if dim != joined else x.type.dims[dim] // (nodes * ranks)
    rows = b.reshape(found, (nodes * ranks, *shape))
    order = [*range(1, joined + 1), 0, *range(joined + 1, len(shape) + 1)]
    return b.reshape(b.transpose(rows, order), op.result.shape)


def _parts_first(b: Builder, x: Value, dim: int, nodes: int, ranks: int) -> Value:
    """The parts of a dimension as [ranks, nodes, ...]: by the place in a node, then by the node."""
    before, after = x.type.dims[:dim], x.type.dims[dim + 1 :]
    apart = b.reshape(x, (*before, nodes, ranks, x.type.dims[dim] // (nodes * ranks), *after))
    rest = [place for place in range(len(apart.shape)) if place not in (dim, dim + 1)]
    return b.transpose(apart, [dim + 1, dim, *rest])


def _emit(b: Builder, name: str, x: Value, groups: _Ranks, **attrs: int | str) -> Value:
    return b.emit(name, (x,), {**attrs, "replica_groups": groups}).result


_MAKERS = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
}
