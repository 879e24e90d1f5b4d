"""Indexing ops: gather, scatter and slices at computed starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphgen.ir import Attrs, Dim, TensorType, tensor
from graphgen.ir.dtype import s32
from graphgen.ops.attr_types import DIMS, INTEGER, INTEGERS, choice
from graphgen.ops.factors import DimFactors, Factors, FactorTable, passthrough_factors
from graphgen.ops.linalg import REDUCTIONS, check_reduction
from graphgen.ops.opdef import attr, define, require
from graphgen.ops.traits import LinearIn, Trait, Types, UpdatesPart

MOVES_PLACES = (Trait.DATA_MOVEMENT, Trait.POSITIONAL)
PARTIAL_READ = (*MOVES_PLACES, Trait.PARTIAL_READ, LinearIn((0,)))


def _indices(types: Sequence[TensorType], vector_dim: int) -> tuple[list[Dim], Dim]:
    """Batch shape and index-vector length of the index operand, operand 1."""
    indices = types[1]
    require(indices.dtype.is_integer, f"indices must be integers, got {indices.text}", 1)
    require(0 <= vector_dim <= indices.rank, f"index_vector_dim {vector_dim} of {indices.text}", 1)
    if vector_dim == indices.rank:
        return list(indices.shape), 1
    batch = [size for i, size in enumerate(indices.shape) if i != vector_dim]
    return batch, indices.shape[vector_dim]


def _inside(what: str, size: Dim, limit: Dim, operand: int) -> None:
    """Require ``size <= limit`` for a slice or window, if both are static."""
    inside = not isinstance(size, int) or not isinstance(limit, int) or size <= limit
    require(inside, f"{what} size {size} of a dimension of {limit}", operand)


def _increasing(what: str, dims: Sequence[int], rank: int) -> None:
    """Require a strictly increasing list of dimensions, as XLA does."""
    require(list(dims) == sorted(set(dims)), f"{what} {list(dims)} are not in increasing order")
    require(all(0 <= dim < rank for dim in dims), f"{what} {list(dims)} of {rank} dims")


def _distinct(what: str, dims: Sequence[int]) -> None:
    require(len(set(dims)) == len(dims), f"{what} {list(dims)} repeat")


def _gather_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """Factors of window dimensions that are read whole, and of the batch of index vectors."""
    table = FactorTable()
    sizes, offset = attrs.dims("slice_sizes"), attrs.integers("offset_dims")
    indexed, vector = attrs.integers("start_index_map"), attrs.integer("index_vector_dim")
    result: list[DimFactors] = [()] * results[0].rank
    operand: list[DimFactors] = [()] * operands[0].rank
    window = [i for i in range(operands[0].rank) if i not in attrs.integers("collapsed_slice_dims")]
    for i, target in zip(window, offset, strict=True):
        if sizes[i] == operands[0].shape[i] and i not in indexed:
            operand[i] = result[target] = (table.new(sizes[i]),)
    indices: list[DimFactors] = [()] * operands[1].rank
    batch = iter([target for target in range(results[0].rank) if target not in offset])
    for i, size in enumerate(operands[1].shape):
        if i != vector:
            indices[i] = result[next(batch)] = (table.new(size),)
    return Factors(table.sizes, (tuple(operand), tuple(indices)), (tuple(result),))


@define(
    "gather",
    "operand indices",
    attr("offset_dims", INTEGERS),
    attr("collapsed_slice_dims", INTEGERS),
    attr("start_index_map", INTEGERS),
    attr("index_vector_dim", INTEGER),
    attr("slice_sizes", DIMS),
    traits=PARTIAL_READ,
    factors=_gather_factors,
)
def _gather(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """For each index vector the slice of ``operand`` that starts there.

    A start is clamped so that its slice is inside the operand, as in HLO.

    Example:
        %y = gather(%table, %ids) offset_dims=[1] collapsed_slice_dims=[0] start_index_map=[0] \
index_vector_dim=1 slice_sizes=[1,4] : f32[B,4]
    """
    operand, sizes = types[0], attrs.dims("slice_sizes")
    offset, collapsed = attrs.integers("offset_dims"), attrs.integers("collapsed_slice_dims")
    batch, length = _indices(types, attrs.integer("index_vector_dim"))
    index_map = attrs.integers("start_index_map")
    require(length == len(index_map), f"index vectors of {length} for {len(index_map)} dims", 1)
    require(len(sizes) == operand.rank, f"needs {operand.rank} slice_sizes", 0)
    for dim in (*collapsed, *index_map):
        require(0 <= dim < operand.rank, f"dim {dim} of {operand.text} does not exist", 0)
    _increasing("collapsed_slice_dims", collapsed, operand.rank)
    _distinct("start_index_map", index_map)
    for dim in collapsed:
        require(sizes[dim] == 1, f"collapsed dim {dim} has slice size {sizes[dim]}, not 1", 0)
    for size, limit in zip(sizes, operand.shape, strict=True):
        _inside("slice", size, limit, 0)
    window = [size for i, size in enumerate(sizes) if i not in collapsed]
    require(len(window) == len(offset), f"{len(window)} window dims, {len(offset)} offset_dims")
    rank = len(batch) + len(offset)
    _increasing("offset_dims", offset, rank)
    rest = iter(batch)
    kept = iter(window)
    shape = [next(kept) if i in offset else next(rest) for i in range(rank)]
    return (tensor(operand.dtype, shape),)


def _take_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """The dimension keeps its factor, but reading from it needs all of it."""
    axis = attrs.integer("dimension")
    table = FactorTable()
    dims = table.of(operands[0])
    return Factors(table.sizes, (dims, ((),)), (dims,), need_replication=frozenset(dims[axis]))


@define(
    "take",
    "operand indices",
    attr("dimension", INTEGER),
    attr("block", INTEGER, 1),
    traits=PARTIAL_READ,
    factors=_take_factors,
)
def _take(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Blocks of ``operand`` in another order: block i of the result is block ``indices[i]``.

    ``dimension`` is seen as blocks of ``block`` elements. An index outside of them, such as -1,
    gives a block of zeros. A block may be there several times, or not at all.

    Example:
        %y = take(%x, %i) dimension=1 block=2 : f32[B,6]
    """
    operand, indices = types
    axis, block = attrs.integer("dimension"), attrs.integer("block")
    require(0 <= axis < operand.rank, f"dimension {axis} of {operand.text}", 0)
    size = operand.shape[axis]
    fits = isinstance(size, int) and 0 < block <= size and size % block == 0
    require(fits, f"{operand.text} has no blocks of {block} along dimension {axis}", 0)
    ok = indices.dtype is s32 and indices.rank == 1
    require(ok, f"indices must be an s32 vector, got {indices.text}", 1)
    shape = list(operand.shape)
    shape[axis] = indices.shape[0] * block
    return (tensor(operand.dtype, shape),)


def _scatter_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """Factors of window dimensions that are written whole; every rank needs all indices."""
    table = FactorTable()
    target, updates = operands[0], operands[2]
    inserted = attrs.integers("inserted_window_dims")
    indexed = attrs.integers("scatter_dims_to_operand_dims")
    operand: list[DimFactors] = [()] * target.rank
    update: list[DimFactors] = [()] * updates.rank
    window = [i for i in range(target.rank) if i not in inserted]
    for i, j in zip(window, attrs.integers("update_window_dims"), strict=True):
        if target.shape[i] == updates.shape[j] and i not in indexed:
            operand[i] = update[j] = (table.new(target.shape[i]),)
    indices = ((),) * operands[1].rank
    return Factors(table.sizes, (tuple(operand), indices, tuple(update)), (tuple(operand),))


@define(
    "scatter",
    "operand indices updates",
    attr("update_window_dims", INTEGERS),
    attr("inserted_window_dims", INTEGERS),
    attr("scatter_dims_to_operand_dims", INTEGERS),
    attr("index_vector_dim", INTEGER),
    attr("kind", choice("assign", *REDUCTIONS), "assign"),
    traits=(*MOVES_PLACES, UpdatesPart(2)),
    factors=_scatter_factors,
)
def _scatter(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """``operand`` with each window of ``updates`` written at its index vector, or combined there.

    ``kind`` is ``assign``, or the op that combines an element and its update. A window that does
    not lie wholly inside the operand is dropped, never clamped. Where windows overlap under
    ``assign``, which one stays is not defined.

    Example:
        %y = scatter(%cache, %at, %rows) update_window_dims=[1] inserted_window_dims=[0] \
scatter_dims_to_operand_dims=[0] index_vector_dim=1 : f32[8,4]
    """
    operand, indices, updates = types
    check_scatter(operand, indices, updates, attrs)
    if attrs.text("kind") not in ("assign", "add"):
        check_reduction(operand, attrs.text("kind"))
    return (operand,)


def check_scatter(
    operand: TensorType, indices: TensorType, updates: TensorType, attrs: Attrs
) -> None:
    """Check the updates of one operand, and the numbers of their dimensions."""
    window_dims = attrs.integers("update_window_dims")
    inserted = attrs.integers("inserted_window_dims")
    batch, length = _indices((operand, indices), attrs.integer("index_vector_dim"))
    target = attrs.integers("scatter_dims_to_operand_dims")
    require(length == len(target), f"index vectors of {length} for {len(target)} dims", 1)
    require(updates.dtype is operand.dtype, f"{operand.text} and {updates.text} differ", 2)
    for dim in (*inserted, *target):
        require(0 <= dim < operand.rank, f"dim {dim} of {operand.text} does not exist", 0)
    _increasing("update_window_dims", window_dims, updates.rank)
    _increasing("inserted_window_dims", inserted, operand.rank)
    _distinct("scatter_dims_to_operand_dims", target)
    require(
        len(window_dims) + len(inserted) == operand.rank,
        f"{len(window_dims)} window and {len(inserted)} inserted dims for {operand.text}",
        2,
    )
    rest = [size for i, size in enumerate(updates.shape) if i not in window_dims]
    require(rest == batch, f"updates {updates.text} do not match indices {indices.text}", 2)
    limits = [size for i, size in enumerate(operand.shape) if i not in inserted]
    for dim, limit in zip(window_dims, limits, strict=True):
        _inside("window", updates.shape[dim], limit, 2)


def _check_starts(types: Sequence[TensorType], first: int) -> None:
    starts = types[first:]
    require(len(starts) == types[0].rank, f"needs {types[0].rank} starts, got {len(starts)}")
    for index, start in enumerate(starts, first):
        ok = start.rank == 0 and start.dtype.is_integer
        require(ok, f"a start must be an integer scalar, got {start.text}", index)
        require(start is starts[0], f"starts differ: {starts[0].text} and {start.text}", index)


def _dynamic_slice_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    pairs = zip(operands[0].shape, results[0].shape, strict=True)
    return passthrough_factors(operands, results, [size == whole for size, whole in pairs])


@define(
    "dynamic_slice",
    "operand *starts",
    attr("slice_sizes", DIMS),
    traits=(*PARTIAL_READ, Trait.ALIGNED),
    factors=_dynamic_slice_factors,
)
def _dynamic_slice(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The slice of these sizes at computed starts, clamped so that it is inside.

    Example:
        %y = dynamic_slice(%x, %i, %zero) slice_sizes=[1,4] : f32[1,4]
    """
    _check_starts(types, 1)
    sizes = attrs.dims("slice_sizes")
    require(len(sizes) == types[0].rank, f"needs {types[0].rank} slice_sizes", 0)
    for size, limit in zip(sizes, types[0].shape, strict=True):
        _inside("slice", size, limit, 0)
    return (tensor(types[0].dtype, sizes),)


def _dynamic_update_slice_factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    pairs = zip(operands[0].shape, operands[1].shape, strict=True)
    found = passthrough_factors(operands, results, [size == whole for size, whole in pairs])
    return replace(found, operands=(found.operands[0], found.operands[0], *found.operands[2:]))


@define(
    "dynamic_update_slice",
    "operand update *starts",
    traits=(*MOVES_PLACES, Trait.ALIGNED, UpdatesPart(1), LinearIn((0, 1))),
    factors=_dynamic_update_slice_factors,
)
def _dynamic_update_slice(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """``operand`` with ``update`` written at computed starts, clamped so that it is inside.

    Never used on a KV cache at the logical level: clamping would overwrite a live position.

    Example:
        %y = dynamic_update_slice(%x, %row, %i, %zero) : f32[8,4]
    """
    operand, update = types[0], types[1]
    _check_starts((operand, *types[2:]), 1)
    require(
        update.dtype is operand.dtype and update.rank == operand.rank,
        f"update {update.text} does not fit {operand.text}",
        1,
    )
    for size, limit in zip(update.shape, operand.shape, strict=True):
        _inside("update", size, limit, 1)
    return (operand,)
