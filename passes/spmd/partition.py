"""Partition: the logical program becomes the program of one rank, with explicit collectives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphgen.build import Builder
from graphgen.composites.basics import rms_norm
from graphgen.config.fields import option, words
from graphgen.config.option_words import EXCHANGE_ALL_TO_ALL, EXCHANGE_AUTO, EXPERT_EXCHANGES
from graphgen.errors import GraphgenError
from graphgen.ir import (
    HELD_ROLES,
    Entry,
    Function,
    Module,
    Op,
    Role,
    Sharding,
    TensorType,
    Value,
    replicated,
    tensor,
)
from graphgen.passes.core import NoMatch, Pass, Rewriter, Rule, no_match, register, rule
from graphgen.passes.sharding.beam_search import ShardingSearch
from graphgen.passes.sharding.expert_exchange import exchanged_axes
from graphgen.passes.sharding.mesh import Mesh, check_divides, fits, local_shape, mesh_of
from graphgen.passes.sharding.requested_layout import requested_sharding, row_sharding
from graphgen.passes.sharding.reshard_ops import SLICE, ReshardStep, emit_step
from graphgen.passes.sharding.reshard_planner import ReshardPlanner
from graphgen.passes.sharding.sharding_plan import ShardingPlan, make_plans
from graphgen.passes.spmd.partitioner import Partitioner
from graphgen.passes.weights.derived import PreparedValues
from graphgen.passes.weights.layout_change import repack


def divided_norms(module: Module) -> Rule:
    """The rule for the programs of a module: the norm of a weight that is split is taken apart.

    ``rms_norm`` needs rows as a whole; the sum of squares in its decomposition does not, and where
    its weight is split, so are the rows: one number a row is sent in the place of the row.
    """

    @rule("rms_norm")
    def sum_of_squares(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """``rms_norm(x) = x / sqrt(sum(x^2) / E + epsilon) * weight``."""
        weight = op.operands[1]
        if not requested_sharding(module, weight).dims[0]:
            return no_match("its weight is whole on every rank", weight)
        return rms_norm(b, op.operands, op.attrs)

    return sum_of_squares


def split_row(module: Module, mesh: Mesh, row: Entry) -> None:
    """Give a split state or output the type of one rank's part, and functions for the others."""
    layout = row.sharding
    if layout is None or layout.replicated or row.role not in (Role.STATE, Role.OUTPUT):
        return
    local = tensor(row.physical.dtype, local_shape(mesh, row.physical, layout))
    label = _label(mesh, layout)
    if row.role is Role.STATE:
        _split_state(module, mesh, row, local, label)
        return
    unpack = f"unpack.{row.logical.text_name}.{label}"
    if unpack not in module.functions:
        function = module.add(Function(unpack))
        stacked = tensor(local.dtype, (mesh.ranks, *local.shape))
        parts = function.block.add_arg(stacked, "parts")
        with Builder(function) as b:
            joined = _joined(b, mesh, layout, parts, row.physical)
            function.outputs = [("whole", b.reshape(joined, row.logical.shape))]
    module.interface[row.name] = row.with_physical(local, "", unpack)


def _split_state(module: Module, mesh: Mesh, row: Entry, local: TensorType, label: str) -> None:
    layout, whole = row.sharding, row.physical
    assert layout is not None
    step = ReshardStep(SLICE, replicated(whole.rank), layout)

    def pack(b: Builder, part: Value, rank: Value) -> Value:
        return emit_step(b, mesh, rank, part, step)

    def unpack(b: Builder, parts: Value) -> Value:
        return b.reshape(_joined(b, mesh, layout, parts, whole), (1, *whole.shape))

    repack(module, row, local, label, (pack, unpack), mesh.ranks)


def _label(mesh: Mesh, layout: Sharding) -> str:
    """The layout in letters a function's name may have: ``dim2``, or ``dim0-dp.dim2-tp``."""
    cut = [(dim, axes) for dim, axes in enumerate(layout.dims) if axes]
    if len(cut) == 1 and len(mesh.axes) == 1:
        return f"dim{cut[0][0]}"
    return ".".join(f"dim{dim}-{'-'.join(axes)}" for dim, axes in cut)


def _joined(b: Builder, mesh: Mesh, layout: Sharding, parts: Value, whole: TensorType) -> Value:
    """Parts [ranks, ...] as the whole: each axis moves before the dimension it cuts."""
    local = parts.shape[1:]
    grid = b.reshape(parts, (*mesh.axes.values(), *local))
    names = list(mesh.axes)
    for axis in [axis for axis in names if axis not in layout.axes]:
        # All along this axis hold the same: take the first.
        dim = names.index(axis)
        first = b.slice_dim(grid, dim, 0, 1)
        names.pop(dim)
        grid = b.reshape(first, (*first.shape[:dim], *first.shape[dim + 1 :]))
    order: list[int] = []
    for dim, axes in enumerate(layout.dims):
        order += [*[names.index(axis) for axis in axes], len(names) + dim]
    return b.reshape(b.transpose(grid, order), whole.shape)


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
    expert_exchange: str = option(words(*EXPERT_EXCHANGES), EXCHANGE_AUTO)
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
