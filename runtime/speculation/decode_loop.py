"""The loop of speculative decoding, shared by lines, trees and fused programs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from graphgen.runtime.generation import Clock, GenerationRequest, OnToken, Row
from graphgen.runtime.session.session import Session
from graphgen.runtime.speculation.acceptance_counts import AcceptanceCounts


class SpeculativeLoop(ABC):
    """Decodes with steps that may give a row several tokens.

    Args:
        length: the most tokens of a row that a step verifies.

    Attributes:
        phase: of the programs that verify.
        counts: since this was made.
    """

    phase: ClassVar[str]

    def __init__(self, length: int) -> None:
        self.length = length
        self.counts = AcceptanceCounts()

    def decode(
        self,
        session: Session,
        rows: list[Row],
        request: GenerationRequest,
        on_token: OnToken | None,
    ) -> Iterator[float]:
        """Decode until every row is done; yields the seconds of each step.

        Raises:
            GraphgenError: as :meth:`begin`.
        """
        self.begin(session)
        while any(not row.finish for row in rows):
            with Clock(session) as clock:
                self.step(session, rows, request, on_token)
            yield clock.seconds

    @abstractmethod
    def begin(self, session: Session) -> None:
        """Begin with empty rows, or refuse the programs of a session."""

    @abstractmethod
    def step(
        self,
        session: Session,
        rows: list[Row],
        request: GenerationRequest,
        on_token: OnToken | None,
    ) -> None:
        """Append tokens to the rows that are not done, one at least, and count them."""
