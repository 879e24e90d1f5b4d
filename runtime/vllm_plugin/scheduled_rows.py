"""Launches of rows whose places in the caches another scheduler decides, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.runtime.session.row_results import Logits
from graphgen.runtime.session.session import Session
from graphgen.runtime.session.step_call import packed

# Reads the logits of some tokens of a row: the number of the first one in its step, f32 [n,V].
LogitsReader = Callable[[int, Logits], None]


@dataclass(frozen=True, slots=True)
class ScheduledRow:
    """The tokens of one request in one step.

    Attributes:
        blocks: of the cache, in the order of positions; enough for the tokens.
        start: position of the first token: tokens that the blocks hold.
        tokens: at least one.
        last: number of tokens, from the end, whose logits the step returns: more than one where
            all but the first of them are proposals.
        reader: reads the logits of every token, part by part; ``None`` for none.
    """

    blocks: Sequence[int]
    start: int
    tokens: Sequence[int]
    last: int = 1
    reader: LogitsReader | None = None

    @property
    def of_every_token(self) -> bool:
        """Logits of other tokens than the last one are read."""
        return self.last > 1 or self.reader is not None


def launch_rows(session: Session, rows: Sequence[ScheduledRow]) -> Logits:
    """Process the tokens of a step.

    Tokens that follow a text go in one launch, then proposals, then prompts; a row whose beginning
    is processed in the same step follows the row that does it. A request is in any row: its cache
    is its blocks.

    Args:
        session: with a paged cache.
        rows: at most as many as the session has.

    Returns:
        f32 [n,V]: the logits of each row's ``last`` tokens, row after row.

    Raises:
        GraphgenError: GG0705 for blocks that a row has not; as for :meth:`Session.step`.
    """
    assert session.blocks is not None
    _place(session, rows)
    begins = [0, *accumulate(row.last for row in rows)]
    logits = np.zeros((begins[-1], session.vocabulary), np.float32)
    for places in _in_order(rows, session.blocks.block):
        for place, first, found in _launched(session, rows, places):
            row = rows[place]
            if row.reader is not None:
                row.reader(first, found)
            column = first - (len(row.tokens) - row.last)
            kept = found[max(-column, 0) :]
            begin = begins[place] + max(column, 0)
            logits[begin : begin + len(kept)] = kept
    return logits


def check_session(session: Session) -> None:
    """Refuse programs that cannot answer another scheduler (GG0705)."""
    if session.blocks is None:
        raise GraphgenError(
            "GG0705",
            "the caches of these programs are rows, and a scheduler of blocks needs blocks",
            help="compile with --block-size",
        )
    if not session.vocabulary or session.chooses:
        raise GraphgenError(
            "GG0705",
            "these programs choose tokens, and the scheduler's sampler needs logits",
            help="compile without on-device sampling",
        )


def _place(session: Session, rows: Sequence[ScheduledRow]) -> None:
    """Let row i of the session be request i of the step."""
    assert session.blocks is not None
    table = np.full_like(session.blocks.table, -1)
    lengths = np.zeros_like(session.lengths)
    for place, row in enumerate(rows):
        table[place, : len(row.blocks)] = row.blocks
        lengths[place] = row.start
    if not np.array_equal(table, session.blocks.table):
        session.use_layout(session.blocks.name, table)
    session.take_back(lengths)


def _in_order(rows: Sequence[ScheduledRow], block: int) -> Iterator[list[int]]:
    """Places of rows in groups: a group reads blocks that earlier groups have written.

    A scheduler that shares beginnings lets a request go on from blocks that another one fills in
    the same step.

    Args:
        rows: of a step.
        block: slots of a block.
    """
    writers = {
        number: place
        for place, row in enumerate(rows)
        for number in row.blocks[row.start // block : -(-(row.start + len(row.tokens)) // block)]
    }
    waiting = {
        place: {writers.get(number, place) for number in row.blocks[: -(-row.start // block)]}
        - {place}
        for place, row in enumerate(rows)
    }
    while waiting:
        ready = [place for place, before in waiting.items() if not before & waiting.keys()]
        assert ready, "rows wait for each other"
        yield ready
        for place in ready:
            del waiting[place]


def _launched(
    session: Session, rows: Sequence[ScheduledRow], places: Sequence[int]
) -> Iterator[tuple[int, int, Logits]]:
    """Launch rows that do not read what others of them write.

    Args:
        session: with the rows in their places.
        rows: of the step.
        places: those to launch.

    Yields:
        A place, the number of a token in its step, and f32 [n,V], logits from that token on.
    """
    every = [place for place in places if rows[place].of_every_token]
    others = [place for place in places if not rows[place].of_every_token]
    answers = [place for place in others if len(rows[place].tokens) == 1 and rows[place].start]
    prompts = [place for place in others if place not in set(answers)]
    for group in filter(None, (answers, prompts)):
        texts = [rows[place].tokens for place in group]
        starts = [rows[place].start for place in group]
        found = session.step(*packed(texts, starts), group)
        for index, place in enumerate(group):
            final = len(texts[index]) - 1
            logits = found.logits_at(index, final)
            assert logits is not None
            yield place, final, logits[None]
    yield from _launched_with_all_logits(session, rows, every)


def _launched_with_all_logits(
    session: Session, rows: Sequence[ScheduledRow], places: Sequence[int]
) -> Iterator[tuple[int, int, Logits]]:
    """The same, with the logits of every token: by the programs that verify, else one by one."""
    most = session.table.verifies or 1
    longest = max((len(rows[place].tokens) for place in places), default=0)
    for first in range(0, longest, most):
        group = [place for place in places if len(rows[place].tokens) > first]
        texts = [rows[place].tokens[first : first + most] for place in group]
        starts = [rows[place].start + first for place in group]
        found = session.step(*packed(texts, starts), group, verify=most > 1)
        for index, place in enumerate(group):
            if most > 1:
                yield place, first, found.token_logits[index, : len(texts[index])]
            else:
                logits = found.logits_at(index, 0)
                assert logits is not None
                yield place, first, logits[None]
