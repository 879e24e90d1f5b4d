"""The part of the operands of attention that one step of a ring reads."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import Value
from graphgen.ir.dtype import s32
from graphgen.passes.tiles.operand_tiles import Cut


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

    def part(self, value: Value, cut: Cut) -> Value:
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
