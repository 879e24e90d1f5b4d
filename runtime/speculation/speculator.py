"""The loop of speculative decoding: propose, verify in one launch, accept, take back.

A step verifies the last token of each row and up to k - 1 proposed ones, k the
``speculation_length``. Each row accepts by itself and gets 1 to k tokens; the cache ends after the
last of them. The tokens are those of plain decoding; drawn ones have the same distribution.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from graphgen.errors import GraphgenError
from graphgen.ir import VERIFY
from graphgen.runtime.generation import (
    Clock,
    GenerationRequest,
    OnToken,
    Row,
    append_tokens,
    decode_step,
    tokens_left,
)
from graphgen.runtime.session.session import Session
from graphgen.runtime.session.step_call import packed
from graphgen.runtime.speculation.accept import accept
from graphgen.runtime.speculation.acceptance_counts import AcceptanceCounts
from graphgen.runtime.speculation.adaptive_length import AdaptiveLength
from graphgen.runtime.speculation.proposal import Proposal, Proposer, SpeculativeRow


def check_verifies(session: Session, length: int) -> None:
    """Refuse programs that verify fewer than ``length`` tokens of a row (GG0705)."""
    verifies = session.table.verifies
    if verifies < length:
        raise GraphgenError(
            "GG0705",
            f"these programs verify {verifies} tokens a row, not {length}",
            help=f"compile with --speculation-length {length}, for example into another --artifact",
        )


def check_in_step(*, async_mode: bool) -> None:
    """Refuse speculation with steps in flight (GG0705)."""
    if async_mode:
        raise GraphgenError(
            "GG0705",
            "speculation and async_mode exclude each other: proposals follow tokens that were read",
            help="leave one of them out",
        )


def line_speculator(speculator: object) -> Speculator | None:
    """A speculator whose proposals follow each other, for loops other than ``decode``.

    Args:
        speculator: of an engine; ``None`` for none.

    Raises:
        GraphgenError: GG0705 for trees of proposals and for fused programs.
    """
    if speculator is None or isinstance(speculator, Speculator):
        return speculator
    raise GraphgenError(
        "GG0705",
        "trees of proposals and programs that accept by themselves are for generate's answers",
        help="give a draft, first layers or prompt lookup without --enable-fused-speculation",
    )


class Speculator:
    """Decodes with proposals.

    Args:
        proposer: gives the proposals.
        length: k, tokens of a row that a step verifies: the last one and up to k - 1 proposals.
        adaptive: each step proposes as many as pay by recent acceptance and measured times, which
            :mod:`~graphgen.runtime.speculation.adaptive_length` says.

    Attributes:
        phase: of the programs that verify.
        counts: since the speculator was made.
        chooser: of an adaptive speculator that has begun; else ``None``.

    Raises:
        GraphgenError: GG0705 for fewer than two tokens.
    """

    phase = VERIFY

    def __init__(self, proposer: Proposer, length: int, *, adaptive: bool = False) -> None:
        if length < 2:
            raise GraphgenError(
                "GG0705",
                f"a speculation length of {length} leaves no token to propose",
                help="give --speculation-length 2 or more: the last token, and those proposed",
            )
        self.proposer = proposer
        self.length = length
        self.counts = AcceptanceCounts()
        self.chooser: AdaptiveLength | None = None
        self._adaptive = adaptive

    def begin(self, session: Session) -> None:
        """Begin with empty rows; what was measured is kept.

        Raises:
            GraphgenError: GG0705 for programs that verify fewer tokens.
        """
        check_verifies(session, self.length)
        self.proposer.start()
        if self._adaptive and self.chooser is None:
            self.chooser = AdaptiveLength(session.table.verify_sizes(), self.length)
        elif self.chooser is not None:
            self.chooser.rows.clear()

    def propose(self, rows: Sequence[SpeculativeRow], active: Mapping[int, int]) -> list[Proposal]:
        """Tokens for the rows of a step.

        Args:
            rows: in the order of the rows of a cache.
            active: the keys of those that take part, by their place in ``rows``.
        """
        self.counts.launches += 1
        if self.chooser is None:
            return self.proposer.propose(rows)
        most = self.chooser.choose({key: rows[place].wanted for place, key in active.items()})
        start = time.perf_counter()
        made = self.proposer.propose([replace(r, wanted=min(r.wanted, most)) for r in rows])
        count = max((len(proposal.tokens) for proposal in made), default=0)
        self.chooser.note_proposals(count, time.perf_counter() - start)
        return made

    def note(self, key: int, proposed: int, made: int, accepted: int | None = None) -> None:
        """Count a row of a step as :meth:`AcceptanceCounts.note` does, under its key."""
        self.counts.note(proposed, made, accepted)
        if self.chooser is not None:
            taken = min(made - 1, proposed) if accepted is None else accepted
            self.chooser.note(key, proposed, taken)

    @contextmanager
    def launching(self, session: Session, tokens: int) -> Generator[None]:
        """Measure a launch over as many as ``tokens`` of a row, of an adaptive speculator."""
        with Clock(session) as clock:
            yield
        if self.chooser is not None:
            self.chooser.note_launch(tokens, clock.seconds)

    def decode(
        self,
        session: Session,
        rows: list[Row],
        request: GenerationRequest,
        on_token: OnToken | None,
    ) -> Iterator[float]:
        """Decode until every row is done; yields the seconds of each step.

        Raises:
            GraphgenError: GG0705 for programs that verify fewer tokens.
        """
        self.begin(session)
        while any(not row.finish for row in rows):
            with Clock(session) as clock:
                self._step(session, rows, request, on_token)
            yield clock.seconds

    def _step(
        self,
        session: Session,
        rows: list[Row],
        request: GenerationRequest,
        on_token: OnToken | None,
    ) -> None:
        wanted = [self._wanted(session, row, number, request) for number, row in enumerate(rows)]
        active = {number: number for number, row in enumerate(rows) if not row.finish}
        proposals = self.propose(wanted, active)
        if not any(proposal.tokens for proposal in proposals):
            for number in active:
                self.note(number, 0, 1)
            with self.launching(session, 1):
                decode_step(session, rows, request, on_token)
            return
        self._verify(session, rows, wanted, proposals, request, on_token)

    def _wanted(
        self, session: Session, row: Row, number: int, request: GenerationRequest
    ) -> SpeculativeRow:
        """The row with the largest number of tokens to propose; the target adds one."""
        most = min(self.length, tokens_left(session, row, request)) - 1
        return SpeculativeRow(
            [*row.prompt, *row.tokens], row.how, number, len(row.tokens), max(most, 0)
        )

    def _verify(
        self,
        session: Session,
        rows: list[Row],
        wanted: Sequence[SpeculativeRow],
        proposals: Sequence[Proposal],
        request: GenerationRequest,
        on_token: OnToken | None,
    ) -> None:
        active = [number for number, row in enumerate(rows) if not row.finish]
        given = [[rows[n].tokens[-1], *proposals[n].tokens] for n in active]
        starts = session.lengths[active].tolist()
        with self.launching(session, max(map(len, given))):
            logits = session.step(*packed(given, starts), active, verify=True).token_logits
        lengths = session.lengths.copy()
        for place, number in enumerate(active):
            proposal = proposals[number]
            seen = logits[place, : len(given[place])]
            made = accept(seen, proposal, wanted[number])
            self.note(number, len(proposal.tokens), len(made))
            lengths[number] = append_tokens(session, rows, number, made, request, on_token)
        session.take_back(lengths)
