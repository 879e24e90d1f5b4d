"""Raise embedding: a lookup of whole rows."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import s32
from graphgen.passes.core import NoMatch, no_match, rule


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
