"""The tiles of one attention: how many there are, and their sizes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TileSizes:
    """Blocks of tokens times blocks of slots; the last ones may be short.

    Attributes:
        tokens, slots: S and C, of the attention.
        token_block, slot_block: of a tile.
    """

    tokens: int
    slots: int
    token_block: int
    slot_block: int

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

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.token_block}x{self.slot_block}"
