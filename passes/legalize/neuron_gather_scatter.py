"""Gathers and scatters in the forms neuronx-cc takes, and is fast on: whole rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from graphgen.build import Builder
from graphgen.build.range_check import in_range
from graphgen.ir import Op, Value
from graphgen.ir.dtype import s32
from graphgen.passes.core import NoMatch, no_match, rule

_MOST_ROWS = 2**31 - 1


def _vectors(b: Builder, op: Op) -> Value:
    """The index vectors of a gather or scatter as s32, along the last dimension."""
    indices, vector = op.operands[1], op.attrs.integer("index_vector_dim")
    if vector == indices.type.rank:
        indices = b.reshape(indices, (*indices.shape, 1))
    elif vector != indices.type.rank - 1:
        order = [dim for dim in range(indices.type.rank) if dim != vector]
        indices = b.transpose(indices, [*order, vector])
    return b.convert(indices, s32)


def _leading(dims: Sequence[int]) -> bool:
    """True for more than one dimension, counted from the first."""
    return len(dims) > 1 and list(dims) == list(range(len(dims)))


def _component(b: Builder, vectors: Value, at: int) -> Value:
    """One number of each index vector."""
    *batch, _ = vectors.shape
    return b.reshape(b.slice_dim(vectors, vectors.type.rank - 1, at, at + 1), batch)


@rule("gather")
def gather_of_elements(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """A window along an indexed dimension becomes one index for each of its elements.

    The compiler wants ``start_index_map`` and the dimensions a window keeps to be disjoint.

    Given:
        arg %t : f32[8,4]
        arg %i : s32[3,1]
        %y = gather(%t, %i) offset_dims=[1,2] collapsed_slice_dims=[] start_index_map=[0] \
index_vector_dim=1 slice_sizes=[1,4] : f32[3,1,4]

    Result:
        arg %t : f32[8,4]
        arg %i : s32[3,1]
        %0 = reshape(%i) shape=[3,1,1] : s32[3,1,1]
        %y = gather(%t, %0) offset_dims=[2] collapsed_slice_dims=[0] start_index_map=[0] \
index_vector_dim=2 slice_sizes=[1,4] : f32[3,1,4]
    """
    table, a = op.operands[0], op.attrs
    mapped, collapsed = a.integers("start_index_map"), a.integers("collapsed_slice_dims")
    offset, sizes = a.integers("offset_dims"), [int(str(size)) for size in a.dims("slice_sizes")]
    kept = [dim for dim in range(table.type.rank) if dim not in collapsed]
    spread = [dim for dim in kept if dim in mapped]
    if not spread:
        return no_match("no window reaches along an indexed dimension", table)
    if 0 in op.result.type.dims:
        return no_match("the result is empty", op.result, depth=2)
    vectors = _vectors(b, op)
    *batch, length = vectors.type.dims
    lengths = [sizes[dim] for dim in spread]
    full = (*batch, *lengths, length)
    wide = b.reshape(vectors, (*batch, *[1] * len(spread), length))
    if any(size > 1 for size in lengths):
        wide = _spread(b, op, wide, full, spread, sizes)
    rest = [dim for dim in kept if dim not in spread]
    first = len(full) - 1
    found = b.op(
        "gather",
        table,
        wide,
        offset_dims=tuple(range(first, first + len(rest))),
        collapsed_slice_dims=tuple(sorted({*collapsed, *spread})),
        start_index_map=mapped,
        index_vector_dim=first,
        slice_sizes=tuple(1 if dim in spread else sizes[dim] for dim in range(table.type.rank)),
    )
    place = {dim: len(batch) + k for k, dim in enumerate(spread)}
    place |= {dim: first + k for k, dim in enumerate(rest)}
    inner = iter([place[dim] for dim in kept])
    outer = iter(range(len(batch)))
    order = [next(inner) if i in offset else next(outer) for i in range(op.result.type.rank)]
    return [found if order == sorted(order) else b.transpose(found, order)]


def _spread(
    b: Builder, op: Op, vectors: Value, full: Sequence[int], spread: list[int], sizes: list[int]
) -> Value:
    """Index vectors [batch..., windows..., L]: starts, clamped, plus the place in the window."""
    table = op.operands[0].type.dims
    mapped = op.attrs.integers("start_index_map")
    shape = full[:-1]
    parts: list[Value] = []
    for at, dim in enumerate(mapped):
        start = _component(b, vectors, at)
        if dim in spread and sizes[dim] > 1:
            last = b.full(table[dim] - sizes[dim], start.type)
            start = b.clamp(b.full(0, start.type), start, last)
        start = b.broadcast_in_dim(start, shape, range(len(shape)))
        if dim in spread and sizes[dim] > 1:
            axis = len(shape) - len(spread) + spread.index(dim)
            start = start + b.iota(s32, shape, axis)
        parts.append(b.reshape(start, (*shape, 1)))
    return parts[0] if len(parts) == 1 else b.concatenate(parts, len(shape))


def _flat(b: Builder, vectors: Value, limits: Sequence[int], *, clamp: bool) -> Value:
    """One index [batch..., 1] into the joined dimensions; -1 for indices out of bounds.

    With ``clamp``, each number is moved inside instead, as a gather does.
    """
    total: Value | None = None
    inside: Value | None = None
    for at, limit in enumerate(limits):
        number = _component(b, vectors, at)
        if clamp:
            number = b.clamp(b.full(0, number.type), number, b.full(limit - 1, number.type))
        else:
            holds = in_range(b, number, limit)
            inside = holds if inside is None else b.binary("and", inside, holds)
        total = number if total is None else b.binary("multiply", total, limit) + number
    assert total is not None
    if inside is not None:
        total = b.select(inside, total, b.full(-1, total.type))
    return b.reshape(total, (*total.shape, 1))


@rule("gather")
def gather_of_rows(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """Indices of several leading dimensions become one index into a table of their rows."""
    table, a = op.operands[0], op.attrs
    mapped, sizes = a.integers("start_index_map"), a.dims("slice_sizes")
    if not _leading(mapped) or a.integers("collapsed_slice_dims") != mapped:
        return no_match("its index vectors do not name leading dimensions alone", table)
    count = len(mapped)
    limits = table.type.dims[:count]
    if 0 in op.result.type.dims:
        return no_match("the result is empty", op.result, depth=2)
    if prod(limits) > _MOST_ROWS:
        return no_match(f"{prod(limits)} rows cannot be numbered in 32 bits", table, depth=3)
    vectors = _vectors(b, op)
    rows = b.reshape(table, (prod(limits), *table.shape[count:]))
    index = _flat(b, vectors, limits, clamp=True)
    found = b.op(
        "gather",
        rows,
        index,
        offset_dims=a.integers("offset_dims"),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        index_vector_dim=index.type.rank - 1,
        slice_sizes=(1, *sizes[count:]),
    )
    return [found]


@rule("scatter")
def scatter_of_rows(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """Index vectors of several leading dimensions become one index into a table of their rows.

    It is the form in which AWS's own code updates a cache. Rows outside of the operand stay
    outside.
    """
    table, updates, a = op.operands[0], op.operands[2], op.attrs
    mapped = a.integers("scatter_dims_to_operand_dims")
    if not _leading(mapped) or a.integers("inserted_window_dims") != mapped:
        return no_match("its index vectors do not name leading dimensions alone", table)
    count = len(mapped)
    limits = table.type.dims[:count]
    if 0 in table.type.dims or 0 in updates.type.dims:
        return no_match("nothing is written", updates, depth=2)
    if prod(limits) > _MOST_ROWS:
        return no_match(f"{prod(limits)} rows cannot be numbered in 32 bits", table, depth=3)
    vectors = _vectors(b, op)
    rows = b.reshape(table, (prod(limits), *table.shape[count:]))
    index = _flat(b, vectors, limits, clamp=False)
    made = b.op(
        "scatter",
        rows,
        index,
        updates,
        update_window_dims=a.integers("update_window_dims"),
        inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,),
        index_vector_dim=index.type.rank - 1,
        kind=a.text("kind"),
    )
    return [b.reshape(made, table.shape)]
