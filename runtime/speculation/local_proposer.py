"""Proposals of one process of a launch: its draft is here, and the others run the model only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from graphgen.lowering.cpu.processes import alone
from graphgen.runtime.speculation.proposal import Proposal, Proposer, SpeculativeRow, WarmedProposer


class LocalProposer:
    """A proposer whose programs run on devices of this process only.

    Args:
        proposer: opened inside of :func:`~graphgen.lowering.cpu.processes.alone`.
    """

    def __init__(self, proposer: Proposer) -> None:
        self.proposer: Final = proposer

    def start(self) -> None:
        """Begin new sequences in all rows."""
        with alone():
            self.proposer.start()

    def warm_up(self) -> None:
        """Compile or load every program; no row changes."""
        if isinstance(self.proposer, WarmedProposer):
            with alone():
                self.proposer.warm_up()

    def propose(self, rows: Sequence[SpeculativeRow]) -> list[Proposal]:
        """Tokens that may follow each row."""
        with alone():
            return self.proposer.propose(rows)
