"""Fused speculation: each launch proposes, verifies and accepts by itself."""

from __future__ import annotations

from collections.abc import Iterator

from graphgen.errors import GraphgenError
from graphgen.exec.decode_steps import STEPS, STOPS
from graphgen.exec.speculative_step import DRAFT
from graphgen.ir import Module, Role
from graphgen.runtime.generation import GenerationRequest, OnToken, Row, launch_steps, tokens_left
from graphgen.runtime.session.session import Session
from graphgen.runtime.speculation.decode_loop import SpeculativeLoop


def has_fused_steps(session: Session) -> bool:
    """True for programs of a model and its draft, which speculate by themselves."""
    return session.steps > 1 and is_fused_module(session.module)


def is_fused_module(module: Module) -> bool:
    """True for a module with the caches of a draft."""
    return any(row.name.startswith(DRAFT) for row in module.entries(Role.STATE))


class FusedSteps(SpeculativeLoop):
    """Decodes by programs of a model and its draft, which give a row ``length`` tokens at most."""

    phase = STEPS

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
        return super().decode(session, rows, request, on_token)

    def begin(self, session: Session) -> None:
        """Nothing: the caches of model and draft hold what a launch needs."""

    def step(
        self,
        session: Session,
        rows: list[Row],
        request: GenerationRequest,
        on_token: OnToken | None,
    ) -> None:
        """Make one launch."""
        left = [tokens_left(session, row, request) for row in rows]
        chosen = launch_steps(session, rows, request, on_token)
        self.counts.launches += 1
        for row, most in enumerate(left):
            if most:
                self.counts.note(min(most, self.length) - 1, int((chosen[row] >= 0).sum()))
