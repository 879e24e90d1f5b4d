"""The layout of a paged cache: position p of a row is in the block that a table names."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.build.range_check import in_range
from graphgen.ir import Dim, TensorType, Value, tensor
from graphgen.ir.dtype import pred, s32

# The input with the blocks of each row.
BLOCK_TABLE = "block_table"


@dataclass(frozen=True, slots=True)
class PagedRows:
    """A cache [R,M,...] kept as blocks [N,b,...]: block ``table[row, p div b]``, slot ``p mod b``.

    The entry of the table s32 [R,T] is negative where a row has no block, T = M / b rounded up.
    Blocks are the rows of ``kv_update`` and ``cache_read``, so that both write and read as they do
    in plain rows. A row is read in the order of its positions, and masks stay as they are.

    Attributes:
        rows, slots: R and M of the plain rows.
        block: b, slots of a block.
        blocks: N.
    """

    rows: int
    slots: int
    block: int
    blocks: int

    @property
    def table(self) -> TensorType:
        """The type of the table, s32 [R,T]."""
        return tensor(s32, (self.rows, self.blocks_of(self.slots)))

    def blocks_of(self, positions: int) -> int:
        """The number of blocks that hold the first ``positions`` of a row."""
        return -(-positions // self.block)

    def physical(self, plain: TensorType) -> TensorType:
        """The type of the blocks of a cache [R,M,...]."""
        return tensor(plain.dtype, (self.blocks, self.block, *plain.shape[2:]))

    def identity(self, b: Builder) -> Value:
        """A table for any calls: each row has its own blocks.

        Where there are fewer than R times T blocks, all rows have as many, from position 0 on.
        """
        rows, columns = self.table.dims
        row, column = (b.iota(s32, self.table.shape, axis) for axis in (0, 1))
        if self.blocks >= rows * columns:
            return b.binary("add", b.binary("multiply", row, columns), column)
        number = b.binary("add", b.binary("multiply", column, rows), row)
        inside = b.compare(number, b.full(self.blocks // rows * rows, number.type), "LT")
        return b.select(inside, number, b.full(-1, number.type))

    def place_of(
        self, b: Builder, table: Value, seq_ids: Value, positions: Value
    ) -> tuple[Value, Value]:
        """Blocks s32 [B*S] and slots in them s32 [B*S,1] of ``positions`` s32 [B,S].

        The block is -1 for padding, for what is beyond the cache, and for an idle row.
        """
        shape = positions.shape
        count = shape[0] * shape[1]
        rows = b.broadcast_in_dim(seq_ids, shape, [0])
        known = b.binary("and", in_range(b, rows, self.rows), in_range(b, positions, self.slots))
        found = _elements(b, table, rows, b.binary("divide", positions, self.block))
        blocks = b.select(known, found, b.full(-1, found.type))
        slots = b.modulo(positions, self.block)
        return b.reshape(blocks, (count,)), b.reshape(slots, (count, 1))

    def blocks_read(
        self, b: Builder, table: Value, seq_ids: Value, attended: int, *, in_place: bool
    ) -> Value:
        """The blocks of the first ``attended`` positions of each row, s32 [B*ceil(C/b)]."""
        count = self.blocks_of(attended)
        front = table if count == table.shape[1] else b.slice_dim(table, 1, 0, count)
        if not in_place:
            front = _rows(b, front, seq_ids)
        return b.reshape(front, (front.shape[0] * front.shape[1],))

    def read(self, b: Builder, blocks: Value, cache: Value, rows: Dim, attended: int) -> Value:
        """The slots of the first ``attended`` positions [B,C,...] of the cache's blocks."""
        parts = b.cache_read(cache, blocks, self.block)
        count = self.blocks_of(attended) * self.block
        whole = b.reshape(parts, (rows, count, *cache.shape[2:]))
        return whole if count == attended else b.slice_dim(whole, 1, 0, attended)

    def pack(self, b: Builder, part: Value, table: Value) -> Value:
        """The blocks [N,b,...] of plain rows [R,M,...]; unassigned blocks are zeros."""
        rows, columns = self.table.dims
        window = part.shape[2:]
        missing = columns * self.block - self.slots
        zero = b.literal(0.0 if part.dtype.is_float else 0, part.dtype)
        if missing:
            none = [0] * part.type.rank
            part = b.pad(part, zero, none, [0, missing, *none[2:]])
        new = b.reshape(part, (rows * columns, self.block, *window))
        empty = b.broadcast_in_dim(zero, (self.blocks, self.block, *window), [])
        slots = b.iota(s32, (rows * columns, self.block), 1)
        return b.kv_update(empty, new, b.reshape(table, (rows * columns,)), slots)

    def unpack(self, b: Builder, parts: Value, table: Value) -> Value:
        """The plain rows [n,R,M,...] of all ranks' blocks [n,N,b,...]; zeros without a block."""
        rows, columns = self.table.dims
        found = b.take(parts, b.reshape(table, (rows * columns,)), 1)
        shape = (parts.shape[0], rows, columns * self.block, *parts.shape[3:])
        return b.slice_dim(b.reshape(found, shape), 2, 0, self.slots)

    def held(self, b: Builder, table: Value) -> Value:
        """pred [R,M]: the slots of plain rows that are in a block."""
        rows, columns = self.table.dims
        has = b.compare(table, b.full(0, table.type), "GE")
        wide = b.broadcast_in_dim(has, (rows, columns, self.block), [0, 1])
        flat = b.reshape(wide, (rows, columns * self.block))
        assert flat.dtype is pred
        return b.slice_dim(flat, 1, 0, self.slots)


def _rows(b: Builder, table: Value, rows: Value) -> Value:
    """Rows of a table [R,T] by their numbers [B]; one that is not there is clamped."""
    return b.op(
        "gather",
        table,
        rows,
        offset_dims=(1,),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        index_vector_dim=1,
        slice_sizes=(1, table.shape[1]),
    )


def _elements(b: Builder, table: Value, rows: Value, columns: Value) -> Value:
    """Elements of a table [R,T] by rows and columns [B,S]; what is not there is clamped."""
    batch, active = rows.shape
    pairs = [b.reshape(number, (batch, active, 1)) for number in (rows, columns)]
    return b.op(
        "gather",
        table,
        b.concatenate(pairs, 2),
        offset_dims=(),
        collapsed_slice_dims=(0, 1),
        start_index_map=(0, 1),
        index_vector_dim=2,
        slice_sizes=(1, 1),
    )
