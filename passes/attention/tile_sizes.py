"""The tiles of one attention: how many there are, and their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.composites.partial_attention import PartialAttention, finished, part_results
from graphgen.ir import Op, Value
from graphgen.ops.attention import attention_terms

# The ops that are computed in tiles.
TILED = ("attention", "attention_part")


def sinks_of(op: Op) -> Value | None:
    """The sinks of an attention; a part has none."""
    at = attention_terms(op.operands).sinks
    return None if at is None else op.operands[at]


def results_of(b: Builder, op: Op, part: PartialAttention, sinks: Value | None) -> Sequence[Value]:
    """The results of ``op`` for the tokens of ``part``.

    Args:
        b: where ops are appended.
        op: one of :data:`TILED`.
        part: over all slots.
        sinks: those of the op, as they are called where ops are appended.
    """
    if op.name == "attention_part":
        return part_results(b, part)
    return [finished(b, part, op.result.dtype, sinks)]


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
