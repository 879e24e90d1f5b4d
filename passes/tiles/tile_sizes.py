"""The tiles of one attention: how many there are, and which of them some token reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TileSizes:
    """Blocks of tokens times blocks of slots; the last ones may be short.

    Attributes:
        tokens, slots: S and C, of the attention.
        token_block, slot_block: of a tile.
        causal: token s reads no slot after slot s.
    """

    tokens: int
    slots: int
    token_block: int
    slot_block: int
    causal: bool = False

    @property
    def rows(self) -> int:
        """Blocks of tokens."""
        return -(-self.tokens // self.token_block)

    @property
    def columns(self) -> int:
        """Blocks of slots."""
        return -(-self.slots // self.slot_block)

    @property
    def whole(self) -> bool:
        """True if one tile has everything."""
        return self.rows == self.columns == 1

    def read(self, first_token: int, first_slot: int) -> bool:
        """True unless no token of the block from ``first_token`` on reads the block of slots."""
        last = min(first_token + self.token_block, self.tokens) - 1
        return not self.causal or first_slot <= last

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.token_block}x{self.slot_block}"
