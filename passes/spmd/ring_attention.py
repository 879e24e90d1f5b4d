"""Attention of one rank in a ring: blocks of keys and values come by, one after the other.

Each rank has queries of its tokens and keys and values of its slots. A block goes to the next rank
while the products with it are computed: neither reads what the other makes. Parts are combined as
tiles are, with a running maximum and sum (ring attention, arXiv 2310.01889).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.composites.partial_attention import (
    PartialAttention,
    attention_of_part,
    combined,
    without_sinks,
)
from graphgen.ir import Op, Value
from graphgen.ir.dtype import s32
from graphgen.ir.sharding import Axes
from graphgen.ops.attention import attention_terms
from graphgen.passes.attention.tile_operands import OperandTiles, SlotRange, cuts_of
from graphgen.passes.sharding.mesh import Mesh
from graphgen.passes.sharding.ring_layout import ring_pairs


@dataclass(frozen=True, slots=True)
class RingTile:
    """Tokens of this rank, and a block of slots whose number the program computes.

    Attributes:
        b: where ops are appended.
        tokens: how many it has.
        slots: how many it has.
        first_slot: s32 [], the number of its first slot among those of all ranks.
    """

    b: Builder
    tokens: int
    slots: int
    first_slot: Value

    @property
    def every_token(self) -> bool:
        """A rank of a ring has some of the tokens."""
        return False

    def whole(self, value: Value) -> Value:
        """The value."""
        return value

    def part(self, value: Value, cut: SlotRange) -> Value:
        """The slots of the block; values have this rank's tokens alone."""
        if cut.slots is None:
            return value
        sizes, starts = list(value.shape), [self.b.literal(0, s32)] * value.type.rank
        starts[cut.slots], sizes[cut.slots] = self.first_slot, self.slots
        return self.b.dynamic_slice(value, starts, sizes)

    def since_first_slot(self, value: Value) -> Value:
        """A difference to the number of the first slot."""
        b = self.b
        return b.binary("subtract", value, b.broadcast_in_dim(self.first_slot, value.shape, []))


@dataclass(frozen=True, slots=True)
class Ring:
    """One attention.

    Attributes:
        b: appends to the program of a rank.
        mesh: the ranks.
        axes: of the ring.
        place: s32 [], of this rank in the ring.
        op: the attention of all ranks.
        operands: this rank's parts; masks and their like have its tokens and all slots.
    """

    b: Builder
    mesh: Mesh
    axes: Axes
    place: Value
    op: Op
    operands: Sequence[Value]

    @property
    def tokens(self) -> int:
        """Tokens of a rank."""
        return self.operands[0].type.dims[1]

    @property
    def slots(self) -> int:
        """Slots of a rank."""
        return self.operands[1].type.dims[1]

    def attention(self) -> Sequence[Value]:
        """This rank's part of the result."""
        b, found = self.b, None
        for key, value, source in self.blocks():
            first = b.binary("multiply", source, self.slots)
            part = self.part(RingTile(b, self.tokens, self.slots, first), key, value)
            found = part if found is None else combined(b, found, part)
        assert found is not None
        at = attention_terms(self.operands).sinks
        sinks = None if at is None else self.operands[at]
        return [attention_of_part(b, found, self.op.result.dtype, sinks)]

    def blocks(self) -> Iterator[tuple[Value, Value, Value]]:
        """Keys, values and the place of their rank; the next block is under way before each."""
        b, (key, value) = self.b, self.operands[1:3]
        ranks, pairs = self.mesh.size(self.axes), ring_pairs(self.mesh.groups(self.axes))
        width, end = key.type.dims[3], key.type.dims[3] + value.type.dims[3]
        block, source = b.concatenate([key, value], 3), self.place
        for hop in range(ranks):
            after = b.collective_permute(block, pairs) if hop < ranks - 1 else block
            if hop:
                key, value = b.slice_dim(block, 3, 0, width), b.slice_dim(block, 3, width, end)
                behind = b.binary("subtract", self.place, hop)
                inside = b.compare(behind, b.literal(0, s32), "GE")
                source = b.select(inside, behind, b.binary("add", behind, ranks))
            yield key, value, source
            block = after

    def part(self, tile: RingTile, key: Value, value: Value) -> PartialAttention:
        """The attention of this rank's tokens over a block."""
        cuts, given = cuts_of(self.op), without_sinks(self.operands)
        made = OperandTiles(tile)
        rest = [made.of(x, cut) for x, cut in list(zip(given, cuts, strict=False))[3:]]
        operands = [given[0], key, value, *rest]
        part = self.b.emit("attention_part", operands, dict(self.op.attrs))
        return PartialAttention(*part.results)
