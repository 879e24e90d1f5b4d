"""Speculation in serving: the rows that answer share a launch, each with its own proposals.

A row takes its last token and up to k - 1 proposed ones. Rows without proposals share the launch
with one token each; where no row has any, an ordinary decode step is made. The tokens a row accepts
do not depend on other rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Final

from graphgen.runtime.sampling import GREEDY, Sampling
from graphgen.runtime.serving.cache_pool import CachePool
from graphgen.runtime.serving.request_choice import changed_logits
from graphgen.runtime.serving.scheduler import Launch
from graphgen.runtime.serving.serving_request import RequestProgress
from graphgen.runtime.session.session import Logits, Session
from graphgen.runtime.session.step_call import packed
from graphgen.runtime.speculation.accept import accepted_path
from graphgen.runtime.speculation.proposal import Proposal, SpeculativeRow, WarmedProposer
from graphgen.runtime.speculation.speculator import Speculator, lines_only

_IDLE = SpeculativeRow((), GREEDY, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ProposedRow:
    """A row of a launch that verifies.

    Attributes:
        progress: the request.
        row: its text before the launch.
        proposal: tokens that may follow.
    """

    progress: RequestProgress
    row: SpeculativeRow
    proposal: Proposal

    def choices(self, logits: Logits) -> Iterator[int]:
        """The next tokens, each chosen at the iteration that takes it.

        Args:
            logits: f32 [n + 1,V] of n proposed tokens.

        Raises:
            GraphgenError: GG0705 where no token is left.
        """
        request, tokens = self.progress.request, list(self.progress.tokens)

        def change(scores: Logits, made: Sequence[int]) -> Logits:
            answer = [*tokens, *made]
            allowed = None if request.mask is None else request.mask(answer)
            return changed_logits(scores, request.bias_after(answer), allowed)  # pyright: ignore[reportReturnType]

        return (token for token, _ in accepted_path(logits, self.proposal, self.row, change))


class SpeculativeSteps:
    """Proposals for rows that answer, and the launches that verify them.

    Args:
        session: its programs verify tokens.
        pool: the rows of its cache.
        speculator: proposes; its counts go on.

    Raises:
        GraphgenError: GG0705 for programs that verify fewer tokens.
    """

    def __init__(self, session: Session, pool: CachePool, speculator: Speculator) -> None:
        speculator.begin(session)
        self.speculator: Final = speculator
        self._session: Final = session
        self._pool: Final = pool

    def warm_up(self) -> None:
        """Compile or load the programs of what proposes."""
        proposer = self.speculator.proposer
        if isinstance(proposer, WarmedProposer):
            proposer.warm_up()

    def restart(self) -> None:
        """Forget all rows, after a launch that failed."""
        self.speculator.begin(self._session)

    def proposed(self, launch: Launch) -> list[ProposedRow]:
        """The rows of a launch with their proposals; empty where none has any."""
        if not launch.answers:
            return []
        wanted = [_IDLE] * self._session.rows
        for progress, _ in launch.parts:
            wanted[row_of(progress)] = self._wanted(progress)
        keys = {row_of(progress): progress.order for progress, _ in launch.parts}
        proposals = self.speculator.propose(wanted, keys)
        lines_only(proposals)
        parts = [progress for progress, _ in launch.parts]
        made = [
            ProposedRow(p, wanted[row_of(p)], self._with_room(p, proposals[row_of(p)]))
            for p in parts
        ]
        if any(part.proposal.tokens for part in made):
            return made
        for progress in parts:
            self.speculator.note(progress.order, 0, 1)
        return []

    def verify(self, parts: Sequence[ProposedRow]) -> Logits:
        """Launch; f32 [n,S,V], the logits after each token of each row."""
        given = [[part.row.sequence[-1], *part.proposal.tokens] for part in parts]
        starts = [part.progress.processed for part in parts]
        rows = [row_of(part.progress) for part in parts]
        with self.speculator.launching(self._session, max(map(len, given))):
            return self._session.step(*packed(given, starts), rows, verify=True).token_logits

    def launching(self, launch: Launch) -> AbstractContextManager[None]:
        """Measure a launch that verifies nothing, where the number of proposals follows from it."""
        return self.speculator.launching(self._session, 1) if launch.answers else nullcontext()

    def _wanted(self, progress: RequestProgress) -> SpeculativeRow:
        """The row with the largest number of tokens to propose; the target adds one."""
        made, text = len(progress.tokens), progress.text
        left = min(progress.request.max_new_tokens - made, self._session.limit + 1 - len(text))
        # The first token comes without proposals, as from a longer prompt.
        most = min(self.speculator.length, left) - 1 if made else 0
        return SpeculativeRow(text, self._how(progress.request.sampling), 0, made, max(most, 0))

    def _how(self, sampling: Sampling) -> Sampling:
        """The settings; programs that draw from some candidates are followed on the host."""
        candidates = self._session.candidates if self._session.chooses else 0
        return replace(sampling, global_topk=candidates) if candidates else sampling

    def _with_room(self, progress: RequestProgress, proposal: Proposal) -> Proposal:
        """As much of a proposal as the cache has room for, without taking any from others."""
        count = len(proposal.tokens)
        while count and not self._pool.reserve(row_of(progress), progress.processed + 1 + count):
            count -= 1
        return proposal.pruned(count, count + 1)


def row_of(progress: RequestProgress) -> int:
    """The row of a request that has one."""
    assert progress.row is not None
    return progress.row
