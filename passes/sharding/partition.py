"""Partition: the logical program becomes the program of one rank, with explicit collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import (
    RANK,
    Entry,
    Function,
    Loc,
    Module,
    Op,
    Role,
    Sharding,
    Value,
    replicated,
    sharding,
    tensor,
)
from graphgen.ir.dtype import s32
from graphgen.ir.loc import UNKNOWN
from graphgen.passes.core import Pass, Rewriter, register
from graphgen.passes.core.relation import Sharded
from graphgen.passes.sharding.forms import Here, emit_part
from graphgen.passes.sharding.interface import split_row
from graphgen.passes.sharding.mesh import Mesh, check_divides, fits, local_shape, mesh_of
from graphgen.passes.sharding.plan import Plan, asked, make_plans
from graphgen.passes.sharding.routes import Routes
from graphgen.passes.sharding.search import Choice, Search
from graphgen.passes.sharding.steps import LOCAL, SLICE, Step, emit_step
from graphgen.passes.sharding.strategies import whole_strategy
from graphgen.passes.weights.derived import PreparedValues


@register
@dataclass(frozen=True)
class Partition(Pass):
    """Per-rank shapes: what was asked to be split is, and collectives bring it where it is read.

    Layouts that somebody asked for, on rows of the interface or on values, are kept. How everything
    in between is divided follows from the ops, forward and backward: the cheapest program is taken,
    in bytes that a rank sends, where a collective and a rank's own work count as bytes too.
    Where costs are equal, fewer collectives and then less work decide. Every program takes
    ``%rank : s32[1]``. States keep their logical type in the interface, with functions that cut and
    join them.

    What is made of weights alone is made of whole weights and cut where the rest of the program
    reads it: a fact about a whole tensor, such as its largest element, is the same on all ranks.

    Options:
        latency: bytes that a collective counts as, beside those it moves.
        memory: bytes of its own memory that count as one that a rank sends; 0 compares what is
            sent first, and work only where that is the same.
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
    beam: int = 192

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Plan and partition every program, then the interface."""
        search = self.search(module)
        mesh = search.mesh
        for function, plan in make_plans(module, search).items():
            made = Function(function.name, phase=function.phase, dims=function.dims)
            Partitioner(module, function, made, rewriter, plan, search.routes).run()
            module.functions[function.name] = made
        for row in list(module.interface.values()):
            split_row(module, mesh, row)
        # Stopped half-way too, every program is one of a rank: what is left is whole on each.
        module.level = self.output_stage

    def search(self, module: Module) -> Search:
        """What plans are made with; the layouts asked for are possible (GG0304 otherwise)."""
        mesh = mesh_of(module.mesh)
        for row in module.interface.values():
            _check_row(module, mesh, row)
        return Search(mesh, Routes(mesh, self.latency, self.memory), self.beam)


def _check_row(module: Module, mesh: Mesh, row: Entry) -> None:
    """The layout asked for must be one of the mesh and divide (GG0304)."""
    layout = asked(row)
    for axis in (*layout.axes, *layout.partial):
        if axis not in mesh.axes:
            raise GraphgenError("GG0304", f"{row.name}: the mesh has no axis '{axis}'")
    if layout.partial:
        what = f"{row.role.value} {row.name} cannot lie {layout.text}, a sum not yet taken"
        raise GraphgenError("GG0304", what)
    if row.role is Role.INPUT:
        # Inputs come whole, in sizes that programs may have bound.
        args = [function.arg(row.name) for function in module.programs()]
        for value in filter(None, args):
            check_divides(mesh, row.name, value.type, layout)
        return
    if row.role is Role.OUTPUT:
        _check_output(row, layout)
    if not fits(mesh, row.physical, layout) and not _only_prepared(module, row):
        check_divides(mesh, row.name, row.physical, layout)


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


def _only_prepared(module: Module, row: Entry) -> bool:
    """Whether programs read no more of a weight than what they make of it, which has to divide."""
    if row.role is not Role.WEIGHT:
        return False
    for function in module.programs():
        value, prepared = function.arg(row.name), PreparedValues(module, function, {})
        for op in value.users if value is not None else ():
            if not prepared.of_weights(op.results[0]):
                return False
    return True


@dataclass(frozen=True, slots=True)
class Moved:
    """A value that was brought into another layout.

    Attributes:
        value: of the source.
        start, target: the layouts.
        steps: from one to the other.
    """

    value: Value
    start: Sharding
    target: Sharding
    steps: tuple[Step, ...]


@dataclass(slots=True)
class Partitioner:
    """Builds one program of a rank.

    Attributes:
        plan: how each op is divided.
        whole: by value of the source, what every rank has of it before it is cut.
        parts: by value of the source, what this rank has of it, in each layout made so far.
        made: ops made for the op that is being divided.
        moves: what was brought from one layout into another so far.
    """

    module: Module
    source: Function
    target: Function
    rewriter: Rewriter
    plan: Plan
    routes: Routes
    whole: dict[Value, Value] = field(default_factory=dict[Value, Value])
    parts: dict[Value, dict[Sharding, Value]] = field(
        default_factory=dict[Value, dict[Sharding, Value]]
    )
    made: list[Op] = field(default_factory=list[Op])
    moves: list[Moved] = field(default_factory=list[Moved])

    @property
    def mesh(self) -> Mesh:
        """The ranks."""
        return self.routes.mesh

    def run(self) -> None:
        """Arguments, ops, outputs."""
        if not self.rewriter.exhausted:
            self.rewriter.note(self.source, "program-of-a-rank")
        self.target.block.add_arg(tensor(s32, (1,)), RANK)
        for value in self.source.args:
            self.argument(value)
        for op in self.source.block:
            if op in self.plan.prepared:
                self.prepare(op)
            else:
                self.op(op)
        for (name, value), layout in zip(self.source.outputs, self.plan.outputs, strict=True):
            self.target.outputs.append((name, self.part(value, layout, UNKNOWN)))

    def argument(self, value: Value) -> None:
        """Inputs and weights come whole; states come as the rank holds them."""
        row = self.module.interface[value.name or ""]
        layout = asked(row)
        if row.role is Role.STATE:
            shape = local_shape(self.mesh, value.type, layout)
            arg = self.target.block.add_arg(tensor(value.dtype, shape), value.name or "")
            self.parts[value] = {layout: arg}
            self._deliver(value)
        else:
            arg = self.whole[value] = self.target.block.add_arg(value.type, value.name or "")
        self._copied(value, arg)

    def prepare(self, op: Op) -> None:
        """An op on weights alone: as it is, on whole tensors."""
        b = Builder(self.target, loc=op.loc)
        operands = [self._whole(value, op.loc) for value in op.operands]
        made = b.emit(op.name, operands, dict(op.attrs))
        for old, new in zip(op.results, made.results, strict=True):
            new.name = old.name
            self.whole[old] = new
            self._copied(old, new)

    def _whole(self, value: Value, where: Loc) -> Value:
        found = self.whole.get(value)
        return found or self.part(value, replicated(value.type.rank), where)

    def op(self, op: Op) -> None:
        """One op as planned, or whole on every rank once the fuel is used up."""
        choice = self.plan.choices[op]
        if not choice.strategy.whole and self.rewriter.exhausted:
            whole = whole_strategy(op)
            choice = Choice(whole, tuple((w,) for w in whole.wanted), ((),) * len(op.results))
        self.made = list[Op]()
        operands: list[Value] = []
        for value, targets in zip(op.operands, choice.acquired, strict=True):
            found = [self.part(value, layout, op.loc) for layout in targets]
            operands.append(found[-1])
        strategy = choice.strategy
        here = Here(self._builder(op.loc), self.mesh, self.target.args[0])
        shapes = [
            local_shape(self.mesh, value.type, layout)
            for value, layout in zip(op.results, strategy.given, strict=True)
        ]
        made = emit_part(here, op, operands, strategy, shapes)
        for old, new, layout in zip(op.results, made, strategy.given, strict=True):
            new.name = old.name
            self.parts[old] = {layout: new}
            if strategy.whole:
                self._copied(old, new)
        for value, targets in zip(op.results, choice.delivered, strict=True):
            self._keep_pinned(value, op.loc)
            for layout in targets:
                self.part(value, layout, op.loc)
            self._deliver(value)
        if not strategy.whole:
            pairs = zip(op.results, made, map(Sharded, strategy.given), strict=True)
            related = tuple(pairs)
            self.rewriter.note(self.target, "divide", made[0].op, self.made, related)

    def _builder(self, loc: Loc) -> Builder:
        """Appends to the program of a rank, and to what is made for one op."""
        b = Builder(self.target, loc=loc)
        b.made = self.made
        return b

    def _copied(self, value: Value, *copies: Value) -> None:
        """A value goes on as this, on this rank; what is made beside that is made for it."""
        for copy in copies:
            self.rewriter.copied({value: copy})
            if copy.op in self.made:
                self.made.remove(copy.op)

    def _keep_pinned(self, value: Value, where: Loc) -> None:
        """A value that was said to lie one way is there in that way only, for those who read it."""
        pin = self.plan.pins.get(value)
        if pin is not None:
            self.parts[value] = {pin: self.part(value, pin, where)}

    def _deliver(self, value: Value) -> None:
        """A value from outside is brought where it will leave the program."""
        for layout in self.plan.delivered.get(value, ()):
            self.part(value, layout, UNKNOWN)

    def part(self, value: Value, layout: Sharding, where: Loc) -> Value:
        """What this rank has of a value in a layout, brought there if it is not yet.

        A rank cuts where the part is read first, which is ``where``; collectives belong to the op
        that made the value.
        """
        parts = self.parts.get(value)
        if parts is None:
            parts = self.parts[value] = self._first_parts(value, where)
            self._copied(value, *parts.values())
            self._deliver(value)
        if layout not in parts:
            start = self.routes.best(value.type, parts, layout)
            route = self.routes.find(value.type, start, layout)
            assert route is not None, f"{value!r}: {start.text} cannot become {layout.text}"
            self.moves.append(Moved(value, start, layout, route.steps))
            made = parts[start]
            for step in _merged(route.steps):
                made = self._step(made, step, value, where)
                parts[step.after] = made
                self._copied(value, made)
        return parts[layout]

    def _first_parts(self, value: Value, where: Loc) -> dict[Sharding, Value]:
        """A weight or an input as it was asked for, cut from the whole."""
        whole, rank = self.whole[value], replicated(value.type.rank)
        pin = self.plan.pins.get(value, rank)
        if pin is rank:
            return {rank: whole}
        check_divides(self.mesh, value.name or "a value", value.type, pin)
        take = whole.producer("take")
        if take is not None and pin.dims[take.attrs.integer("dimension")]:
            return {pin: self._own_blocks(take, pin, where)}
        return {pin: self._step(whole, Step(SLICE, rank, pin), value, where)}

    def _own_blocks(self, take: Op, layout: Sharding, where: Loc) -> Value:
        """This rank's part of what is taken: its own blocks only, so that it reads no others."""
        operand, blocks = take.operands
        dim = take.attrs.integer("dimension")
        along = sharding((layout.dims[dim],))
        name = f"the blocks taken from {operand.name}"
        check_divides(self.mesh, name, blocks.type, along)
        mine = self._step(blocks, Step(SLICE, replicated(1), along), take.result, where)
        b = self._builder(where.through(self.rewriter.pass_name))
        taken = b.take(operand, mine, dim, take.attrs.integer("block"))
        rest = sharding([() if at == dim else axes for at, axes in enumerate(layout.dims)])
        if rest.replicated:
            return taken
        return self._step(taken, Step(SLICE, replicated(taken.type.rank), rest), taken, where)

    def _step(self, made: Value, step: Step, value: Value, where: Loc) -> Value:
        own = where if step.kind in LOCAL or value.op is None else value.op.loc
        b = self._builder(own.through(self.rewriter.pass_name))
        return emit_step(b, self.mesh, self.target.args[0], made, step)


def _merged(steps: Sequence[Step]) -> list[Step]:
    """Cuts one after the other are one cut."""
    out: list[Step] = []
    for step in steps:
        if out and step.kind == out[-1].kind == SLICE:
            out[-1] = Step(SLICE, out[-1].before, step.after)
        else:
            out.append(step)
    return out
