"""Combine small collectives over the same ranks into one (XLA: collective combiner)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ops import Trait, has_trait
from graphgen.passes.core import Rewriter
from graphgen.passes.sharding.collectives.collective_cost import groups_of
from graphgen.passes.sharding.collectives.merge_rules import MergeContext
from graphgen.passes.sharding.spec.nominal_sizes import nominal_bytes

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
