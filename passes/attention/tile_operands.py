"""The operands of attention for one tile: producers of masks and distances are made again for it.

A mask, a distance, and what is added to or widened from a cache is computed of the tile's own
tokens and slots, so that no value over all tokens and slots is needed. Other operands are sliced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from graphgen.build import Builder
from graphgen.ir import Dim, Op, Value
from graphgen.ops import OPS, Trait
from graphgen.ops.attention import attention_terms
from graphgen.passes.outline.op_templates import OpKind


class SlotRange(NamedTuple):
    """The dimension of a value that is of tokens, and the one of slots; ``None`` for none."""

    tokens: int | None = None
    slots: int | None = None

    @property
    def dims(self) -> set[int]:
        """The dimensions there are."""
        return {dim for dim in self if dim is not None}


class Tile(Protocol):
    """A block of tokens and a block of slots."""

    @property
    def b(self) -> Builder:
        """The builder that its ops are appended with."""
        ...

    @property
    def tokens(self) -> int:
        """Number of its tokens."""
        ...

    @property
    def slots(self) -> int:
        """Number of its slots."""
        ...

    @property
    def every_token(self) -> bool:
        """True if it has all tokens."""
        ...

    def whole(self, value: Value) -> Value:
        """A value of the program, as the tile sees it."""
        ...

    def part(self, value: Value, cut: SlotRange) -> Value:
        """The tile's part of a value of the program."""
        ...

    def since_first_slot(self, value: Value) -> Value:
        """Integers of the tile, minus the number of its first slot."""
        ...


# Composites over tokens and slots: the cut of each operand of which it is none of.
_PRODUCERS = {
    "attention_mask": (SlotRange(tokens=1), SlotRange(slots=1)),
    "tree_mask": (SlotRange(), SlotRange(slots=1), SlotRange()),
    "key_distance": (SlotRange(tokens=1),),
}
# Ops between a cache and attention that make more bytes than they read.
_WIDENING = ("convert", "bitcast_convert", "dequantize_rows", "multiply", "broadcast_in_dim")


def cuts_of(op: Op) -> list[SlotRange]:
    """The cut of each operand of an attention."""
    operands = op.operands
    terms, rank = attention_terms(operands), operands[3].type.rank
    found = [
        SlotRange(tokens=1),
        SlotRange(slots=1),
        SlotRange(slots=1),
        SlotRange(rank - 2, rank - 1),
    ]
    for at in terms:
        if at is not None:
            rank = operands[at].type.rank
            found.append(SlotRange() if rank == 1 else SlotRange(rank - 2, rank - 1))
    return found


@dataclass(slots=True)
class OperandTiles:
    """Makes operands for one tile.

    Attributes:
        tile: its tokens and slots.
        made: what was made for it, by value and cut.
    """

    tile: Tile
    made: dict[tuple[Value, SlotRange], Value] = field(
        default_factory=dict[tuple[Value, SlotRange], Value]
    )

    def of(self, value: Value, cut: SlotRange) -> Value:
        """The tile's part of a value."""
        cut = _held(value, cut)
        found = self.made.get((value, cut))
        if found is None:
            found = self.made[value, cut] = self._make(value, cut)
        return found

    def _make(self, value: Value, cut: SlotRange) -> Value:
        op = value.op
        if not cut.dims:
            return self.tile.whole(value)
        parts = remade_of(value, cut, every_token=self.tile.every_token)
        if op is None or parts is None:
            return self.tile.part(value, cut)
        if op.name == "key_distance":
            return self._distance(op)
        return self._emit(op, [self.of(x, each) for x, each in parts], cut)

    def _distance(self, op: Op) -> Value:
        """From the tile's first slot on: ``c - (position - first) = (first + c) - position``."""
        positions = self.tile.since_first_slot(self.of(op.operands[0], SlotRange(tokens=1)))
        return self.tile.b.key_distance(positions, self.tile.slots)

    def _emit(self, op: Op, operands: Sequence[Value], cut: SlotRange) -> Value:
        attrs = dict(op.attrs)
        if op.name == "broadcast_in_dim":
            attrs["shape"] = self._shape(op.result, cut)
        return self.tile.b.emit(op.name, operands, attrs).result

    def _shape(self, value: Value, cut: SlotRange) -> tuple[Dim, ...]:
        sizes = list(value.shape)
        for dim, size in ((cut.tokens, self.tile.tokens), (cut.slots, self.tile.slots)):
            if dim is not None:
                sizes[dim] = size
        return tuple(sizes)


def attention_kind(op: Op, *, every_token: bool) -> OpKind:
    """The kind of an attention by what its tiles, which have all tokens or not, are made of."""
    numbers: dict[tuple[Value, SlotRange], int] = {}
    reads: dict[Value, int] = {}
    # Operands are read whole too, as by the sum of all values.
    key: list[object] = [op.name, op.attrs]
    key += [reads.setdefault(value, len(reads)) for value in op.operands]
    work = [*zip(op.operands, cuts_of(op), strict=True)][::-1]
    while work:
        value, cut = work.pop()
        cut = _held(value, cut)
        known = numbers.get((value, cut))
        if known is not None:
            key.append(known)
            continue
        numbers[value, cut] = len(numbers)
        parts = remade_of(value, cut, every_token=every_token)
        if value.op is None or parts is None:
            key += [value.type, cut, reads.setdefault(value, len(reads))]
        else:
            key += [value.type, cut, value.op.name, value.op.attrs]
            work += parts[::-1]
    return OpKind(tuple(key), tuple(reads))


def remade_of(
    value: Value, cut: SlotRange, *, every_token: bool
) -> list[tuple[Value, SlotRange]] | None:
    """The operands, with their cuts, of whose tiles a tile of a value is made.

    ``None`` for one that is cut out of the value; one over tokens alone is as small as the query.
    """
    op = value.op
    if op is None or cut.slots is None or not remade(op, cut, every_token=every_token):
        return None
    return [*zip(op.operands, operand_cuts(op, cut), strict=True)]


def remade(op: Op, cut: SlotRange, *, every_token: bool) -> bool:
    """True if a tile of the result of ``op`` is made of tiles of its operands.

    Args:
        op: makes a value.
        cut: of the value.
        every_token: the tile has all tokens; the nodes of a tree are one tile's.
    """
    if op.name == "tree_mask":
        return every_token
    if op.name in _PRODUCERS:
        return True
    if cut.tokens is None:
        return op.name in _WIDENING
    return op.name == "broadcast_in_dim" or OPS[op.name].has(Trait.ELEMENTWISE)


def operand_cuts(op: Op, cut: SlotRange) -> Sequence[SlotRange]:
    """The cut of each operand of an op of which a tile is made of tiles."""
    if op.name in _PRODUCERS:
        return _PRODUCERS[op.name]
    if op.name == "broadcast_in_dim":
        places = op.attrs.integers("dimensions")
        (operand,) = op.operands

        def at(dim: int | None) -> int | None:
            if dim not in places:
                return None
            place = places.index(dim)
            # A single element stands for all of them.
            return place if operand.shape[place] == op.result.shape[dim] else None

        return [SlotRange(at(cut.tokens), at(cut.slots))]
    return [cut] * len(op.operands)


def _held(value: Value, cut: SlotRange) -> SlotRange:
    """The cut without the dimensions that a scalar has not, as a bound of ``clamp``."""
    return cut if value.type.rank else SlotRange()
