"""Partition: the logical program becomes the program of one rank, with explicit collectives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from graphgen.errors import GraphgenError
from graphgen.ir import (
    HELD_ROLES,
    Entry,
    Function,
    Module,
    Role,
    Sharding,
    Value,
)
from graphgen.option_words import EXCHANGE_ALL_TO_ALL, EXCHANGE_AUTO, EXPERT_EXCHANGES
from graphgen.passes.core import Pass, Rewriter, register
from graphgen.passes.core.options import choice
from graphgen.passes.sharding.collectives.expert_exchange import exchanged_axes
from graphgen.passes.sharding.divided_norms import divided_norms
from graphgen.passes.sharding.reshard.reshard_planner import ReshardPlanner
from graphgen.passes.sharding.solver.beam_search import ShardingSearch
from graphgen.passes.sharding.solver.sharding_plan import ShardingPlan, make_plans
from graphgen.passes.sharding.spec.mesh import Mesh, check_divides, fits, mesh_of
from graphgen.passes.sharding.spec.requested import requested_sharding, row_sharding
from graphgen.passes.sharding.spmd.partitioner import Partitioner
from graphgen.passes.sharding.spmd.sharded_interface import split_row
from graphgen.passes.weights.derived import PreparedValues


@register
@dataclass(frozen=True)
class Partition(Pass):
    """Cut the program to one rank: shapes become per rank, collectives move what others read.

    Layouts that are annotated, on rows of the interface or on values, are kept. How everything
    in between is divided follows from the ops, forward and backward: the cheapest program is taken,
    in bytes that a rank sends, where a collective and a rank's own work count as bytes too.
    Where costs are equal, fewer collectives and then less work decide. Every program takes
    ``%rank : s32[1]``. States keep their logical type in the interface, with functions that cut and
    join them.

    Weight-only values are computed from whole weights and sliced per rank at their first reader: a
    fact about a whole tensor, such as its largest element, is the same on all ranks.

    A norm over a dimension along which its weight is split is taken from a sum of squares that
    ranks add up.

    Options:
        latency: bytes that a collective counts as, beside those it moves.
        memory: bytes of its own memory that count as one that a rank sends; 0 compares what is
            sent first, and work only where that is the same.
        gather_weights: least tokens a row of the programs of prompts in which ranks may gather
            weights where they use them, if that sends less than gathering tokens; 0 for none.
        expert_exchange: how tokens that annotations split get to experts of other ranks, and back:
            all-gather and reduce-scatter, or an all-to-all each way, whose buffers have room for
            the worst case; auto for what sends less.
        beam: most ways to go on that are remembered between two ops; more find a cheaper program
            where many values are alive at once.

    Given:
        module @m level=canonical mesh=tp:2 {
          input %x : f32[1,4]
          weight %up : f32[6,4] sharding={tp,-}
          weight %down : f32[4,6] sharding={-,tp}
          output %y : f32[1,4]
        }

        func @f phase=decode {
          arg %x : f32[1,4]
          arg %up : f32[6,4]
          arg %down : f32[4,6]
          %h = dot_general(%x, %up) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[1,6]
          %y = dot_general(%h, %down) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 \
: f32[1,4]
          return y = %y
        }

    Result:
        module @m level=sharded mesh=tp:2 {
          input %x : f32[1,4]
          weight %up : f32[6,4] sharding={tp,-}
          weight %down : f32[4,6] sharding={-,tp}
          output %y : f32[1,4]
        }

        func @f phase=decode {
          arg %rank : s32[1]
          arg %x : f32[1,4]
          arg %up : f32[6,4]
          arg %down : f32[4,6]
          %0 = constant() value=s32[](0) : s32[]
          %1 = reshape(%rank) shape=[] : s32[]
          %2 = constant() value=s32[](3) : s32[]
          %3 = multiply(%1, %2) : s32[]
          %4 = dynamic_slice(%up, %3, %0) slice_sizes=[3,4] : f32[3,4]
          %h = dot_general(%x, %4) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[1,3]
          %5 = constant() value=s32[](0) : s32[]
          %6 = reshape(%rank) shape=[] : s32[]
          %7 = constant() value=s32[](3) : s32[]
          %8 = multiply(%6, %7) : s32[]
          %9 = dynamic_slice(%down, %5, %8) slice_sizes=[4,3] : f32[4,3]
          %y = dot_general(%h, %9) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[1,4]
          %10 = all_reduce(%y) kind=add replica_groups=[[0,1]] : f32[1,4]
          return y = %10
        }
    """

    name: ClassVar[str] = "partition"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    output_stage: ClassVar[str] = "sharded"
    requires: ClassVar[tuple[str, ...]] = ("raw-weights",)
    provides: ClassVar[tuple[str, ...]] = ("partitioned",)
    # A split sum is taken in another order.
    rounding: ClassVar[float] = 2e-2
    latency: int = 1 << 23
    memory: int = 4
    gather_weights: int = 0
    expert_exchange: str = choice(EXCHANGE_AUTO, EXPERT_EXCHANGES)
    beam: int = 192

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Plan and partition every program, then the interface."""
        search = self.search(module)
        mesh = search.mesh
        rules = (divided_norms(module),)
        for function in module.programs():
            rewriter.apply_rules(function, rules)
        plans = make_plans(module, search, self.gather_weights)
        if self.expert_exchange == EXCHANGE_ALL_TO_ALL:
            _check_exchanges(plans.values())
        for function, plan in plans.items():
            made = Function(function.name, phase=function.phase, dims=function.dims)
            Partitioner(module, function, made, rewriter, plan, search.planner).run()
            module.functions[function.name] = made
        for row in list(module.interface.values()):
            split_row(module, mesh, row)
        # Stopped half-way too, every program is one of a rank: what is left is whole on each.
        module.level = self.output_stage

    def search(self, module: Module) -> ShardingSearch:
        """The search over the mesh; checks annotated layouts (GG0304)."""
        mesh = mesh_of(module.mesh)
        for row in module.interface.values():
            _check_row(module, mesh, row)
        planner = ReshardPlanner(mesh, self.latency, self.memory)
        return ShardingSearch(mesh, planner, self.beam, exchange=self.expert_exchange)


def _check_exchanges(plans: Iterable[ShardingPlan]) -> None:
    """Require that some mixture exchanges its tokens (GG0302)."""
    choices = [item for plan in plans for item in plan.choices.items()]
    if not any(exchanged_axes(op, choice.strategy) for op, choice in choices):
        raise GraphgenError(
            "GG0302",
            f"partition: expert_exchange={EXCHANGE_ALL_TO_ALL}, and no tokens of a mixture are "
            "divided over ranks that divide its experts",
            help="give each rank experts of its own (moe_ep_degree) and a part of the tokens "
            "(rules=[prefill:sequence:tp], or ep*tp with several ranks a group), or leave it out",
        )


def _check_row(module: Module, mesh: Mesh, row: Entry) -> None:
    """Require that the annotated layouts exist on the mesh and divide (GG0304)."""
    args = [(function, function.arg(row.name)) for function in module.programs()]
    values = {value: function for function, value in args if value is not None}
    layouts = {value: requested_sharding(module, value) for value in values}
    for layout in {row_sharding(row), *layouts.values()}:
        _check_axes(mesh, row, layout)
    if row.role is Role.INPUT:
        # Inputs come whole, in sizes that programs may have bound.
        for value, layout in layouts.items():
            check_divides(mesh, row.name, value.type, layout)
        return
    if row.role is Role.OUTPUT:
        _check_output(row, row_sharding(row))
    if row.role not in HELD_ROLES:
        check_divides(mesh, row.name, row.physical, row_sharding(row))
        return
    for value, layout in layouts.items():
        if not fits(mesh, row.physical, layout) and not _only_prepared(
            module, values[value], value
        ):
            check_divides(mesh, row.name, row.physical, layout)


def _check_axes(mesh: Mesh, row: Entry, layout: Sharding) -> None:
    """Require that the mesh has the axes of a layout, and that it owes no sum (GG0304)."""
    for axis in (*layout.axes, *layout.partial):
        if axis not in mesh.axes:
            raise GraphgenError("GG0304", f"{row.name}: the mesh has no axis '{axis}'")
    if layout.partial:
        what = f"{row.role.value} {row.name} cannot lie {layout.text}, a sum not yet taken"
        raise GraphgenError("GG0304", what)


def _check_output(row: Entry, layout: Sharding) -> None:
    """An output has one type for all programs, which no part along a symbol has (GG0304)."""
    for size, axes in zip(row.physical.shape, layout.dims, strict=True):
        if axes and not isinstance(size, int):
            what = f"output {row.name} {row.physical.text} leaves whole along {size}"
            raise GraphgenError(
                "GG0304",
                f"{what}: programs of any {size} share its type, and a part of {size} is none",
                help=f"leave out the rule: every rank gets all of {row.name}, however its ops are "
                "split",
            )


def _only_prepared(module: Module, function: Function, weight: Value) -> bool:
    """True if a program uses only values derived from a weight, which have to divide."""
    prepared = PreparedValues(module, function, {}, HELD_ROLES)
    return all(prepared.of_weights(op.results[0]) for op in weight.users)
