"""Combine small collectives over the same ranks into one (XLA: collective combiner)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.passes.core import Rewriter
from graphgen.passes.sharding.collectives.collective_cost import groups_of
from graphgen.passes.sharding.collectives.merge_rules import MergeContext
from graphgen.passes.sharding.spec.nominal_sizes import nominal_bytes

# What has to be the same for collectives to be done as one.
_Key = tuple[object, ...]


def join_collectives(program: MergeContext, rewriter: Rewriter, small: int) -> None:
    """Join sums for all ranks, and what is gathered, where they are ready before one is read.

    Args:
        program: changed in place.
        rewriter: of the pass.
        small: most bytes that are handed out at once; what a link sends in the time that one step
            of a collective takes.
    """
    for group in list(_groups(program, small)):
        if rewriter.exhausted:
            return
        if len(group) > 1:
            _join(program, rewriter, group)


def _groups(program: MergeContext, small: int) -> Iterator[list[Op]]:
    """Groups of equal collectives without a use of one before the last."""
    growing: dict[_Key, list[Op]] = {}
    live = _live(program)
    for op in program.function.block:
        if op not in live:
            continue
        read = {value.op for value in op.operands}
        for key in [key for key, group in growing.items() if not read.isdisjoint(group)]:
            yield growing.pop(key)
        key = _key(op)
        if key is None or (size := nominal_bytes(op.result.type)) > small:
            continue
        group = growing.setdefault(key, [])
        if sum([nominal_bytes(each.result.type) for each in group]) + size > small:
            yield group
            group = growing[key] = []
        group.append(op)
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
