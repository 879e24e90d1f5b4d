"""Cache layouts: functions in IR between the positions of tokens and the slots that hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from graphgen.build.builder import Builder
from graphgen.ir import Dim, Value


class CacheLayout(Protocol):
    """A map between the positions of a sequence and the slots of its row in a cache [R,M,...].

    Programs compute slots and positions by these functions, so another layout leaves attention as
    it is: ``kv_update`` writes to ``slot_of``, ``attention_mask`` compares with ``position_of``.
    """

    def slot_of(self, b: Builder, positions: Value) -> Value:
        """The slots s32 [B,S] of ``positions`` s32 [B,S]; -1 for what the cache does not hold."""
        ...

    def position_of(self, b: Builder, lengths: Value, attended: Dim) -> Value:
        """The positions s32 [B,attended] in the first slots of each row; negative for none.

        ``lengths`` s32 [B] are the positions of each row so far.
        """
        ...


@dataclass(frozen=True, slots=True)
class PlainRows:
    """Position p of a row is in its slot p."""

    def slot_of(self, b: Builder, positions: Value) -> Value:
        """The positions themselves."""
        return positions

    def position_of(self, b: Builder, lengths: Value, attended: Dim) -> Value:
        """The number of each slot; -1 from the length of the row on."""
        return b.key_positions(lengths, attended)
