"""The tiles of one attention: how many there are, and their sizes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TileSizes:
    """Blocks of tokens times blocks of slots; the last ones may be short.

    Attributes:
        tokens, slots: S and C, of the attention.
        token_block, slot_block: of a tile.
        read: slots that the tiles of a block of tokens have together, where these begin at the
            first that its window lets it read; 0 for all slots.
    """

    tokens: int
    slots: int
    token_block: int
    slot_block: int
    read: int = 0

    @property
    def rows(self) -> int:
        """Blocks of tokens."""
        return -(-self.tokens // self.token_block)

    @property
    def columns(self) -> int:
        """Blocks of slots that a block of tokens reads."""
        return -(-(self.read or self.slots) // self.slot_block)

    @property
    def whole(self) -> bool:
        """True if one tile has everything."""
        return self.rows == self.columns == 1 and not self.read

    @property
    def text(self) -> str:
        """For people."""
        last = f" of {self.read} slots" if self.read else ""
        return f"{self.token_block}x{self.slot_block}{last}"
