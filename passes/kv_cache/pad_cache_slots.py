"""A spare slot in every cache: writes that would be dropped land there instead."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from graphgen.build import Builder
from graphgen.build.range_check import in_range
from graphgen.errors import GraphgenError
from graphgen.ir import Entry, Function, Literal, Module, Op, Role, TensorType, Value, tensor
from graphgen.ir.dtype import pred
from graphgen.passes.core import Pass, Rewriter, register
from graphgen.passes.core.relation import Chain, DontCare, Relation, Take
from graphgen.passes.weights.layout_change import repack


@register
@dataclass(frozen=True)
class PadCacheSlots(Pass):
    """Add one slot to each state that ``kv_update`` writes, for idle tokens and rows.

    On Neuron an index out of range is an error at run time, not a write that is dropped. All such
    writes go to the spare slot of the first row, which no call reads. Each write becomes a scatter
    of rows of one table, the form in which AWS's own code updates caches.

    Given:
        module @m level=canonical {
          input %new : f32[2,1,1,4]
          input %ids : s32[2]
          input %at : s32[2,1]
          state %k : f32[2,8,1,4]
          output %r : f32[2,4,1,4]
        }

        func @f phase=decode {
          arg %k : f32[2,8,1,4]
          arg %new : f32[2,1,1,4]
          arg %ids : s32[2]
          arg %at : s32[2,1]
          %c = kv_update(%k, %new, %ids, %at) rows=in_place : f32[2,8,1,4]
          %r = cache_read(%c, %ids) attended=4 rows=in_place : f32[2,4,1,4]
          return k = %c
          return r = %r
        }

    Result:
        module @m level=canonical {
          input %new : f32[2,1,1,4]
          input %ids : s32[2]
          input %at : s32[2,1]
          state %k : f32[2,8,1,4] as f32[2,9,1,4] pack=@pack.f32.2x8x1x4.slot \
unpack=@unpack.f32.2x8x1x4.slot
          output %r : f32[2,4,1,4]
        }

        func @f phase=decode {
          arg %k : f32[2,9,1,4]
          arg %new : f32[2,1,1,4]
          arg %ids : s32[2]
          arg %at : s32[2,1]
          %0 = broadcast_in_dim(%ids) shape=[2,1] dimensions=[0] : s32[2,1]
          %1 = constant() value=s32[](0) : s32[]
          %2 = broadcast_in_dim(%1) shape=[2,1] : s32[2,1]
          %3 = compare(%0, %2) direction=GE : pred[2,1]
          %4 = constant() value=s32[](2) : s32[]
          %5 = broadcast_in_dim(%4) shape=[2,1] : s32[2,1]
          %6 = compare(%0, %5) direction=LT : pred[2,1]
          %7 = and(%3, %6) : pred[2,1]
          %8 = constant() value=s32[](0) : s32[]
          %9 = broadcast_in_dim(%8) shape=[2,1] : s32[2,1]
          %10 = compare(%at, %9) direction=GE : pred[2,1]
          %11 = constant() value=s32[](8) : s32[]
          %12 = broadcast_in_dim(%11) shape=[2,1] : s32[2,1]
          %13 = compare(%at, %12) direction=LT : pred[2,1]
          %14 = and(%10, %13) : pred[2,1]
          %15 = and(%7, %14) : pred[2,1]
          %16 = constant() value=s32[](9) : s32[]
          %17 = broadcast_in_dim(%16) shape=[2,1] : s32[2,1]
          %18 = multiply(%0, %17) : s32[2,1]
          %19 = add(%18, %at) : s32[2,1]
          %20 = constant() value=s32[](8) : s32[]
          %21 = broadcast_in_dim(%20) shape=[2,1] : s32[2,1]
          %22 = select(%15, %19, %21) : s32[2,1]
          %23 = reshape(%k) shape=[18,1,4] : f32[18,1,4]
          %24 = reshape(%22) shape=[2,1,1] : s32[2,1,1]
          %25 = scatter(%23, %24, %new) update_window_dims=[2,3] inserted_window_dims=[0] \
scatter_dims_to_operand_dims=[0] index_vector_dim=2 : f32[18,1,4]
          %c = reshape(%25) shape=[2,9,1,4] : f32[2,9,1,4]
          %r = slice(%c) start_indices=[0,0,0,0] limit_indices=[2,4,1,4] : f32[2,4,1,4]
          return k = %c
          return r = %r
        }

        func @pack.f32.2x8x1x4.slot {
          arg %whole : f32[2,8,1,4]
          arg %rank : s32[1]
          %0 = constant() value=f32[](0.0) : f32[]
          %1 = pad(%whole, %0) low=[0,0,0,0] high=[0,1,0,0] : f32[2,9,1,4]
          return part = %1
        }

        func @unpack.f32.2x8x1x4.slot {
          arg %parts : f32[1,2,9,1,4]
          %0 = slice(%parts) start_indices=[0,0,0,0,0] limit_indices=[1,2,8,1,4] : f32[1,2,8,1,4]
          %1 = reshape(%0) shape=[2,8,1,4] : f32[2,8,1,4]
          return whole = %1
        }
    """

    name: ClassVar[str] = "pad-cache-slots"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical", "sharded")
    requires: ClassVar[tuple[str, ...]] = ("specialized", "partitioned")

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """State by state, in all programs at once: they share one representation."""
        for row in module.entries(Role.STATE):
            if rewriter.exhausted:
                return
            if any(_written(function, row.name) for function in module.programs()):
                _pad(module, row, rewriter)


def _written(function: Function, name: str) -> Op | None:
    """The first update of a state in a program."""
    cache = function.arg(name)
    users = cache.users if cache is not None else ()
    return next((op for op in users if op.name == "kv_update" and op.operands[0] is cache), None)


def _pad(module: Module, row: Entry, rewriter: Rewriter) -> None:
    """Change one state everywhere: in the programs, then in the interface."""
    rows, slots, *window = row.physical.dims
    grown = tensor(row.physical.dtype, (rows, slots + 1, *window))
    first: tuple[Function, Op] | None = None
    with rewriter.joined():
        for function in module.programs():
            cache = function.arg(row.name)
            if cache is not None:
                updated = _written(function, row.name)
                first = first or ((function, updated) if updated else None)
                _Program(function, rewriter, grown).change(cache)

    def pack(b: Builder, part: Value, rank: Value) -> Value:
        return _with_slot(b, part)

    def unpack(b: Builder, parts: Value) -> Value:
        return b.slice_dim(parts, 2, 0, slots)

    repack(module, row, grown, "slot", (pack, unpack))
    function, op = first or (None, None)
    rewriter.note(function, f"a spare slot for {row.name}", op if op and op.block else None)


def _with_slot(b: Builder, x: Value) -> Value:
    """``x`` with a slot of zeros after the others of each row."""
    none = [0] * x.type.rank
    return b.pad(x, b.literal(_zero(x.type), x.dtype), none, [0, 1, *none[2:]])


def _zero(type_: TensorType) -> float | int:
    return 0.0 if type_.dtype.is_float else 0


@cache
def _relation(slots: int) -> Relation:
    """The slots as they were, and one that does not matter."""
    mask = [[[[slot == slots]] for slot in range(slots + 1)]]
    return Chain((Take(1, (*range(slots), -1)), DontCare(Literal.of(pred, mask), "the spare slot")))


class _Program:
    """A program that is given the grown state, and gives it back."""

    def __init__(self, function: Function, rewriter: Rewriter, grown: TensorType) -> None:
        self.function = function
        self.rewriter = rewriter
        self.grown = grown
        self.rows, self.slots = grown.dims[0], grown.dims[1] - 1

    def change(self, cache: Value) -> None:
        """Follow the state through updates to what reads it, and to the outputs."""
        cache.type = self.grown
        work, large = [cache], {cache}
        while work:
            value = work.pop()
            for op in list(value.users):
                if op.name == "kv_update" and op.operands[0] is value:
                    made = self._update(op)
                    large.add(made)
                    work.append(made)
                elif op.name == "cache_read":
                    self._read(op)
                else:
                    b = self.rewriter.before(self.function, op)
                    whole = b.slice_dim(value, 1, 0, self.slots)
                    op.set_operands(tuple([whole if x is value else x for x in op.operands]))
        self._outputs(cache.name or "", large)

    def _update(self, op: Op) -> Value:
        """A write of the rows of one table; what would be dropped goes to the first spare slot."""
        cache, new, ids, slots = op.operands
        b = self.rewriter.before(self.function, op)
        if new is cache:
            new = b.slice_dim(new, 1, 0, self.slots)
        window = self.grown.dims[2:]
        rows = b.broadcast_in_dim(ids, slots.shape, [0])
        inside = b.binary("and", in_range(b, rows, self.rows), in_range(b, slots, self.slots))
        at = b.binary("add", b.binary("multiply", rows, self.slots + 1), slots)
        at = b.select(inside, at, b.full(self.slots, at.type))
        made = b.op(
            "scatter",
            b.reshape(cache, (self.rows * (self.slots + 1), *window)),
            b.reshape(at, (*at.shape, 1)),
            new,
            update_window_dims=(2, 3),
            inserted_window_dims=(0,),
            scatter_dims_to_operand_dims=(0,),
            index_vector_dim=2,
        )
        made = b.reshape(made, self.grown.shape)
        op.result.type = self.grown
        self.rewriter.replace(self.function, op, [made], relation=_relation(self.slots))
        return made

    def _read(self, op: Op) -> None:
        """Only slots before the spare one; rows that are looked up are rows that there are."""
        cache, ids = op.operands
        b = self.rewriter.before(self.function, op)
        if op.attrs.text("rows") != "in_place":
            known = b.binary("minimum", b.binary("maximum", ids, 0), self.rows - 1)
            op.set_operands((cache, known))
            return
        limits = (self.rows, op.attrs.dim("attended"), *self.grown.shape[2:])
        self.rewriter.replace(self.function, op, [b.slice(cache, [0] * 4, limits)])

    def _outputs(self, state: str, large: set[Value]) -> None:
        """The state leaves as it came, with its spare slots; any other output without."""
        b, changed = Builder(self.function), list[tuple[str, Value]]()
        for name, value in self.function.outputs:
            if name == state and value not in large:
                if value.type.dims[1] != self.slots:
                    what = f"{self.rewriter.pass_name}: {state} leaves as {value.type.text}"
                    raise GraphgenError("GG0304", what)
                value = _with_slot(b, value)
            elif name != state and value in large:
                value = b.slice_dim(value, 1, 0, self.slots)
            changed.append((name, value))
        self.function.outputs = changed
