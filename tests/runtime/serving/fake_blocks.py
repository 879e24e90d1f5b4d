"""A session without a model whose cache is paged: rows find their tokens through a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from graphgen.runtime.session.block_table import BlockTable
from graphgen.runtime.session.pending_step import DeviceToken, PendingStep
from graphgen.runtime.session.step_call import Draw
from tests.runtime.serving.fake_session import FakeSession


class FakeBlockSession(FakeSession):
    """Slots that hold a token each, in blocks."""

    copies_rows = False

    def __init__(
        self,
        rows: int,
        limit: int,
        chunk: int,
        prompts: int,
        *,
        block: int,
        blocks: int,
        chooses: bool = False,
    ) -> None:
        table = np.full((rows, -(-limit // block)), -1, np.int32)
        self.blocks = self.pages = BlockTable("block_table", block, blocks, table)
        self.slots = np.full((blocks, block), -1, np.int64)
        super().__init__(rows, min(limit, self.pages.longest), chunk, prompts, chooses=chooses)

    def reset(self) -> None:
        super().reset()
        self.slots[:] = -1

    def assign_blocks(self, row: int, blocks: Sequence[int], length: int | None = None) -> None:
        self.pages.table = self.pages.assigned(row, blocks)
        if length is not None:
            self.held[row] = self.read(row, length)

    def copy_block(self, source: int, target: int) -> None:
        self.copied.append((source, target))
        self.slots[target] = self.slots[source]

    def read(self, row: int, length: int) -> list[int]:
        """The tokens that a row has in its blocks."""
        columns = -(-length // self.pages.block)
        numbers = self.pages.table[row, :columns]
        assert (numbers >= 0).all()
        return self.slots[numbers].reshape(-1)[:length].tolist()

    def start(
        self,
        tokens: npt.NDArray[np.int32],
        positions: npt.NDArray[np.int32],
        rows: Sequence[int],
        draw: Draw | None = None,
        fed: Mapping[int, DeviceToken] | None = None,
    ) -> PendingStep:
        for row in rows:
            # What other rows have written to blocks of this one is seen here.
            self.held[row] = self.read(row, len(self.held[row]))
        step = super().start(tokens, positions, rows, draw, fed)
        block = self.pages.block
        for place, row in enumerate(rows):
            real = positions[place] >= 0
            for at, token in zip(positions[place][real], tokens[place][real], strict=True):
                number = self.pages.table[row, at // block]
                assert number >= 0
                self.slots[number, at % block] = token
        return step
