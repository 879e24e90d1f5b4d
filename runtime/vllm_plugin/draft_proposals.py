"""Proposals of tokens that vLLM's scheduler lets the next step verify."""

# vLLM is installed beside graphgen in an environment of its own, never in graphgen's.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from vllm.v1.spec_decode.ngram_proposer import NgramProposer

from graphgen.errors import GraphgenError
from graphgen.runtime.session.session import Session
from graphgen.runtime.vllm_plugin.scheduled_rows import ScheduledRow, check_session, launch_rows


@dataclass(frozen=True, slots=True)
class FinishedStep:
    """A step whose tokens are chosen.

    Attributes:
        batch: vLLM's, which holds the chosen tokens.
        requests: states by id, with the chosen tokens, and computed tokens of before the step.
        counts: by id, the tokens that the step has processed.
        chosen: tokens of each row of the batch; empty for a text that goes on.
        most: proposals of a row.
    """

    batch: Any
    requests: Mapping[str, Any]
    counts: Mapping[str, int]
    chosen: list[list[int]]
    most: int


class DraftProposals(Protocol):
    """Proposes tokens after a step."""

    def after(self, step: FinishedStep) -> list[list[int]]:
        """The tokens that may follow each row; none for a row that has chosen none."""
        ...

    def copy_block(self, source: int, target: int) -> None:
        """Follow a copy of a block of the model's caches."""
        ...


class NgramProposals:
    """vLLM's own search for n-grams in the text so far.

    Args:
        config: a ``VllmConfig``.
    """

    def __init__(self, config: Any) -> None:
        self._search: Final = NgramProposer(config)

    def after(self, step: FinishedStep) -> list[list[int]]:
        """As :meth:`DraftProposals.after`."""
        batch = step.batch
        return self._search.propose(
            step.most, step.chosen, batch.num_tokens_no_spec, batch.token_ids_cpu
        )

    def copy_block(self, source: int, target: int) -> None:
        """A search keeps nothing in blocks."""


class DraftModelProposals:
    """The best tokens of a smaller model, whose caches are in the blocks of the model's.

    After each step it processes what the model has processed, so that a block that requests share
    holds both.

    Args:
        session: of the draft, with as many blocks as the model.
        vocabulary: number of logits of the model.
        longest: tokens of a sequence.

    Raises:
        GraphgenError: GG0705 for a draft with another number of tokens.
    """

    def __init__(self, session: Session, vocabulary: int, longest: int) -> None:
        check_session(session)
        if session.vocabulary != vocabulary:
            raise GraphgenError(
                "GG0705",
                f"the draft has {session.vocabulary} tokens and the model {vocabulary}",
                help="give a draft of the same family",
            )
        assert session.blocks is not None
        self._session: Final = session
        self._longest: Final = longest
        self._block: Final = session.blocks.block

    def after(self, step: FinishedStep) -> list[list[int]]:
        """As :meth:`DraftProposals.after`."""
        rows, rooms = list[ScheduledRow](), list[int]()
        for id, tokens in zip(step.batch.req_ids, step.chosen, strict=True):
            request = step.requests[id]
            start, blocks = request.num_computed_tokens, request.block_ids[0]
            end = request.num_tokens if tokens else start + step.counts[id]
            rows.append(self._row(blocks, start, [*map(request.get_token_id, range(start, end))]))
            slots = min(self._longest, len(blocks) * self._block)
            rooms.append(min(step.most, slots - end) if tokens else 0)
        proposals: list[list[int]] = [[] for _ in rows]
        places = list(range(len(rows)))
        while rows:
            best = self._best(rows)
            going_on = list[tuple[int, ScheduledRow]]()
            for place, row, token in zip(places, rows, best, strict=True):
                if len(proposals[place]) < rooms[place]:
                    proposals[place].append(token)
                if len(proposals[place]) < rooms[place]:
                    follows = ScheduledRow(row.blocks, row.start + len(row.tokens), [token])
                    going_on.append((place, follows))
            places, rows = [place for place, _ in going_on], [row for _, row in going_on]
        return proposals

    def copy_block(self, source: int, target: int) -> None:
        """As :meth:`DraftProposals.copy_block`."""
        self._session.copy_block(source, target)

    def _row(self, blocks: Sequence[int], start: int, tokens: list[int]) -> ScheduledRow:
        """Tokens of a text: the few of an answer go through the programs that verify."""
        is_short = start > 0 and len(tokens) <= self._session.table.verifies
        return ScheduledRow(blocks, start, tokens, last=len(tokens) if is_short else 1)

    def _best(self, rows: Sequence[ScheduledRow]) -> list[int]:
        """The best token after each row."""
        logits = launch_rows(self._session, rows)
        finals = np.cumsum([row.last for row in rows]) - 1
        return logits[finals].argmax(1).tolist()
