"""The table of a paged cache: the blocks that each row of a session has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.ir import Module, Role
from graphgen.runtime.session.step_call import Ints, StepCall


class BlockTable:
    """The blocks of the rows, as the programs find them.

    Args:
        name: of the layout in the interface.
        block: slots of a block.
        blocks: N, number of blocks.
        table: s32 [R,T], the blocks of each row in the order of positions; negative for none.

    Attributes:
        name: as given.
        block: as given.
        blocks: as given.
        table: the current table.
    """

    def __init__(self, name: str, block: int, blocks: int, table: Ints) -> None:
        self.name: Final = name
        self.block: Final = block
        self.blocks: Final = blocks
        self.table = table

    @property
    def longest(self) -> int:
        """Number of positions for which a row can have blocks."""
        return min(self.blocks, self.table.shape[1]) * self.block

    def assigned(self, row: int, blocks: Sequence[int]) -> Ints:
        """The table in which a row has these blocks and no others.

        Arrays on the devices may share memory with a table, so that each change makes a new one.
        """
        table = self.table.copy()
        table[row] = -1
        table[row, : len(blocks)] = blocks
        return table

    def reserved(self, needs: Mapping[int, int], lengths: Ints) -> Ints:
        """The table in which rows have blocks for their next positions; this one, where they have.

        Every row keeps the blocks of its tokens, and these rows what they have for the positions.

        Args:
            needs: the number of positions from 0 on, by row.
            lengths: s32 [R], tokens in each row so far.

        Raises:
            GraphgenError: GG0701 where there are too few blocks.
        """
        columns = {row: -(-length // self.block) for row, length in needs.items()}
        if all((self.table[row, :count] >= 0).all() for row, count in columns.items()):
            return self.table
        table = self.table.copy()
        for row, length in enumerate(lengths.tolist()):
            table[row, columns.get(row, -(-length // self.block)) :] = -1
        held = set(table[table >= 0].tolist())
        free = iter([number for number in range(self.blocks) if number not in held])
        for row, count in columns.items():
            for column in np.flatnonzero(table[row, :count] < 0):
                number = next(free, None)
                if number is None:
                    mine = set(table[[*columns]].flat)
                    raise self._too_few(needs, len(held - mine))
                table[row, column] = number
        return table

    def _too_few(self, needs: Mapping[int, int], others: int) -> GraphgenError:
        lengths = ", ".join(map(str, needs.values()))
        beside = f", of which other rows have {others}" if others else ""
        return GraphgenError(
            "GG0701",
            f"sequences of {lengths} tokens do not fit into the {self.blocks} blocks of "
            f"{self.block} tokens{beside}",
            help="give shorter or fewer sequences, or compile with more blocks",
        )

    def check(self, call: StepCall) -> None:
        """Refuse a step of a row with positions that have no block (GG0705).

        Tokens there would not be kept, and later ones would not attend to them.
        """
        for row, length in zip(call.seq_ids, call.ends, strict=True):
            needed = self.table[row, : -(-int(length) // self.block)]
            if (needed < 0).any():
                held = int((needed >= 0).argmin()) * self.block
                raise GraphgenError(
                    "GG0705",
                    f"row {row} has blocks for {held} positions, and the step needs {length}",
                    help="give the row more blocks by use_layout, or compile with cache_blocks=0",
                )


def block_table_of(module: Module) -> BlockTable | None:
    """The table of a module whose states are all kept in blocks; ``None`` for other modules."""
    states, layouts = module.entries(Role.STATE), module.entries(Role.LAYOUT)
    if len(layouts) != 1 or not states:
        return None
    (layout,) = layouts
    packs = [module.function(row.pack) for row in states if row.pack]
    # A block of tokens is divided over the ranks that divide a row.
    sizes = [(row.physical.dims, module.parts(row, 1)) for row in states]
    shapes = {(dims[0], dims[1] * parts) for dims, parts in sizes}
    if (
        len(packs) < len(states)
        or len(shapes) > 1
        or any(f.arg(layout.name) is None for f in packs)
    ):
        return None
    ((blocks, block),) = shapes
    rows, columns = cast("tuple[int, int]", layout.logical.dims)
    return BlockTable(layout.name, block, blocks, np.full((rows, columns), -1, np.int32))
