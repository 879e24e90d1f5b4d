"""Simplify collectives: merge them, move them to where they send less, cancel inverses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module, Op, Value
from graphgen.ops import OPS, Trait, has_trait
from graphgen.passes.core import Pass, Rewriter, register
from graphgen.passes.sharding.collective_cost import groups_of
from graphgen.passes.sharding.op_factors import nominal_bytes
from graphgen.passes.spmd.merge_rules import MergeContext, merge_rules
from graphgen.passes.spmd.move_rules import move_rules

# The properties that collectives must share to be joined.
_Key = tuple[object, ...]


@dataclass(slots=True)
class _Group:
    """Equal collectives of which none needs the result of another.

    Attributes:
        ops: the collectives, in order.
        later: between the first and the last, ops that need the result of one, in order: they are
            put after the last.
        waiting: the same from the first on, with those after the last too.
        read: what these read.
    """

    ops: list[Op]
    later: list[Op] = field(default_factory=list[Op])
    waiting: dict[Op, None] = field(default_factory=dict[Op, None])
    read: set[Value] = field(default_factory=set[Value])

    @property
    def bytes(self) -> int:
        """Of all results."""
        return sum([nominal_bytes(op.result.type) for op in self.ops])

    def needed_by(self, op: Op) -> bool:
        """True if ``op`` needs a result, or may write into the memory of what such an op reads."""
        made = [value.op for value in op.operands]
        if any(maker in self.waiting or maker in self.ops for maker in made if maker is not None):
            return True
        first = op.operands[0] if op.operands else None
        return first in self.read and any(value.type is first.type for value in op.results)

    def wait(self, op: Op) -> None:
        """Add an op that is needed later."""
        self.waiting[op] = None
        self.read.update(op.operands)

    def add(self, op: Op) -> None:
        """Add a collective after the others."""
        self.ops.append(op)
        self.later = list(self.waiting)


def join_collectives(program: MergeContext, rewriter: Rewriter, small: int) -> None:
    """Join sums for all ranks, and what is gathered, where none needs the result of another.

    Ops between two that need the first one's result move after the second, unless another
    collective, or an op with effects, follows them first.

    Args:
        program: changed in place.
        rewriter: of the pass.
        small: most bytes that are handed out at once; what a link sends in the time that one step
            of a collective takes.
    """
    for group in list(_groups(program, small)):
        if rewriter.exhausted:
            return
        if len(group.ops) > 1:
            block, last = program.function.block, group.ops[-1]
            for op in reversed(group.later):
                block.move_after(op, last)
            _join(program, rewriter, group.ops)


def _groups(program: MergeContext, small: int) -> Iterator[_Group]:
    growing: dict[_Key, _Group] = {}
    live = _live(program)
    for op in program.function.block:
        key = _key(op) if op in live else None
        size = nominal_bytes(op.result.type) if key is not None else 0
        key = key if size <= small else None
        for other, group in [*growing.items()]:
            needs = group.needed_by(op)
            # Waiting collectives pass pure ops and this group's own collectives.
            passes = has_trait(op, Trait.PURE) or (other == key and not needs)
            if not passes and (needs or group.waiting):
                yield growing.pop(other)
            elif needs:
                group.wait(op)
        if key is None:
            continue
        group = growing.get(key)
        if group is not None and group.bytes + size > small:
            yield group
            group = None
        if group is None:
            group = growing[key] = _Group([])
        group.add(op)
    yield from growing.values()


def _key(op: Op) -> _Key | None:
    """The key that combinable collectives share; ``None`` for other ops."""
    if op.name not in ("all_reduce", "all_gather") or not op.result.type.static:
        return None
    kind = op.attrs.text("kind") if op.name == "all_reduce" else ""
    return op.name, kind, groups_of(op), op.result.dtype


def _live(program: MergeContext) -> set[Op]:
    """Live ops."""
    live: set[Op] = set()
    for op in reversed(program.function.block):
        for value in op.results:
            if program.function.returns(value) or not live.isdisjoint(value.users):
                live.add(op)
    return live


def _join(program: MergeContext, rewriter: Rewriter, group: Sequence[Op]) -> None:
    """Replace a group by one collective at the position of its last."""
    function, last = program.function, group[-1]
    b = rewriter.before(function, last)
    made = b.made = list[Op]()
    with b:
        values = (_sums if last.name == "all_reduce" else _gathered)(b, group)
    gain = program.merged(b, values, *group).gain
    with rewriter.joined():
        for op, value in zip(group[:-1], values, strict=False):
            rewriter.replace(function, op, [value], "join-collectives")
    rewriter.replace(function, last, values[-1:], "join-collectives", created=made, gain=gain)


def _sums(b: Builder, group: Sequence[Op]) -> list[Value]:
    """All-reduce: concatenate flattened operands, then slice."""
    flat = [b.reshape(op.operands[0], (op.result.type.size,)) for op in group]
    joined = b.emit("all_reduce", (b.concatenate(flat, 0),), dict(group[0].attrs)).result
    return [
        b.reshape(part, op.result.shape)
        for op, part in zip(group, _apart(b, joined, 0, flat), strict=True)
    ]


def _gathered(b: Builder, group: Sequence[Op]) -> list[Value]:
    """All-gather: concatenate flattened operands, gather rows, then rearrange each value."""
    flat = [b.reshape(op.operands[0], (1, op.operands[0].type.size)) for op in group]
    attrs = {**group[0].attrs, "dimension": 0}
    joined = b.emit("all_gather", (b.concatenate(flat, 1),), attrs).result
    made: list[Value] = []
    for op, part in zip(group, _apart(b, joined, 1, flat), strict=True):
        dim, shape = op.attrs.integer("dimension"), op.operands[0].shape
        stacked = b.reshape(part, (joined.shape[0], *shape))
        # The ranks go before the dimension along which they are joined.
        order = [*range(1, dim + 1), 0, *range(dim + 1, len(shape) + 1)]
        made.append(b.reshape(b.transpose(stacked, order), op.result.shape))
    return made


def _apart(b: Builder, joined: Value, dim: int, parts: Sequence[Value]) -> list[Value]:
    start = 0
    made: list[Value] = []
    for part in parts:
        size = part.shape[dim]
        assert isinstance(size, int)
        made.append(b.slice_dim(joined, dim, start, start + size))
        start += size
    return made


@register
@dataclass(frozen=True)
class MergeCollectives(Pass):
    """Merge and remove collectives of the program that a rank runs.

    * ``sum(a) + sum(b)`` over the same ranks becomes ``sum(a + b)``, likewise largest and smallest.
    * A rank's own part of what was gathered is what it had; of a sum over ranks, it is scattered
      to it. Parts of a sum that are gathered again are a sum for all.
    * Permutes are composed; exchanges that undo each other, and those among one rank, are left out.
    * What is read narrower than it is sent, in smaller parts, reduced or converted, is made so
      before it is sent; what is sent wider than it was, converted or repeated, is made so after.
    * Small ones whose time is the latency are done as one, over all they send side by side. Readers
      of the first one wait for the last, unless another collective comes first.

    Each of these sends at most the bytes that were sent before. A collective that others read too
    stays as it is. Equal ones are for ``cse``.

    Options:
        small: bytes up to which several results are handed out by one collective; 0 leaves them
            apart. The default is what a trn1 chip sends in one step: 384 GB/s for 1.5 us.

    Given:
        module @m level=sharded mesh=tp:2 {
        }

        func @f {
          arg %rank : s32[1]
          arg %x : f32[4]
          arg %y : f32[4]
          %a = all_reduce(%x) kind=add replica_groups=[[0,1]] : f32[4]
          %b = all_reduce(%y) kind=add replica_groups=[[0,1]] : f32[4]
          %c = add(%a, %b) : f32[4]
          %0 = reshape(%rank) shape=[] : s32[]
          %1 = constant() value=s32[](2) : s32[]
          %2 = multiply(%0, %1) : s32[]
          %d = dynamic_slice(%c, %2) slice_sizes=[2] : f32[2]
          %e = all_gather(%d) dimension=0 replica_groups=[[0,1]] : f32[4]
          %f = convert(%e) dtype=bf16 : bf16[4]
          return d = %d
          return f = %f
        }

    Result (followed by ``dce``):
        module @m level=sharded mesh=tp:2 {
        }

        func @f {
          arg %rank : s32[1]
          arg %x : f32[4]
          arg %y : f32[4]
          %0 = add(%x, %y) : f32[4]
          %d = reduce_scatter(%0) kind=add dimension=0 replica_groups=[[0,1]] : f32[2]
          %1 = convert(%d) dtype=bf16 : bf16[2]
          %f = all_gather(%1) dimension=0 replica_groups=[[0,1]] : bf16[4]
          return d = %d
          return f = %f
        }
    """

    name: ClassVar[str] = "merge-collectives"
    # A sum of sums is taken in another order.
    rounding: ClassVar[float] = 2e-2
    small: int = 576_000

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Apply the rules to every function, then combine small collectives."""
        if self.small < 0:
            raise GraphgenError("GG0302", f"{self.name}: small={self.small} is below 0")
        for function in module.functions.values():
            named = _ranks(function)
            if not named:
                continue
            program = MergeContext(function, max(module.ranks, named))
            rewriter.apply_rules(function, (*merge_rules(program), *move_rules(program)))
            if self.small:
                join_collectives(program, rewriter, self.small)


def _ranks(function: Function) -> int:
    """The number of ranks in the collectives of a function; 0 without collectives."""
    named = [
        rank
        for op in function.block
        if OPS[op.name].collective
        for group in groups_of(op)
        for rank in group
    ]
    return 1 + max(named, default=-1)
