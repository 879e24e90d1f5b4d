"""Blocks of a paged cache: a model of the memory says what each sequence finds in its blocks."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from graphgen.runtime.serving.block_rows import BlockPool, BlockRow

BLOCK, BLOCKS = 3, 7
# Few tokens, so that prefixes are often equal.
TEXT = st.lists(st.integers(0, 1), min_size=1, max_size=10)


class Memory(RuleBasedStateMachine):
    """Sequences that begin, fork, go on and end; a slot holds the whole text up to its position."""

    rows = Bundle("rows")

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(BLOCKS, BLOCK)
        self.slots: dict[tuple[int, int], tuple[int, ...]] = {}
        self.texts: dict[BlockRow, list[int]] = {}

    def write(self, row: BlockRow, tokens: list[int]) -> None:
        """What a runtime does with a sequence and its next tokens."""
        available = self.pool.available
        copies = self.pool.reserve(row, len(row.tokens) + len(tokens))
        if copies is None:
            assert self.pool.available == available
            return
        for source, target in copies:
            for slot in range(BLOCK):
                if (source, slot) in self.slots:
                    self.slots[target, slot] = self.slots[source, slot]
        text = self.texts[row]
        for token in tokens:
            text.append(token)
            at = len(text) - 1
            self.slots[row.blocks[at // BLOCK], at % BLOCK] = tuple(text)
        self.pool.extend(row, tokens)

    @rule(target=rows, text=TEXT)
    def begin(self, text: list[int]) -> BlockRow:
        row = self.pool.begin(text)
        assert len(row.tokens) < len(text)
        self.texts[row] = text[: len(row.tokens)]
        self.write(row, text[len(row.tokens) :])
        return row

    @rule(target=rows, row=rows, fewer=st.integers(0, 4))
    def fork(self, row: BlockRow, fewer: int) -> BlockRow:
        length = max(len(row.tokens) - fewer, 0)
        other = self.pool.fork(row, length)
        self.texts[other] = self.texts[row][:length]
        return other

    @rule(row=rows, tokens=TEXT)
    def go_on(self, row: BlockRow, tokens: list[int]) -> None:
        self.write(row, tokens)

    @rule(row=consumes(rows))
    def end(self, row: BlockRow) -> None:
        self.pool.release(row)
        del self.texts[row]

    @invariant()
    def every_sequence_finds_its_own_text(self) -> None:
        for row, text in self.texts.items():
            assert row.tokens == text
            for at in range(len(text)):
                held = self.slots[row.blocks[at // BLOCK], at % BLOCK]
                assert held == tuple(text[: at + 1])

    @invariant()
    def counts_add_up(self) -> None:
        held = [number for row in self.texts for number in row.blocks]
        assert self.pool.counts == [held.count(number) for number in range(BLOCKS)]
        assert self.pool.available == BLOCKS - len(set(held))


TestMemory = Memory.TestCase
TestMemory.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def filled(pool: BlockPool, text: list[int]) -> BlockRow:
    row = pool.begin(text)
    more = text[len(row.tokens) :]
    assert pool.reserve(row, len(text)) == []
    pool.extend(row, more)
    return row


def test_a_prefix_is_shared_and_the_least_recently_used_is_evicted():
    pool = BlockPool(4, 2)
    first = filled(pool, [1, 2, 3, 4, 5])
    second = pool.begin([1, 2, 3, 4, 9])
    assert second.blocks == first.blocks[:2]
    assert pool.available == 1
    pool.release(second)
    pool.release(first)
    assert pool.available == 4
    # Three new blocks take the two free ones and the end of the prefix; its beginning stays.
    filled(pool, [7, 7, 8, 8, 6])
    assert pool.begin([1, 2, 3, 4, 9]).tokens == [1, 2]


def test_a_block_that_a_fork_writes_is_not_found_by_its_former_text():
    pool = BlockPool(4, 3)
    first = filled(pool, [1, 1, 1])
    fork = pool.fork(first, 2)
    pool.release(first)
    assert pool.reserve(fork, 3) == []
    pool.extend(fork, [0])
    assert pool.known([1, 1, 1, 0]) == 0
    assert pool.known([1, 1, 0, 0]) == 3


def test_a_block_that_two_sequences_have_is_copied_before_it_is_written():
    pool = BlockPool(3, 4)
    first = filled(pool, [1, 2])
    second = pool.fork(first, 2)
    shared = first.blocks[0]
    assert pool.reserve(second, 3) == [(shared, second.blocks[0])]
    assert second.blocks[0] != shared
    assert pool.reserve(first, 3) == []
    assert pool.reserve(second, 13) is None


def test_blocks_beyond_the_tokens_are_given_up():
    pool = BlockPool(4, 4)
    row = pool.begin([1, 2, 3, 4, 5])
    assert pool.reserve(row, 13) == []
    pool.extend(row, [1, 2, 3, 4, 5])
    assert (len(row.blocks), pool.available) == (4, 0)
    pool.trim(row)
    assert (len(row.blocks), pool.available) == (2, 2)
    pool.trim(row)
    pool.release(row)
    assert pool.available == 4
