"""Resharding operations: kind, bytes sent and emitted ops of one change of layout.

Bytes sent per rank in a ring of n: all-gather of b bytes (n-1)*b, reduce-scatter and all-to-all
(n-1)/n*b, all-reduce 2*(n-1)/n*b.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import Sharding, TensorType, Value
from graphgen.ir.dtype import s32
from graphgen.ir.sharding import Axes
from graphgen.passes.sharding.mesh import Groups, Mesh, local_shape
from graphgen.passes.sharding.op_factors import nominal

SLICE, MASK = "slice", "mask"
ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER = "all-gather", "all-reduce", "reduce-scatter"
ALL_TO_ALL, PERMUTE = "all-to-all", "collective-permute"
# Kinds without communication.
LOCAL = frozenset((SLICE, MASK))


@dataclass(frozen=True, slots=True)
class ReshardStep:
    """One change of layout.

    Attributes:
        kind: one of the names above.
        before, after: the layouts.
        axes: the axes it communicates over, outermost first.
        dim: the gathered dimension; of a reduce-scatter, the scattered one.
        to_dim: the dimension that an all-to-all splits.
    """

    kind: str
    before: Sharding
    after: Sharding
    axes: Axes = ()
    dim: int = -1
    to_dim: int = -1


def local_bytes(mesh: Mesh, type_: TensorType, layout: Sharding) -> int:
    """Bytes of a value on one rank, with nominal dimensions."""
    count = 1
    for size in local_shape(mesh, type_, layout):
        count *= nominal(size)
    return -(-count * type_.dtype.bits // 8)


def bytes_sent(mesh: Mesh, type_: TensorType, step: ReshardStep) -> int:
    """Bytes that one rank sends, times the number of ranks, as an integer."""
    if step.kind in LOCAL:
        return 0
    size = local_bytes(mesh, type_, step.before) * mesh.ranks
    parts = mesh.size(step.axes)
    if step.kind == ALL_GATHER:
        return size * (parts - 1)
    if step.kind == PERMUTE:
        return size
    each = size * (parts - 1) // parts
    return 2 * each if step.kind == ALL_REDUCE else each


def emit_step(b: Builder, mesh: Mesh, rank: Value, value: Value, step: ReshardStep) -> Value:
    """Emit ``step`` on a rank's part; ``rank`` is s32[1]."""
    groups = mesh.groups(step.axes)
    if step.kind == SLICE:
        return _slice(b, mesh, rank, value, step)
    if step.kind == MASK:
        return _mask(b, mesh, rank, value, step.axes)
    if step.kind == ALL_GATHER:
        return b.all_gather(value, groups, step.dim)
    if step.kind == ALL_REDUCE:
        return b.all_reduce(value, groups, step.before.kind)
    if step.kind == REDUCE_SCATTER:
        return b.reduce_scatter(value, groups, step.dim, step.before.kind)
    if step.kind == ALL_TO_ALL:
        return b.all_to_all(value, groups, step.to_dim, step.dim)
    assert step.kind == PERMUTE, step.kind
    return b.collective_permute(value, pairs(mesh, step))


def _slice(b: Builder, mesh: Mesh, rank: Value, value: Value, step: ReshardStep) -> Value:
    """Slice this rank's part along every further sharded dimension."""
    shape = list(value.shape)
    starts: list[Value] = []
    cuts = [new[len(old) :] for old, new in zip(step.before.dims, step.after.dims, strict=True)]
    zero = None if all(cuts) else b.literal(0, s32)
    for dim, added in enumerate(cuts):
        if not added:
            assert zero is not None
            starts.append(zero)
            continue
        size = shape[dim]
        assert isinstance(size, int)
        shape[dim] = part = size // mesh.size(added)
        place = mesh.coordinate(b, rank, added)
        starts.append(place if part == 1 else b.binary("multiply", place, part))
    return b.dynamic_slice(value, starts, shape)


def _mask(b: Builder, mesh: Mesh, rank: Value, value: Value, axes: Axes) -> Value:
    """The value on the first rank along ``axes``, zero on the others: an unreduced sum."""
    first = b.compare(mesh.coordinate(b, rank, axes), b.literal(0, s32), "EQ")
    zero = b.full(0, value.type)
    return b.select(b.broadcast_in_dim(first, value.shape, []), value, zero)


def pairs(mesh: Mesh, step: ReshardStep) -> Groups:
    """Source-target pairs of a permutation of parts; a rank with the right part keeps it."""
    sources: dict[tuple[int, ...], list[int]] = {}
    for rank in range(mesh.ranks):
        sources.setdefault(_block(mesh, step.before, rank), []).append(rank)
    wanted = {rank: _block(mesh, step.after, rank) for rank in range(mesh.ranks)}
    found: list[tuple[int, int]] = []
    for rank, block in wanted.items():
        if rank in sources[block]:
            sources[block].remove(rank)
            found.append((rank, rank))
    done = {target for _, target in found}
    found += [(sources[block].pop(0), rank) for rank, block in wanted.items() if rank not in done]
    return tuple(sorted(found))


def _block(mesh: Mesh, layout: Sharding, rank: int) -> tuple[int, ...]:
    """The part of the value that a rank holds; unreduced axes count like dimensions."""
    return tuple(mesh.place(rank, axes) for axes in (*layout.dims, layout.partial))
