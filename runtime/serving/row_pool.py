"""Rows of a cache: the request in each, and the tokens each still holds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

# Tokens for which a copy takes less time than processing them again.
WORTH = 32


@dataclass(slots=True)
class CacheRow:
    """One row.

    Attributes:
        tokens: that it holds, from position 0.
        used: time of its last use, as a count of uses.
        taken: whether a request has it.
    """

    tokens: list[int] = field(default_factory=list[int])
    used: int = 0
    taken: bool = False


class RowPool:
    """The rows of a cache; a free one keeps its tokens until it is taken.

    Args:
        rows: R, number of rows.
        may_start: whether a row may go on at a position, as
            :meth:`graphgen.runtime.session.session.Session.may_start`.
        copy: copies what a row holds onto another row; ``None`` if rows cannot be copied.
        keeps: whether a text goes on from what a row holds; without it each is processed whole.
        worth: number of tokens for which a row is copied; for a copy that leaves one token to be
            processed any number will do, as it saves a launch.

    Attributes:
        rows: the rows.
        wanted: tokens of all texts that have taken a row.
        reused: those of them that the row held already, or got by a copy.
    """

    def __init__(
        self,
        rows: int,
        may_start: Callable[[int, int], bool],
        copy: Callable[[int, int], None] | None = None,
        *,
        keeps: bool = True,
        worth: int = WORTH,
    ) -> None:
        self.rows = [CacheRow() for _ in range(rows)]
        self._may_start = may_start
        self._copy = copy if keeps else None
        self._keeps = keeps
        self._worth = worth
        self._uses = 0
        self.wanted = self.reused = 0

    @property
    def free(self) -> int:
        """Number of rows that no request has."""
        return sum(not row.taken for row in self.rows)

    def take(self, tokens: Sequence[int]) -> tuple[int, int] | None:
        """Take the free row that holds most of a text, else the least recently used one.

        Where a row of another request holds enough more, its contents are copied onto the least
        recently used free row.

        Args:
            tokens: the text, at least one token; one is always left to be processed.

        Returns:
            The row, and the number of tokens at the front of the text that it holds and keeps;
            ``None`` without a free row.
        """
        free = [index for index, row in enumerate(self.rows) if not row.taken]
        if not free:
            return None
        held = {index: self._held(index, tokens) for index in free}
        chosen = min(free, key=lambda index: (-held[index], self.rows[index].used, index))
        kept = held[chosen]
        source, most = self._source(tokens)
        if self._copy is not None and self.is_worth(most, kept, len(tokens)):
            chosen = min(free, key=lambda index: (self.rows[index].used, index))
            kept = most
            self._copy(source, chosen)
            self.rows[chosen].tokens = self.rows[source].tokens[:most]
        row = self.rows[chosen]
        row.taken = True
        del row.tokens[kept:]
        self.wanted += len(tokens)
        self.reused += kept
        return chosen, kept

    def fits(self, tokens: Sequence[int], without: Collection[int] = ()) -> bool:
        """True if there is a free row, or would be without some rows in use."""
        return bool(self.free or without)

    @property
    def shares(self) -> bool:
        """True if rows can be copied."""
        return self._copy is not None

    def held(self, tokens: Sequence[int]) -> int:
        """Tokens at the front of a text that any row holds."""
        return max(self._held(index, tokens) for index in range(len(self.rows)))

    def is_worth(self, most: int, kept: int, count: int) -> bool:
        """True if a copy pays that makes a row hold ``most`` of ``count`` tokens, not ``kept``."""
        return worth_copying(most, kept, count, self._worth)

    def reserve(self, row: int, length: int) -> bool:
        """True: a row has room for every text that is accepted."""
        return True

    def trim(self, row: int) -> None:
        """Nothing: the slots of a row are its own."""

    def _source(self, tokens: Sequence[int]) -> tuple[int, int]:
        """The row of a request that holds most of a text, and the number of tokens."""
        held = [(self._held(i, tokens), -i) for i, row in enumerate(self.rows) if row.taken]
        most, index = max(held, default=(0, 0))
        return -index, most

    def append(self, row: int, tokens: Sequence[int]) -> None:
        """Note tokens that a launch has appended."""
        self.rows[row].tokens += tokens

    def give_back(self, row: int) -> None:
        """Free a row; what it holds may serve another request with the same beginning."""
        self._uses += 1
        self.rows[row].taken, self.rows[row].used = False, self._uses

    def clear(self) -> None:
        """Forget what all rows hold."""
        for row in self.rows:
            row.tokens.clear()

    def _held(self, index: int, tokens: Sequence[int]) -> int:
        """Tokens at the front of a text from which the row can go on."""
        if not self._keeps:
            return 0
        shared = shared_length(self.rows[index].tokens, tokens[:-1])
        return shared if self._may_start(index, shared) else 0


def worth_copying(most: int, kept: int, count: int, worth: int = WORTH) -> bool:
    """True if a copy pays that makes a row hold ``most`` of ``count`` tokens, not ``kept``.

    For a copy that leaves one token to be processed any number will do, as it saves a launch.
    """
    return most > kept and (most == count - 1 or most - kept >= worth)


def shared_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of tokens at the front that two texts have in common."""
    if a[: len(b)] == b[: len(a)]:
        return min(len(a), len(b))
    return next(place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
