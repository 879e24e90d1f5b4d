"""Gathers at places that are known when compiling, as ``x[..., [-2], :]``: slices."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import s32
from graphgen.passes.core import NoMatch, no_match, rule

# Steps from the constants that a model writes to the places that a gather reads.
_MOVES = ("convert", "reshape", "broadcast_in_dim", "concatenate")
_STEPS = frozenset((*_MOVES, "constant", "compare", "add", "select"))
_MOST = 64


def known_integers(value: Value) -> tuple[int, ...] | None:
    """Compute a few integers that depend on constants alone; ``None`` for others."""
    import numpy as np

    from graphgen.eval import NATIVE, RULES, Array

    def computed(value: Value) -> Array | None:
        op, size = value.op, value.type.size
        if op is None or op.name not in _STEPS or value.dtype.is_float:
            return None
        if not isinstance(size, int) or size > _MOST:
            return None
        if op.name == "constant":
            return NATIVE.literal(op.attrs.literal("value"))
        known = [computed(operand) for operand in op.operands]
        given = [array for array in known if array is not None]
        return RULES[op.name](NATIVE, op.attrs, given) if len(given) == len(known) else None

    found = computed(value)
    return None if found is None else tuple(int(x) for x in np.ravel(found))


@rule("gather")
def gather_of_run(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """A gather at known places, one after the other along one dimension, is a slice.

    Given:
        arg %x : f32[3,6,2]
        %i = constant() value=s64[2,1](4,5) : s64[2,1]
        %y = gather(%x, %i) offset_dims=[0,2] collapsed_slice_dims=[1] start_index_map=[1] \
index_vector_dim=1 slice_sizes=[3,1,2] : f32[3,2,2]

    Result:
        arg %x : f32[3,6,2]
        %i = constant() value=s64[2,1](4,5) : s64[2,1]
        %y = slice(%x) start_indices=[0,4,0] limit_indices=[3,6,2] : f32[3,2,2]
    """
    x, indices = op.operands
    along = op.attrs.integers("start_index_map")
    if len(along) != 1 or op.attrs.integers("collapsed_slice_dims") != along:
        return NoMatch("it does not look up along one dimension", x)
    (dim,), rank = along, x.type.rank
    kept = [size if i != dim else 1 for i, size in enumerate(x.shape)]
    batch = [i for i in range(op.result.type.rank) if i not in op.attrs.integers("offset_dims")]
    if list(op.attrs.dims("slice_sizes")) != kept or batch not in ([], [dim]):
        return NoMatch("the gathered slices are moved, or parts", x)
    places, size = known_integers(indices), x.shape[dim]
    if not places or not isinstance(size, int):
        return NoMatch("the places are not known", indices)
    first, last = places[0], places[-1]
    if first < 0 or last >= size or list(places) != list(range(first, last + 1)):
        return no_match("the places do not follow one another inside the dimension", indices)
    starts = [first if i == dim else 0 for i in range(rank)]
    limits = [last + 1 if i == dim else n for i, n in enumerate(x.shape)]
    return [b.reshape(b.slice(x, starts, limits), op.result.shape)]


@rule("gather")
def raise_embedding(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """A gather of whole rows of a table is an embedding."""
    table, indices = op.operands
    attrs = op.attrs
    if table.type.rank != 2 or attrs.dims("slice_sizes") != (1, table.shape[1]):
        return NoMatch("it does not look up whole rows of a matrix", table)
    whole = attrs.integers("collapsed_slice_dims") == attrs.integers("start_index_map") == (0,)
    last = op.result.type.rank - 1
    if not whole or attrs.integers("offset_dims") != (last,):
        return no_match("the rows do not become the last dimension", op.result)
    vector = attrs.integer("index_vector_dim")
    if vector < indices.type.rank and (vector != last or indices.shape[-1] != 1):
        return no_match("the indices are not one number each", indices, depth=2)
    rows, kind = table.shape[0], indices.dtype
    known = rows if isinstance(rows, int) else 0
    if kind is not s32 and not (kind.is_integer and 0 < known < 1 << 31):
        return no_match("the indices are not s32, and the rows not known", indices, depth=3)
    if vector < indices.type.rank:
        indices = b.reshape(indices, indices.shape[:-1])
    if kind is not s32 and kind.bits >= 32:
        # A place outside of the table is its first or last row, also where s32 cannot hold it.
        indices = b.op("clamp", b.literal(0, kind), indices, b.literal(known - 1, kind))
    return [b.embedding(table, b.convert(indices, s32))]
