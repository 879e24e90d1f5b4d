"""The pool of a cache, as the scheduler uses it: rows for requests, and room for their tokens."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Sized
from typing import Protocol

from graphgen.runtime.serving.block_rows import BlockRows
from graphgen.runtime.serving.row_pool import RowPool
from graphgen.runtime.session.session import Session


class CachePool(Protocol):
    """The rows of a cache, and where their tokens are kept.

    Attributes:
        wanted: tokens of all texts that have taken a row.
        reused: those of them that the cache held already.
    """

    wanted: int
    reused: int

    @property
    def rows(self) -> Sized:
        """The rows."""
        ...

    @property
    def free(self) -> int:
        """Number of rows that no request has."""
        ...

    @property
    def shares(self) -> bool:
        """True if a row can go on from what another request's row holds."""
        ...

    def take(self, tokens: Sequence[int]) -> tuple[int, int] | None:
        """Take a row with room for a text.

        Args:
            tokens: the text, at least one token; one is always left to be processed.

        Returns:
            The row, and the number of tokens at the front of the text that it holds; ``None``
            where rows or room run out.
        """
        ...

    def fits(self, tokens: Sequence[int], without: Collection[int] = ()) -> bool:
        """True if :meth:`take` finds a row with room for a text.

        Args:
            tokens: the text.
            without: rows in use that were given back first.
        """
        ...

    def held(self, tokens: Sequence[int]) -> int:
        """Tokens at the front of a text that the cache holds."""
        ...

    def is_worth(self, most: int, kept: int, count: int) -> bool:
        """True if a copy pays that makes a row hold ``most`` of ``count`` tokens, not ``kept``."""
        ...

    def reserve(self, row: int, length: int) -> bool:
        """Make room for the first ``length`` tokens of a row; False where there is none."""
        ...

    def trim(self, row: int) -> None:
        """Give up the room of a row beyond its tokens."""
        ...

    def append(self, row: int, tokens: Sequence[int]) -> None:
        """Note tokens that a launch has appended."""
        ...

    def give_back(self, row: int) -> None:
        """Free a row; what it holds may serve another request with the same beginning."""
        ...

    def clear(self) -> None:
        """Forget what all rows hold; no request has one."""
        ...


def pool_of(session: Session, *, prefix_sharing: bool = True) -> CachePool:
    """The pool of a session: blocks where its cache is paged, else rows.

    Args:
        session: whose cache it is.
        prefix_sharing: texts go on from what the cache holds of their beginnings.
    """
    table = session.blocks
    if table is not None:
        return BlockRows(
            session.rows,
            (table.blocks, table.block),
            session.limit,
            session.assign_blocks,
            session.copy_block,
            shares=prefix_sharing and session.programs.is_open,
        )
    copy = session.copy_row if session.copies_rows else None
    return RowPool(session.rows, session.may_start, copy, keeps=prefix_sharing)
