"""Launches of rows whose places in the caches another scheduler decides, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.runtime.launching.row_results import Logits
from graphgen.runtime.session import Session
from graphgen.runtime.step_call import packed


@dataclass(frozen=True, slots=True)
class ScheduledRow:
    """The tokens of one request in one step.

    Attributes:
        blocks: of the cache, in the order of positions; enough for the tokens.
        start: position of the first token: tokens that the blocks hold.
        tokens: at least one.
    """

    blocks: Sequence[int]
    start: int
    tokens: Sequence[int]


def launch_rows(session: Session, rows: Sequence[ScheduledRow]) -> Logits:
    """Process the tokens of a step: in one launch those that follow a text, then prompts.

    A request is in any row: its cache is its blocks.

    Args:
        session: with a paged cache.
        rows: at most as many as the session has.

    Returns:
        f32 [n,V]: the logits of each row's last token.

    Raises:
        GraphgenError: GG0705 for blocks that a row has not; as for :meth:`Session.step`.
    """
    _place(session, rows)
    answers = [place for place, row in enumerate(rows) if len(row.tokens) == 1 and row.start]
    prompts = [place for place in range(len(rows)) if place not in set(answers)]
    logits = np.zeros((len(rows), session.vocabulary), np.float32)
    for places in filter(None, (answers, prompts)):
        texts = [rows[place].tokens for place in places]
        starts = [rows[place].start for place in places]
        found = session.step(*packed(texts, starts), places)
        for index, place in enumerate(places):
            logits[place] = found.logits_at(index, len(texts[index]) - 1)
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
