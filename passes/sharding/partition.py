"""Partition: the logical program becomes the program of one rank, with explicit collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import (
    RANK,
    AttrValue,
    Dim,
    Entry,
    Function,
    Loc,
    Module,
    Op,
    Role,
    Sharding,
    TensorType,
    Value,
    replicated,
    sharding,
    tensor,
)
from graphgen.ir.dtype import s32
from passes.core import Pass, Rewriter, register
from passes.core.packing import repack
from passes.fusion.prepared import PreparedValues
from passes.sharding.rules import ELEMENTWISE, CarryError, carry, carry_whole

# Attributes that hold a result's shape, so that they shrink with it.
_SHAPE_ATTRS = {"reshape": "shape", "broadcast_in_dim": "shape", "iota": "shape"}


@register
@dataclass(frozen=True)
class Partition(Pass):
    """Per-rank shapes: split weights are cut by rank, sums over a split dimension all-reduced.

    Shardings are carried forward from the annotated weights and states; an op that cannot go on is
    refused by name. Every program takes ``%rank : s32[1]``. States keep their logical type in the
    interface, with functions that cut and join them.

    What is made of weights alone is made of whole weights and cut where the rest of the program
    reads it: a fact about a whole tensor, such as its largest element, is the same on all ranks.

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
    takes: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    gives: ClassVar[str] = "sharded"
    requires: ClassVar[tuple[str, ...]] = ("raw-weights",)
    provides: ClassVar[tuple[str, ...]] = ("partitioned",)
    # A split sum is taken in another order.
    rounding: ClassVar[float] = 2e-2

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Partition every program, then the interface."""
        for row in module.interface.values():
            if not _taken(module, row):
                _check_divides(module, row.name, row.physical, row.sharding)
        for function in module.programs():
            made = Function(function.name, phase=function.phase, dims=function.dims)
            prepared = PreparedValues(module, function, {})
            _Partitioner(module, function, made, rewriter, prepared).run()
            module.functions[function.name] = made
        for row in module.entries(Role.STATE):
            if row.sharding and not row.sharding.replicated:
                _pack_state(module, row)


def _taken(module: Module, row: Entry) -> bool:
    """Whether programs take from a weight: then what they take is cut, and has to divide."""
    values = [function.arg(row.name) for function in module.programs()]
    readers = [op for value in values if value is not None for op in value.users]
    return row.role is Role.WEIGHT and any(op.name == "take" for op in readers)


def _check_divides(module: Module, name: str, type_: TensorType, layout: Sharding | None) -> None:
    for size, axis in zip(type_.shape, layout.dims if layout else (), strict=False):
        if axis is None:
            continue
        if axis not in module.mesh:
            raise GraphgenError("GG0304", f"{name}: the mesh has no axis '{axis}'")
        if not isinstance(size, int) or size % module.mesh[axis]:
            raise GraphgenError(
                "GG0304",
                f"{name} {type_.text}: {size} does not divide over {axis} = {module.mesh[axis]}",
                help="choose a degree that divides the heads and the intermediate size",
            )


def local_shape(module: Module, type_: TensorType, layout: Sharding) -> tuple[Dim, ...]:
    """The shape one rank holds; split dimensions are known to divide."""
    return tuple(
        size // module.mesh[axis] if axis and isinstance(size, int) else size
        for size, axis in zip(type_.shape, layout.dims, strict=True)
    )


@dataclass(slots=True)
class _Partitioner:
    """Builds one program of a rank.

    Attributes:
        prepared: which values of the source are made of weights alone.
        values: by value of the source, the value of the target, whole where it is prepared.
        parts: this rank's part of the prepared values that the rest of the program reads.
        layouts: how each value of the source lies.
    """

    module: Module
    source: Function
    target: Function
    rewriter: Rewriter
    prepared: PreparedValues
    values: dict[Value, Value] = field(default_factory=dict[Value, Value])
    parts: dict[Value, Value] = field(default_factory=dict[Value, Value])
    layouts: dict[Value, Sharding] = field(default_factory=dict[Value, Sharding])

    def run(self) -> None:
        """Arguments, ops, outputs."""
        self.target.block.add_arg(tensor(s32, (1,)), RANK)
        for value in self.source.args:
            self.argument(value)
        for op in self.source.block:
            self.op(op)
        for name, value in self.source.outputs:
            self.output(name, value)
        self.rewriter.copied(self.values)

    def argument(self, value: Value) -> None:
        """Weights come whole; states and inputs come as the rank holds them."""
        row = self.module.interface[value.name or ""]
        layout = row.sharding or replicated(value.type.rank)
        self.layouts[value] = layout
        shape = value.type.shape
        if row.role is Role.STATE:
            shape = local_shape(self.module, value.type, layout)
        self.values[value] = self.target.block.add_arg(tensor(value.dtype, shape), value.name or "")

    def op(self, op: Op) -> None:
        """One op on local shapes, with the all-reduce it owes; on whole ones if it is prepared."""
        whole = self.prepared.of_weights(op.results[0])
        operands = [(self.values[v], self.layouts[v]) for v in op.operands]
        if not whole:
            operands = [(self._part(v, op.loc), self.layouts[v]) for v in op.operands]
            if op.name in ELEMENTWISE:
                operands = self._alike(op, operands)
        layouts = self._carried(op, [layout for _, layout in operands], whole)
        attrs = dict(op.attrs) if whole else self._local_attrs(op, layouts)
        b = Builder(self.target, loc=op.loc)
        made = b.emit(op.name, [value for value, _ in operands], attrs)
        for old, new, layout in zip(op.results, made.results, layouts, strict=True):
            new.name = old.name
            self.rewriter.copied({old: new})
            settled = self._settle(b, new, layout)
            self.values[old], self.layouts[old] = self._as_stated(old, settled, whole)

    def _as_stated(
        self, old: Value, made: tuple[Value, Sharding], whole: bool
    ) -> tuple[Value, Sharding]:
        """What every rank holds whole, cut if its value says how it lies; at once or when read."""
        value, layout = made
        if old.sharding is None or not layout.replicated:
            return made
        if whole:
            return value, old.sharding
        split = old.sharding.split
        if split is None:
            return made
        b = Builder(self.target, loc=old.op.loc if old.op else None)
        shape = local_shape(self.module, old.type, old.sharding)
        return cut(b, value, self.target.args[0], split[0], shape), old.sharding

    def _alike(
        self, op: Op, operands: Sequence[tuple[Value, Sharding]]
    ) -> list[tuple[Value, Sharding]]:
        """The operands; one that only repeats along a split dimension repeats less often."""
        out = list(operands)
        split = next((layout for _, layout in out if not layout.replicated), None)
        for index, (value, (_, layout)) in enumerate(zip(op.operands, operands, strict=True)):
            spread = value.producer("broadcast_in_dim")
            if split is None or not layout.replicated or spread is None:
                continue
            kept = spread.attrs.integers("dimensions")
            if not any(axis and dim in kept for dim, axis in enumerate(split.dims)):
                b = Builder(self.target, loc=spread.loc)
                shape = local_shape(self.module, value.type, split)
                (operand,) = spread.operands
                part = self._part(operand, spread.loc)
                out[index] = b.broadcast_in_dim(part, shape, kept), split
        return out

    def _carried(self, op: Op, operands: Sequence[Sharding], whole: bool) -> Sequence[Sharding]:
        if whole:
            return carry_whole(op, operands, self.module.mesh)
        try:
            return carry(op, operands, self.module.mesh)
        except CarryError as error:
            raise GraphgenError(
                "GG0304", f"partition: {op.name}: {error}", where=repr(op.loc)
            ) from error

    def _part(self, value: Value, where: Loc) -> Value:
        """What this rank works with: its part of a prepared value, as IR for lift-weights to move.

        It is cut where it is read first, which is ``where``.
        """
        split = self.layouts[value].split
        if split is None or not self.prepared.of_weights(value):
            return self.values[value]
        if value not in self.parts:
            b = Builder(self.target, loc=where.through(self.rewriter.pass_name))
            b.made = list[Op]()
            self.parts[value] = self._cut(b, self.values[value], self.layouts[value], split[0])
            what = f"cut {value.name}" if value.name else "cut"
            self.rewriter.note(self.target, what, self.parts[value].op, b.made)
            self.rewriter.copied({value: self.parts[value]})
        return self.parts[value]

    def _cut(self, b: Builder, whole: Value, layout: Sharding, dim: int) -> Value:
        """This rank's part; of a take its own blocks, so that it reads no others."""
        rank, take = self.target.args[0], whole.producer("take")
        if take is None or take.attrs.integer("dimension") != dim:
            return cut(b, whole, rank, dim, local_shape(self.module, whole.type, layout))
        operand, blocks = take.operands
        along = sharding([layout.dims[dim]])
        _check_divides(self.module, f"the blocks taken from {operand.name}", blocks.type, along)
        mine = cut(b, blocks, rank, 0, local_shape(self.module, blocks.type, along))
        return b.take(operand, mine, dim, take.attrs.integer("block"))

    def _local_attrs(self, op: Op, results: Sequence[Sharding]) -> dict[str, AttrValue]:
        attrs = dict(op.attrs)
        key = _SHAPE_ATTRS.get(op.name)
        if key and not results[0].replicated:
            attrs[key] = local_shape(self.module, op.result.type, results[0])
        return attrs

    def _settle(self, b: Builder, value: Value, layout: Sharding) -> tuple[Value, Sharding]:
        """Take the sum a partial value owes, at once."""
        if not layout.partial:
            return value, layout
        groups = (tuple(range(self.module.ranks)),)
        b.loc = value.op.loc.through(self.rewriter.pass_name) if value.op else None
        whole = b.all_reduce(value, groups)
        made = [whole.op] if whole.op is not None else []
        self.rewriter.note(self.target, "all-reduce", value.op, made)
        return whole, sharding(layout.dims)

    def output(self, name: str, value: Value) -> None:
        """States leave as the rank holds them; any other output must be whole."""
        row = self.module.interface[name]
        layout = self.layouts[value]
        wanted = row.sharding or replicated(value.type.rank)
        if layout is not (wanted if row.role is Role.STATE else replicated(value.type.rank)):
            raise GraphgenError("GG0304", f"partition: output {name} lies {layout.text}")
        self.target.outputs.append((name, self.values[value]))


def cut(b: Builder, whole: Value, rank: Value, dim: int, shape: Sequence[Dim]) -> Value:
    """The part of ``whole`` of this shape that belongs to the rank (s32[1]), along ``dim``."""
    size = shape[dim]
    assert isinstance(size, int)
    zero = b.literal(0, s32)
    start = b.reshape(rank, ()) if size == 1 else b.binary("multiply", b.reshape(rank, ()), size)
    starts = [start if index == dim else zero for index in range(len(shape))]
    return b.dynamic_slice(whole, starts, shape)


def _pack_state(module: Module, row: Entry) -> None:
    """Give a split state the type of one rank's part, and functions that cut it and join it."""
    assert row.sharding is not None
    split = row.sharding.split
    assert split is not None
    dim, axis = split
    whole = row.physical.shape
    local = tensor(row.physical.dtype, local_shape(module, row.physical, row.sharding))

    def pack(b: Builder, part: Value, rank: Value) -> Value:
        return cut(b, part, rank, dim, local.shape)

    def unpack(b: Builder, parts: Value) -> Value:
        """The rank moves in front of the split dimension."""
        order = list(range(1, local.rank + 1))
        order.insert(dim, 0)
        return b.reshape(b.transpose(parts, order), (1, *whole))

    repack(module, row, local, f"dim{dim}", (pack, unpack), module.mesh[axis])
