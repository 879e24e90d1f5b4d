"""Copies of whole rows or blocks of a cache, on the devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.ir import Module, Role
from graphgen.lowering.cpu import DeviceValue
from graphgen.lowering.cpu.pjrt import put
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.launching.block_table import BlockTable


class RowCopy:
    """Copies one row of all states onto another, or one block of a paged cache.

    The program is made from the module's states at the first copy, and kept in the folder of the
    other programs where there is one; artifacts of any age have it.

    Args:
        programs: of the session.
        rows: R, rows of the cache.
        blocks: the table of a paged cache, whose blocks are copied.
    """

    def __init__(
        self, programs: ExecutableCache, rows: int, blocks: BlockTable | None = None
    ) -> None:
        self._programs: Final = programs
        self._rows: Final = blocks.blocks if blocks else rows
        self._blocks: Final = blocks
        self._copies: ExecutableCache | None = None

    @property
    def possible(self) -> bool:
        """True if every state has the rows of the cache, or its blocks, as its first dimension.

        The program has to be compiled here, too.
        """
        if not self._programs.is_open:
            return False
        return self._blocks is not None or has_rows_first(self._programs.module, self._rows)

    def launch(
        self, states: Mapping[str, DeviceValue], source: int, target: int
    ) -> dict[str, list[DeviceValue]]:
        """The states after the copy, one value a rank; the given ones are gone.

        Raises:
            GraphgenError: GG0705 for a row or block that does not exist.
        """
        what = "block" if self._blocks else "row"
        for row in (source, target):
            if not 0 <= row < self._rows:
                raise GraphgenError(
                    "GG0705",
                    f"{what} {row} does not exist",
                    help=f"{what}s are 0 to {self._rows - 1}",
                )
        ranks = self._programs.module.ranks
        places = {"source": source, "target": target}
        inputs = {key: put([np.array(row, np.int32)] * ranks) for key, row in places.items()}
        return self._made().get("copy_row").launch({**states, **inputs})

    def _made(self) -> ExecutableCache:
        if self._copies is None:
            # Only here: an artifact whose rows are not copied runs without the builder.
            from graphgen.passes.specialize.row_copy_program import row_copy_module

            self._copies = self._programs.beside(row_copy_module(self._programs.module))
        return self._copies


def has_rows_first(module: Module, rows: int) -> bool:
    """True if each state has one place a row along its first dimension, in both representations.

    Where a table assigns places to rows, as in a cache of blocks, the place of a row is not known
    without the table.
    """
    return not module.entries(Role.LAYOUT) and all(
        type_.rank > 0 and type_.shape[0] == rows
        for row in module.entries(Role.STATE)
        for type_ in (row.logical, row.physical)
    )
