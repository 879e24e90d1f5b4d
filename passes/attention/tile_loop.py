"""Tiles in loops, for the CPU: over blocks of tokens, and in each over blocks of slots.

A tile whose mask allows nothing is left out when the program runs. Loops and choices run functions
of the module: what these read of the program is handed down to them, level by level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.composites.partial_attention import (
    PartialAttention,
    combined,
    filled,
    no_slots,
    partial_attention,
    sum_of_values,
    without_sinks,
)
from graphgen.ir import DType, Op, Value, tensor
from graphgen.ir.dtype import s32
from graphgen.passes.attention.tile_operands import OperandTiles, SlotRange, cuts_of
from graphgen.passes.attention.tile_sizes import TileSizes, results_of, sinks_of
from graphgen.passes.outline.function_levels import FunctionLevel, Loops
from graphgen.passes.outline.shared_functions import SharedFunctions

# Slices by tokens alone: of a value, along a dimension.
_Cuts = dict[tuple[Value, int], Value]


@dataclass(slots=True)
class _Places:
    """The places of the tiles of a loop.

    Attributes:
        program: the function with the attention.
        sizes: of the tiles.
        by_tokens, by_slots: the bodies of the two loops.
        first_token, first_slot: s32 [], the tile's first ones, in the body of each.
        cut: what was cut by tokens alone, in ``by_tokens``.
    """

    program: FunctionLevel
    sizes: TileSizes
    by_tokens: FunctionLevel
    first_token: Value
    by_slots: FunctionLevel
    first_slot: Value
    cut: _Cuts


@dataclass(frozen=True, slots=True)
class LoopTile:
    """The tile of a turn.

    Attributes:
        level: where its ops are appended.
        places: of the loops.
    """

    level: FunctionLevel
    places: _Places

    @property
    def b(self) -> Builder:
        """The builder of the level."""
        return self.level.b

    @property
    def tokens(self) -> int:
        """Number of its tokens."""
        return min(self.places.sizes.token_block, self.places.sizes.tokens)

    @property
    def slots(self) -> int:
        """Number of its slots."""
        return min(self.places.sizes.slot_block, self.places.sizes.slots)

    @property
    def every_token(self) -> bool:
        """It has all tokens."""
        return self.places.sizes.rows == 1

    def whole(self, value: Value) -> Value:
        """The value, handed down."""
        return self.level.lift(value, self.places.program)

    def part(self, value: Value, cut: SlotRange) -> Value:
        """A slice; of tokens alone it is cut once for all tiles of a block of tokens."""
        places = self.places
        tokens = cut.tokens if places.sizes.rows > 1 else None
        slots = cut.slots if places.sizes.columns > 1 else None
        if slots is not None:
            return self._slice(self.level, value, tokens, slots)
        if tokens is None:
            return self.whole(value)
        home, key = places.by_tokens, (value, tokens)
        if key not in places.cut:
            places.cut[key] = self._slice(home, value, tokens, None)
        return self.level.lift(places.cut[key], home)

    def _slice(
        self, level: FunctionLevel, value: Value, tokens: int | None, slots: int | None
    ) -> Value:
        places, b = self.places, level.b
        zero, sizes = b.literal(0, s32), list(value.shape)
        starts = [zero] * len(sizes)
        if tokens is not None:
            starts[tokens] = level.lift(places.first_token, places.by_tokens)
            sizes[tokens] = self.tokens
        if slots is not None:
            starts[slots] = level.lift(places.first_slot, places.by_slots)
            sizes[slots] = self.slots
        return b.dynamic_slice(level.lift(value, places.program), starts, sizes)

    def since_first_slot(self, value: Value) -> Value:
        """A difference to the number of the turn."""
        places = self.places
        if places.sizes.columns == 1:
            return value
        first = self.level.lift(places.first_slot, places.by_slots)
        return self.b.binary("subtract", value, self.b.broadcast_in_dim(first, value.shape, []))


@dataclass(frozen=True, slots=True)
class AttentionLoop:
    """One attention in tiles.

    Attributes:
        op: the composite.
        sizes: of the tiles.
        softmax: the type of the powers.
        loops: builds the loops.
    """

    op: Op
    sizes: TileSizes
    softmax: DType
    loops: Loops

    def build(self, b: Builder) -> Sequence[Value]:
        """The results of the op."""
        program, op, sizes = FunctionLevel(b), self.op, self.sizes
        values = sum_of_values(b, op.operands[2])
        query = op.operands[0]
        # A block of tokens is read once, before its result is written: that has its place.
        alike = query.type is op.results[0].type and sizes.tokens % sizes.token_block == 0
        start = [query] if alike else [b.full(0.0, result.type) for result in op.results]

        def block(level: FunctionLevel, number: Value, state: Sequence[Value]) -> Sequence[Value]:
            first = _first(level.b, number, sizes.token_block, sizes.tokens)
            cut: _Cuts = {}
            if alike and sizes.rows > 1:
                tokens = (query.shape[0], sizes.token_block, *query.shape[2:])
                cut[query, 1] = level.b.dynamic_slice(state[0], _at(level.b, query, first), tokens)
            made = self._block(program, level, first, values, cut)
            if sizes.rows == 1:
                return made
            return [
                level.b.dynamic_update_slice(whole, part, _at(level.b, whole, first))
                for whole, part in zip(state, made, strict=True)
            ]

        return self.loops.iterate(program, "attention.tokens", sizes.rows, start, block)

    def _block(
        self, program: FunctionLevel, level: FunctionLevel, first: Value, values: Value, cut: _Cuts
    ) -> Sequence[Value]:
        """The results for a block of tokens, from the token ``first`` on."""
        op, sizes = self.op, self.sizes

        def tile(inner: FunctionLevel, number: Value, state: Sequence[Value]) -> Sequence[Value]:
            slot = _first(inner.b, number, sizes.slot_block, sizes.slots)
            places = _Places(program, sizes, level, first, inner, slot, cut)
            return self._tile(places, number, state)

        query, key, value = op.operands[:3]
        shape = (query.shape[0], min(sizes.token_block, sizes.tokens), *query.shape[2:])
        nothing = no_slots(level.b, tensor(query.dtype, shape), key.type, value.type)
        part = PartialAttention(
            *self.loops.iterate(level, "attention.slots", sizes.columns, nothing, tile)
        )
        values = level.lift(values, program)
        part = filled(level.b, part, values, sizes.slots, self.softmax)
        sinks = sinks_of(op)
        return results_of(level.b, op, part, None if sinks is None else level.lift(sinks, program))

    def _tile(self, places: _Places, number: Value, state: Sequence[Value]) -> Sequence[Value]:
        """The state with one tile more, unless its mask allows nothing."""
        level, op, cuts = places.by_slots, self.op, cuts_of(self.op)
        allowed = OperandTiles(LoopTile(level, places)).of(op.operands[3], cuts[3])
        if self.sizes.slots % self.sizes.slot_block and self.sizes.columns > 1:
            allowed = level.b.binary("and", allowed, self._new_slots(places, number, allowed))
        every = list(range(allowed.type.rank))

        def combine(inner: FunctionLevel) -> Sequence[Value]:
            operands = OperandTiles(LoopTile(inner, places))
            parts = [
                inner.lift(allowed, level) if at == 3 else operands.of(x, cut)
                for at, (x, cut) in enumerate(zip(op.operands, cuts, strict=True))
            ]
            part = partial_attention(inner.b, without_sinks(parts), op.attrs, self.softmax)
            before = PartialAttention(*[inner.lift(value, level) for value in state])
            return combined(inner.b, before, part)

        holds = level.b.reduce(allowed, every, "or")
        return self.loops.choice(level, "attention.tile", holds, state, combine)

    def _new_slots(self, places: _Places, number: Value, allowed: Value) -> Value:
        """False for slots that the last but one tile had: the last one begins earlier."""
        b = places.by_slots.b
        begins = b.binary("multiply", number, self.sizes.slot_block)
        known = b.binary("subtract", begins, places.first_slot)
        slots = b.iota(s32, allowed.shape, allowed.type.rank - 1)
        return b.compare(slots, b.broadcast_in_dim(known, allowed.shape, []), "GE")


def _first(b: Builder, number: Value, block: int, count: int) -> Value:
    """The start of the block of this number; the last one ends where ``count`` ends."""
    first = b.binary("multiply", number, block)
    return b.binary("minimum", first, count - block) if count % block else first


def _at(b: Builder, value: Value, first: Value) -> list[Value]:
    """The start indices of the part of ``value`` [B,S,...] from a token on."""
    zero = b.literal(0, s32)
    return [zero, first, *[zero] * (value.type.rank - 2)]


def looped(
    b: Builder, op: Op, sizes: TileSizes, softmax: DType, shared: SharedFunctions
) -> Sequence[Value]:
    """The results of the attention ``op`` in tiles, in loops.

    Args:
        b: where they are appended.
        op: the composite.
        sizes: of the tiles.
        softmax: the type of the powers.
        shared: gets the functions of the loops.
    """
    return AttentionLoop(op, sizes, softmax, Loops(shared)).build(b)
