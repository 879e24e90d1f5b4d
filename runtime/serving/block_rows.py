"""Rows of a paged cache: the blocks of each, shared by texts that begin alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from graphgen.runtime.serving.block_pool import BlockPool, BlockRow
from graphgen.runtime.serving.row_pool import shared_length, worth_copying

# Gives a row blocks; and the number of tokens that they hold, or None for no change.
Assign = Callable[[int, Sequence[int], int | None], None]


class BlockRows:
    """The rows of a paged cache; each has the blocks that its text needs.

    A text takes over full blocks that hold its beginning, those of ended requests too, and the last
    partial block of a row in use by a copy. A request has blocks for its prompt from the time when
    it gets a row; those of its answer come as it grows.

    Args:
        rows: R, number of rows.
        blocks: number of blocks, and slots of each.
        limit: largest number of tokens of a row.
        assign: gives a row its blocks on the devices.
        copy: copies a block onto another one.
        shares: whether texts take blocks over; without it each is processed whole.

    Attributes:
        shares: as given.
        rows: the blocks of each row; ``None`` for a row that no request has.
        blocks: the blocks.
        wanted: tokens of all texts that have taken a row.
        reused: those of them that were in blocks already.
    """

    def __init__(
        self,
        rows: int,
        blocks: tuple[int, int],
        limit: int,
        assign: Assign,
        copy: Callable[[int, int], None],
        *,
        shares: bool = True,
    ) -> None:
        self.shares = shares
        self.rows: list[BlockRow | None] = [None] * rows
        self.blocks = BlockPool(*blocks)
        self._sizes = blocks
        self._limit = limit
        self._assign = assign
        self._copy = copy
        self.wanted = self.reused = 0

    @property
    def free(self) -> int:
        """Number of rows that no request has."""
        return self.rows.count(None)

    def take(self, tokens: Sequence[int]) -> tuple[int, int] | None:
        """Take a free row, with blocks for a text; ``None`` where rows or blocks run out.

        Args:
            tokens: the text, at least one token; one is always left to be processed.

        Returns:
            The row, and the number of tokens at the front of the text that are in its blocks.
        """
        if not self.free:
            return None
        row = self._begun(tokens)
        copies = self.blocks.reserve(row, len(tokens))
        if copies is None:
            self.blocks.release(row)
            return None
        index = self.rows.index(None)
        self.rows[index] = row
        kept = len(row.tokens)
        self._changed(index, row, copies, kept)
        self.wanted += len(tokens)
        self.reused += kept
        return index, kept

    def _begun(self, tokens: Sequence[int]) -> BlockRow:
        """The blocks that hold the beginning of a text."""
        if not self.shares:
            return BlockRow()
        source, most = self._source(tokens, self._taken())
        return self.blocks.begin(tokens) if source is None else self.blocks.fork(source, most)

    def _source(self, tokens: Sequence[int], rows: list[BlockRow]) -> tuple[BlockRow | None, int]:
        """The row among these that a text goes on from, if not from known blocks; and its place."""
        known = self.blocks.known(tokens)
        source = max(rows, key=lambda one: _shared(one, tokens), default=None)
        most = 0 if source is None else _shared(source, tokens)
        return (source, most) if self.is_worth(most, known, len(tokens)) else (None, known)

    def fits(self, tokens: Sequence[int], without: Collection[int] = ()) -> bool:
        """True if :meth:`take` finds a row and blocks for a text.

        Args:
            tokens: the text.
            without: rows in use that were given back first.
        """
        rows = [row for index, row in enumerate(self.rows) if row and index not in without]
        if len(rows) == len(self.rows):
            return False
        used = {number for row in rows for number in row.blocks}
        source, most = self._source(tokens, rows)
        block = self.blocks.block
        begun = self.blocks.found(tokens) if source is None else source.blocks[: most // block]
        begun = begun if self.shares else []
        new = -(-len(tokens) // block) - sum(number in used for number in begun)
        return new <= len(self.blocks.counts) - len(used)

    def held(self, tokens: Sequence[int]) -> int:
        """Tokens at the front of a text that any block holds."""
        if not self.shares:
            return 0
        shared = max((_shared(row, tokens) for row in self._taken()), default=0)
        return max(shared, self.blocks.known(tokens))

    def is_worth(self, most: int, kept: int, count: int) -> bool:
        """True if a copy pays that makes a row hold ``most`` of ``count`` tokens, not ``kept``."""
        return worth_copying(most, kept, count)

    def reserve(self, row: int, length: int) -> bool:
        """Get blocks for the first ``length`` tokens of a row; False where there are too few."""
        held = self._of(row)
        before = len(held.blocks)
        copies = self.blocks.reserve(held, min(length, self._limit))
        if copies is None:
            return False
        if copies or len(held.blocks) > before:
            self._changed(row, held, copies, None)
        return True

    def trim(self, row: int) -> None:
        """Give up the blocks of a row beyond its tokens.

        The table on the devices keeps them, as nothing reads or writes there until the row gets
        blocks again.
        """
        self.blocks.trim(self._of(row))

    def append(self, row: int, tokens: Sequence[int]) -> None:
        """Note tokens that a launch has appended."""
        self.blocks.extend(self._of(row), tokens)

    def give_back(self, row: int) -> None:
        """Free a row; its full blocks stay until their room is needed."""
        self.blocks.release(self._of(row))
        self.rows[row] = None

    def clear(self) -> None:
        """Forget what all blocks hold."""
        self.rows = [None] * len(self.rows)
        self.blocks = BlockPool(*self._sizes)

    def _changed(
        self, index: int, row: BlockRow, copies: Sequence[tuple[int, int]], kept: int | None
    ) -> None:
        for source, target in copies:
            self._copy(source, target)
        self._assign(index, row.blocks, kept)

    def _of(self, row: int) -> BlockRow:
        found = self.rows[row]
        assert found is not None
        return found

    def _taken(self) -> list[BlockRow]:
        return [row for row in self.rows if row is not None]


def _shared(row: BlockRow, tokens: Sequence[int]) -> int:
    """Tokens at the front of a text, but for its last one, that a row holds."""
    return shared_length(row.tokens, tokens[:-1])
