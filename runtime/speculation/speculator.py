"""Steps of speculative decoding: propose, verify in one launch, accept, keep the accepted tokens.

A step verifies the last token of each row and up to k - 1 proposed ones, k the
``speculation_length``. Each row accepts by itself and gets 1 to k tokens; the cache ends after the
last of them. The tokens are those of plain decoding; drawn ones have the same distribution. A line
of proposals is a tree with one path.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Mapping, Sequence
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
from graphgen.runtime.session.row_results import RowResults
from graphgen.runtime.session.session import Session
from graphgen.runtime.session.step_call import packed
from graphgen.runtime.speculation.accept import accept
from graphgen.runtime.speculation.adaptive_length import AdaptiveLength
from graphgen.runtime.speculation.decode_loop import SpeculativeLoop
from graphgen.runtime.speculation.proposal import (
    AcceptedPath,
    ObservingProposer,
    Proposal,
    Proposer,
    SpeculativeRow,
)


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
    if speculator is None:
        return None
    if isinstance(speculator, Speculator) and speculator.phase == VERIFY:
        return speculator
    raise GraphgenError(
        "GG0705",
        "trees of proposals and programs that accept by themselves are for generate's answers",
        help="give a draft, first layers or prompt lookup without --enable-fused-speculation",
    )


class Speculator(SpeculativeLoop):
    """Decodes with proposals: lines of tokens after the last one of each row.

    Args:
        proposer: gives the proposals.
        length: k, tokens of a row that a step verifies: the last one and up to k - 1 proposals.
        adaptive: each step proposes as many as pay by recent acceptance and measured times, which
            :mod:`~graphgen.runtime.speculation.adaptive_length` says.

    Attributes:
        counts: since the speculator was made; a tree counts by its depth, not by its nodes.
        chooser: of an adaptive speculator that has begun; else ``None``.

    Raises:
        GraphgenError: GG0705 for fewer than two tokens.
    """

    phase = VERIFY

    def __init__(self, proposer: Proposer, length: int, *, adaptive: bool = False) -> None:
        super().__init__(length)
        self._check_length()
        self.proposer = proposer
        self.chooser: AdaptiveLength | None = None
        self._adaptive = adaptive

    def _check_length(self) -> None:
        if self.length < 2:
            raise GraphgenError(
                "GG0705",
                f"a speculation length of {self.length} leaves no token to propose",
                help="give --speculation-length 2 or more: the last token, and those proposed",
            )

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

    def step(
        self,
        session: Session,
        rows: list[Row],
        request: GenerationRequest,
        on_token: OnToken | None,
    ) -> None:
        """Propose, verify in one launch, accept, and keep in the cache what was accepted.

        A step that neither proposes nor observes is an ordinary decode step.
        """
        active = [number for number, row in enumerate(rows) if not row.finish]
        wanted = [self._wanted(session, row, number, request) for number, row in enumerate(rows)]
        proposals = self.propose(wanted, {n: n for n in active})
        given = self._fitting(session, active, wanted, proposals)
        proposer = self.proposer if isinstance(self.proposer, ObservingProposer) else None
        observes = proposer is not None and proposer.observes
        if not observes and not any(proposal.tokens for proposal in given):
            for number in active:
                self.note(number, 0, 1)
            with self.launching(session, 1):
                decode_step(session, rows, request, on_token)
            return
        tokens = [[rows[n].tokens[-1], *given[n].tokens] for n in active]
        with self.launching(session, max(map(len, tokens))):
            made = self._verify(session, active, tokens, [given[n] for n in active])
        paths: list[AcceptedPath] = []
        for place, number in enumerate(active):
            logits = made.token_logits[place, : len(tokens[place])]
            path = AcceptedPath(number, *accept(logits, given[number], wanted[number]))
            self.note(number, max(given[number].depths), len(path.tokens))
            paths.append(path)
        keep(session, rows, paths, request, on_token)
        if proposer is not None:
            proposer.observe(paths, made.outputs)

    def _wanted(
        self, session: Session, row: Row, number: int, request: GenerationRequest
    ) -> SpeculativeRow:
        """The row with the largest number of tokens to propose; the target adds one."""
        most = min(self.length, tokens_left(session, row, request)) - 1
        return SpeculativeRow(
            [*row.prompt, *row.tokens], row.how, number, len(row.tokens), max(most, 0)
        )

    def _fitting(
        self,
        session: Session,
        active: Sequence[int],
        rows: Sequence[SpeculativeRow],
        proposals: Sequence[Proposal],
    ) -> Sequence[Proposal]:
        """All of the proposals: lines have the tokens that rows want, for which there are slots.

        Raises:
            GraphgenError: GG0705 for a tree.
        """
        lines_only(proposals)
        return proposals

    def _verify(
        self,
        session: Session,
        numbers: Sequence[int],
        tokens: Sequence[Sequence[int]],
        proposals: Sequence[Proposal],
    ) -> RowResults:
        """Append the nodes of each row to the cache, node 0 at its length, in one launch.

        Args:
            session: with the programs of the phase.
            numbers: n rows of the cache.
            tokens: of each row those of its nodes, node 0 first.
            proposals: of each row.
        """
        starts = session.lengths[[*numbers]].tolist()
        return session.step(*packed(tokens, starts), [*numbers], verify=True)


def lines_only(proposals: Iterable[Proposal]) -> None:
    """Refuse trees with several paths (GG0705): a line's programs have no mask of ancestors."""
    if any(list(proposal.edges) != [*range(len(proposal.tokens))] for proposal in proposals):
        raise GraphgenError(
            "GG0705",
            "a proposer of trees cannot propose lines",
            help="use a TreeSpeculator, whose programs have a mask of ancestors",
        )


def keep(
    session: Session,
    rows: list[Row],
    paths: Sequence[AcceptedPath],
    request: GenerationRequest,
    on_token: OnToken | None,
) -> None:
    """Append the tokens of paths to their rows, and keep the slots of the paths in the cache.

    Slots of accepted nodes move to those after node 0's, and the row ends after the last of them.
    """
    lengths = session.lengths.copy()
    moves: dict[int, list[int]] = {}
    for path in paths:
        row = rows[path.number]
        start = len(row.prompt) + len(row.tokens) - 1
        held = append_tokens(session, rows, path.number, path.tokens, request, on_token)
        lengths[path.number] = held
        kept = path.nodes[: held - start]
        if [*kept] != [*range(len(kept))]:
            moves[path.number] = [start + node for node in kept[1:]]
    session.take_back(lengths)
    if moves:
        session.move_slots([*moves], [*moves.values()])
