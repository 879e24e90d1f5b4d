"""The loop of fused speculation: each launch proposes, verifies and accepts by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.exec.decode_steps import STEPS, STOPS
from graphgen.exec.speculative_step import DRAFT
from graphgen.ir import Role
from graphgen.runtime.generation import (
    Clock,
    GenerationRequest,
    OnToken,
    Row,
    launch_steps,
    tokens_left,
)
from graphgen.runtime.session.session import Session
from graphgen.runtime.speculation.acceptance_counts import AcceptanceCounts


def has_fused_steps(session: Session) -> bool:
    """True for programs of a model and its draft, which speculate by themselves."""
    states = session.module.entries(Role.STATE)
    return session.steps > 1 and any(row.name.startswith(DRAFT) for row in states)


class FusedSteps:
    """Decodes by programs of a model and its draft.

    Args:
        length: k, the most tokens that a launch gives a row.

    Attributes:
        counts: since this was made.
        phase: of the programs.
    """

    phase: Final = STEPS

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
        """Decode until every row is done; yields the seconds of each launch.

        Raises:
            GraphgenError: GG0705 for more tokens that end a sequence than a program takes.
        """
        if len(request.eos_ids) > STOPS:
            raise GraphgenError(
                "GG0705",
                f"{len(request.eos_ids)} tokens end a sequence, and fused programs take {STOPS}",
                help="leave --enable-fused-speculation out",
            )
        while any(not row.finish for row in rows):
            left = [tokens_left(session, row, request) for row in rows]
            with Clock(session) as clock:
                chosen = launch_steps(session, rows, request, on_token)
            self.counts.launches += 1
            for row, most in enumerate(left):
                if most:
                    made = int((chosen[row] >= 0).sum())
                    self.counts.note(min(most, self.length) - 1, made)
            yield clock.seconds
