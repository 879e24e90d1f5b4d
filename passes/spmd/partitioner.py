"""The SPMD partitioner: emit the per-rank program of a sharding plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from graphgen.build import Builder
from graphgen.ir import (
    RANK,
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
from graphgen.passes.core import Rewriter
from graphgen.passes.core.relation import EQUAL, Sharded
from graphgen.passes.sharding.beam_search import OpSharding
from graphgen.passes.sharding.mesh import Mesh, check_divides, local_shape
from graphgen.passes.sharding.requested_layout import row_sharding
from graphgen.passes.sharding.reshard_ops import LOCAL, SLICE, ReshardStep, emit_step
from graphgen.passes.sharding.reshard_planner import ReshardPlanner
from graphgen.passes.sharding.sharding_plan import ShardingPlan
from graphgen.passes.sharding.strategies import whole_strategy
from graphgen.passes.spmd.spmd_ops import EmitContext, emit_part


@dataclass(frozen=True, slots=True)
class Resharding:
    """A resharding of one value.

    Attributes:
        value: of the source.
        start, target: the layouts.
        steps: from ``start`` to ``target``.
    """

    value: Value
    start: Sharding
    target: Sharding
    steps: tuple[ReshardStep, ...]


@dataclass(slots=True)
class Partitioner:
    """Builds the per-rank program of one program.

    Attributes:
        plan: the sharding of each op.
        whole: per value of the source, its replicated value.
        parts: per value of the source, the parts of this rank by layout.
        made: ops emitted for the current op.
        reshardings: emitted so far.
    """

    module: Module
    source: Function
    target: Function
    rewriter: Rewriter
    plan: ShardingPlan
    planner: ReshardPlanner
    whole: dict[Value, Value] = field(default_factory=dict[Value, Value])
    parts: dict[Value, dict[Sharding, Value]] = field(
        default_factory=dict[Value, dict[Sharding, Value]]
    )
    made: list[Op] = field(default_factory=list[Op])
    reshardings: list[Resharding] = field(default_factory=list[Resharding])

    @property
    def mesh(self) -> Mesh:
        """The ranks."""
        return self.planner.mesh

    def run(self) -> None:
        """Emit arguments, ops and outputs."""
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
        """Emit an argument: inputs and weights whole, states as the part of the rank."""
        row = self.module.interface[value.name or ""]
        layout = row_sharding(row)
        if row.role is Role.STATE:
            shape = local_shape(self.mesh, value.type, layout)
            arg = self.target.block.add_arg(tensor(value.dtype, shape), value.name or "")
            self.parts[value] = {layout: arg}
            self._copied(value, arg, layout)
            self._deliver(value)
        else:
            arg = self.whole[value] = self.target.block.add_arg(value.type, value.name or "")
            self._copied(value, arg)

    def prepare(self, op: Op) -> None:
        """Emit an op on weights alone, on whole tensors."""
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
        """Emit one op as planned, or replicated once the fuel is exhausted."""
        choice = self.plan.choices[op]
        if not choice.strategy.whole and self.rewriter.exhausted:
            whole = whole_strategy(op)
            choice = OpSharding(
                whole, tuple((w,) for w in whole.in_shardings), ((),) * len(op.results)
            )
        self.made = list[Op]()
        operands: list[Value] = []
        for value, targets in zip(op.operands, choice.acquired, strict=True):
            found = [self.part(value, layout, op.loc) for layout in targets]
            operands.append(found[-1])
        strategy = choice.strategy
        context = EmitContext(self._builder(op.loc), self.mesh, self.target.args[0])
        shapes = [
            local_shape(self.mesh, value.type, layout)
            for value, layout in zip(op.results, strategy.out_shardings, strict=True)
        ]
        made = emit_part(context, op, operands, strategy, shapes)
        for old, new, layout in zip(op.results, made, strategy.out_shardings, strict=True):
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
            pairs = zip(op.results, made, map(Sharded, strategy.out_shardings), strict=True)
            related = tuple(pairs)
            self.rewriter.note(self.target, "divide", made[0].op, self.made, related)

    def _builder(self, loc: Loc) -> Builder:
        """A builder that appends to the per-rank program and records its ops in ``made``."""
        b = Builder(self.target, loc=loc)
        b.made = self.made
        return b

    def _copied(self, value: Value, copy: Value, layout: Sharding | None = None) -> None:
        """Record that ``copy`` is ``value``, or its part in a layout, not a new computation."""
        part = None if layout is None or layout.replicated else Sharded(layout)
        self.rewriter.copied({value: copy}, part or EQUAL)
        if copy.op in self.made:
            self.made.remove(copy.op)

    def _keep_pinned(self, value: Value, where: Loc) -> None:
        """Keep only the annotated layout of this value; users reshard from it."""
        pin = self.plan.pins.get(value)
        if pin is not None:
            self.parts[value] = {pin: self.part(value, pin, where)}

    def _deliver(self, value: Value) -> None:
        """Reshard an argument to the layouts in which the program returns it."""
        for layout in self.plan.delivered.get(value, ()):
            self.part(value, layout, UNKNOWN)

    def part(self, value: Value, layout: Sharding, where: Loc) -> Value:
        """The part of a value in a layout, resharded on demand.

        A slice has the location ``where`` of its first use; a collective has that of the op that
        defines the value.
        """
        parts = self.parts.get(value)
        if parts is None:
            parts = self.parts[value] = self._first_parts(value, where)
            for own, part in parts.items():
                self._copied(value, part, own)
            self._deliver(value)
        if layout not in parts:
            start = self.planner.best(value.type, parts, layout)
            route = self.planner.find(value.type, start, layout)
            assert route is not None, f"{value!r}: {start.text} cannot become {layout.text}"
            self.reshardings.append(Resharding(value, start, layout, route.steps))
            made = parts[start]
            for step in _merged(route.steps):
                made = self._step(made, step, value, where)
                parts[step.after] = made
                self._copied(value, made, step.after)
        return parts[layout]

    def _first_parts(self, value: Value, where: Loc) -> dict[Sharding, Value]:
        """The annotated part of a weight or an input, sliced from the whole."""
        whole, rank = self.whole[value], replicated(value.type.rank)
        pin = self.plan.pins.get(value, rank)
        if pin is rank:
            return {rank: whole}
        check_divides(self.mesh, value.name or "a value", value.type, pin)
        take = whole.producer("take")
        if take is not None and pin.dims[take.attrs.integer("dimension")]:
            return {pin: self._own_blocks(take, pin, where)}
        return {pin: self._step(whole, ReshardStep(SLICE, rank, pin), value, where)}

    def _own_blocks(self, take: Op, layout: Sharding, where: Loc) -> Value:
        """``take`` of this rank's own blocks only."""
        operand, blocks = take.operands
        dim = take.attrs.integer("dimension")
        along = sharding((layout.dims[dim],))
        name = f"the blocks taken from {operand.name}"
        check_divides(self.mesh, name, blocks.type, along)
        mine = self._step(blocks, ReshardStep(SLICE, replicated(1), along), take.result, where)
        b = self._builder(where.through(self.rewriter.pass_name))
        taken = b.take(operand, mine, dim, take.attrs.integer("block"))
        rest = sharding([() if at == dim else axes for at, axes in enumerate(layout.dims)])
        if rest.replicated:
            return taken
        return self._step(
            taken, ReshardStep(SLICE, replicated(taken.type.rank), rest), taken, where
        )

    def _step(self, made: Value, step: ReshardStep, value: Value, where: Loc) -> Value:
        own = where if step.kind in LOCAL or value.op is None else value.op.loc
        b = self._builder(own.through(self.rewriter.pass_name))
        return emit_step(b, self.mesh, self.target.args[0], made, step)


def _merged(steps: Sequence[ReshardStep]) -> list[ReshardStep]:
    """Merge consecutive slices."""
    out: list[ReshardStep] = []
    for step in steps:
        if out and step.kind == out[-1].kind == SLICE:
            out[-1] = ReshardStep(SLICE, out[-1].before, step.after)
        else:
            out.append(step)
    return out
