"""Tiles one after the other in the program itself, for accelerators, which have no loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.composites.partial_attention import (
    PartialAttention,
    combined,
    partial_attention,
    without_sinks,
)
from graphgen.ir import DType, Op, Value
from graphgen.passes.attention.tile_operands import OperandTiles, SlotRange, cuts_of
from graphgen.passes.attention.tile_sizes import TileSizes, results_of, sinks_of
from graphgen.passes.attention.window_slots import WindowedAttention, slots_from, windowed


@dataclass(frozen=True, slots=True)
class FixedTile:
    """A tile whose first token and slot are known.

    Attributes:
        b: where ops are appended.
        first_token, first_slot: their numbers.
        tokens, slots: how many it has; the last one of a row or a column has fewer.
        every_token: it has all tokens.
        own: values in the place of some of the program.
    """

    b: Builder
    first_token: int
    first_slot: int
    tokens: int
    slots: int
    every_token: bool
    own: Mapping[Value, Value]

    def whole(self, value: Value) -> Value:
        """The value."""
        return self.own.get(value, value)

    def part(self, value: Value, cut: SlotRange) -> Value:
        """A slice."""
        found = self.whole(value)
        for dim, first, size in (
            (cut.tokens, self.first_token, self.tokens),
            (cut.slots, self.first_slot, self.slots),
        ):
            if dim is not None and size != value.shape[dim]:
                found = self.b.slice_dim(found, dim, first, first + size)
        return found

    def since_first_slot(self, value: Value) -> Value:
        """A difference to a constant."""
        return self.b.binary("subtract", value, self.first_slot) if self.first_slot else value


@dataclass(frozen=True, slots=True)
class WindowTile(FixedTile):
    """A tile whose slots begin at places that the program computes.

    Attributes:
        firsts: s32 [], one a row.
    """

    firsts: Sequence[Value]

    def part(self, value: Value, cut: SlotRange) -> Value:
        """A slice at the place of each row."""
        if cut.slots is None:
            return FixedTile.part(self, value, cut)
        assert cut == SlotRange(slots=1), f"{value!r} is cut as {cut}"
        return slots_from(self.b, self.whole(value), self.firsts, self.slots)


def unrolled(b: Builder, op: Op, sizes: TileSizes, softmax: DType) -> Sequence[Value]:
    """The results of the attention ``op`` in tiles.

    Args:
        b: where ops are appended.
        op: the composite.
        sizes: of the tiles. All are written out: positions are data, so that none is known to be
            above the diagonal of a causal mask. Of a window it is known how many slots it has.
        softmax: the type of the powers.
    """
    sinks = sinks_of(op)
    own = _own_positions(b, op)
    found = windowed(op) if sizes.read else None
    blocks = _window_tiles(b, sizes, own, found) if found is not None else _tiles(b, sizes, own)
    made: list[Sequence[Value]] = []
    for tiles in blocks:
        part = _block(b, op, tiles, softmax)
        made.append(results_of(b, op, part, sinks))
    if len(made) == 1:
        return made[0]
    return [b.concatenate(parts, 1) for parts in zip(*made, strict=True)]


def _own_positions(b: Builder, op: Op) -> Mapping[Value, Value]:
    """The query and the positions of its tokens, of this attention alone.

    Layers have the same masks. Merged, as compilers merge what is computed twice, those of all
    tiles would be kept from the first layer to the last; a barrier keeps them apart.
    """
    query, mask = op.operands[0], op.operands[3]
    producer = mask.producer("attention_mask") or mask.producer("tree_mask")
    if producer is None:
        return {}
    held = (query, producer.operands[0])
    attrs = {"opcode": "opt-barrier", "form": "(xx)->(xx)"}
    types = tuple([value.type for value in held])
    kept = b.emit("hlo.opaque", held, {**attrs, "results": types}).results
    return dict(zip(held, kept, strict=True))


def _tiles(b: Builder, sizes: TileSizes, own: Mapping[Value, Value]) -> Iterator[list[FixedTile]]:
    """The tiles of each block of tokens."""
    for first in range(0, sizes.tokens, sizes.token_block):
        tokens = min(sizes.token_block, sizes.tokens - first)
        every = tokens == sizes.tokens
        yield [
            FixedTile(b, first, slot, tokens, min(sizes.slot_block, sizes.slots - slot), every, own)
            for slot in range(0, sizes.slots, sizes.slot_block)
        ]


def _window_tiles(
    b: Builder, sizes: TileSizes, own: Mapping[Value, Value], found: WindowedAttention
) -> Iterator[list[FixedTile]]:
    """The tiles of each block of tokens, from the first slot that it reads on."""
    positions = own.get(found.positions, found.positions)
    read = sizes.read
    for first, *_ in _tiles(b, sizes, own):
        begins = found.firsts(b, first.part(positions, SlotRange(tokens=1)), read)
        yield [
            WindowTile(
                *(b, first.first_token, slot, first.tokens, min(sizes.slot_block, read - slot)),
                *(first.every_token, own, [b.binary("add", at, slot) for at in begins]),
            )
            for slot in range(0, read, sizes.slot_block)
        ]


def _block(b: Builder, op: Op, tiles: list[FixedTile], softmax: DType) -> PartialAttention:
    """The attention of one block of tokens."""
    cuts = cuts_of(op)
    found: PartialAttention | None = None
    for tile in tiles:
        operands = OperandTiles(tile)
        parts = [operands.of(x, cut) for x, cut in zip(op.operands, cuts, strict=True)]
        part = partial_attention(b, without_sinks(parts), op.attrs, softmax)
        found = part if found is None else combined(b, found, part)
    assert found is not None
    return found
