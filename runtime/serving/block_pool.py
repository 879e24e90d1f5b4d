"""Blocks of a paged cache: which row has each, shared prefixes by content, eviction by last use.

A full block is known by the SHA-256 of all tokens up to its end, so that equal prefixes are found
by one lookup a block. Known blocks that no row has stay until their room is needed, the least
recently used first. A block that several rows have is copied before one of them writes to it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256


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
