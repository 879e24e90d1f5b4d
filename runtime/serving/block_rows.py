"""Rows of a paged cache: the blocks of each, shared by texts that begin alike."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from graphgen.runtime.serving.row_pool import shared_length, worth_copying


@dataclass(slots=True, eq=False)
class BlockRow:
    """The blocks of one sequence.

    Attributes:
        tokens: processed so far; those of position i are in block ``blocks[i // block]``.
        blocks: in the order of positions; may reach beyond the tokens.
        keys: of the full blocks.
    """

    tokens: list[int] = field(default_factory=list[int])
    blocks: list[int] = field(default_factory=list[int])
    keys: list[bytes] = field(default_factory=list[bytes])


class BlockPool:
    """Assigns N blocks to sequences.

    Args:
        blocks: N.
        block: slots of a block.
    """

    def __init__(self, blocks: int, block: int) -> None:
        self.block = block
        self.counts = [0] * blocks
        self._free = list(reversed(range(blocks)))
        self._known: dict[bytes, int] = {}
        self._keys: dict[int, bytes] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def available(self) -> int:
        """Number of blocks that no sequence has."""
        return len(self._free) + len(self._idle)

    @property
    def cached(self) -> int:
        """Number of those that hold the beginning of a text."""
        return len(self._idle)

    def begin(self, tokens: Sequence[int]) -> BlockRow:
        """A sequence with the known blocks at the front of a text; one token is always left."""
        row = BlockRow()
        for key, found in self._found(tokens):
            self._take(found)
            row.blocks.append(found)
            row.keys.append(key)
        row.tokens += tokens[: len(row.blocks) * self.block]
        return row

    def known(self, tokens: Sequence[int]) -> int:
        """Tokens at the front of a text that are in known blocks; one token is always left."""
        return self.block * len(self.found(tokens))

    def found(self, tokens: Sequence[int]) -> list[int]:
        """Numbers of the known blocks at the front of a text; one token is always left."""
        return [number for _, number in self._found(tokens)]

    def fork(self, row: BlockRow, length: int) -> BlockRow:
        """Another sequence that goes on from the first tokens of one, in the same blocks."""
        assert length <= len(row.tokens)
        held = row.blocks[: -(-length // self.block)]
        for number in held:
            self._take(number)
        return BlockRow(row.tokens[:length], held, row.keys[: length // self.block])

    def _found(self, tokens: Sequence[int]) -> Iterator[tuple[bytes, int]]:
        """Key and number of the known blocks at the front of a text."""
        keys: list[bytes] = []
        for end in range(self.block, len(tokens), self.block):
            keys.append(_key(keys, tokens[end - self.block : end]))
            found = self._known.get(keys[-1])
            if found is None:
                return
            yield keys[-1], found

    def reserve(self, row: BlockRow, length: int) -> list[tuple[int, int]] | None:
        """Get blocks in which the positions up to ``length`` can be written.

        Returns:
            Pairs of blocks, from and to, to be copied before the write; ``None``, with nothing
            changed, where there are not enough blocks.
        """
        first = len(row.tokens) // self.block
        shared = [
            at for at, number in enumerate(row.blocks) if at >= first and self.counts[number] > 1
        ]
        missing = max(-(-length // self.block) - len(row.blocks), 0)
        if missing + len(shared) > self.available:
            return None
        copies: list[tuple[int, int]] = []
        for at in shared:
            old, new = row.blocks[at], self._new()
            self._drop(old)
            row.blocks[at] = new
            copies.append((old, new))
        if length > len(row.tokens):
            # A block of a longer text that was forked and has ended: it will hold another one.
            for number in row.blocks[first:]:
                self._forget(number)
        row.blocks += [self._new() for _ in range(missing)]
        return copies

    def trim(self, row: BlockRow) -> None:
        """Give up the blocks beyond the tokens of a sequence."""
        kept = -(-len(row.tokens) // self.block)
        while len(row.blocks) > kept:
            self._drop(row.blocks.pop())

    def extend(self, row: BlockRow, tokens: Sequence[int]) -> None:
        """Add tokens that have been written; blocks that are full now can be found by others."""
        row.tokens += tokens
        assert len(row.tokens) <= len(row.blocks) * self.block
        for at in range(len(row.keys), len(row.tokens) // self.block):
            key = _key(row.keys, row.tokens[at * self.block : (at + 1) * self.block])
            row.keys.append(key)
            # The same text may have been processed twice at a time; one of the blocks is known.
            if key not in self._known:
                self._known[key] = row.blocks[at]
                self._keys[row.blocks[at]] = key

    def release(self, row: BlockRow) -> None:
        """End a sequence; its last blocks are evicted before its first ones."""
        for number in reversed(row.blocks):
            self._drop(number)
        row.tokens, row.blocks, row.keys = [], [], []

    def _take(self, number: int) -> None:
        self.counts[number] += 1
        self._idle.pop(number, None)

    def _drop(self, number: int) -> None:
        self.counts[number] -= 1
        if self.counts[number]:
            return
        if number in self._keys:
            self._idle[number] = None
        else:
            self._free.append(number)

    def _new(self) -> int:
        if self._free:
            number = self._free.pop()
        else:
            number, _ = self._idle.popitem(last=False)
            self._forget(number)
        self.counts[number] = 1
        return number

    def _forget(self, number: int) -> None:
        """Let no text find a block that will be written."""
        key = self._keys.pop(number, None)
        if key is not None:
            del self._known[key]


def _key(before: Sequence[bytes], tokens: Sequence[int]) -> bytes:
    """The key of a full block after blocks with the keys ``before``."""
    made = sha256(before[-1] if before else b"")
    made.update(b"".join(token.to_bytes(8, "little") for token in tokens))
    return made.digest()


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
