"""Moves of slots in the rows of a cache, on the devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from graphgen.ir import Role
from graphgen.lowering.cpu import DeviceValue
from graphgen.lowering.cpu.pjrt import put
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.step_call import Ints


class SlotMoves:
    """Moves slots of all states by one program, made at the first move from the module's states.

    Args:
        programs: of the session.
        rows: R, rows of the cache.
        nodes: S, nodes of the largest tree.
    """

    def __init__(self, programs: ExecutableCache, rows: int, nodes: int) -> None:
        self._programs: Final = programs
        self._rows: Final = rows
        self._count: Final = max(nodes - 1, 1)
        self._made: ExecutableCache | None = None

    def launch(
        self,
        values: Mapping[str, DeviceValue],
        lengths: Ints,
        seq_ids: Sequence[int],
        moves: Sequence[Sequence[int]],
    ) -> dict[str, list[DeviceValue]]:
        """The states after the moves, one value a rank; the given ones are gone.

        Args:
            values: states and layouts by name.
            lengths: s32 [R], tokens in each row of the cache.
            seq_ids: rows of the cache.
            moves: of each row the slots that become the last ones before its length, in order.
        """
        module = self._programs.module
        rows = np.full(self._rows, self._rows, np.int32)
        sources = np.full((self._rows, self._count), -1, np.int32)
        targets = sources.copy()
        for row, slots in zip(seq_ids, moves, strict=True):
            rows[row] = row
            sources[row, : len(slots)] = slots
            targets[row, : len(slots)] = np.arange(lengths[row] - len(slots), lengths[row])
        given = {"seq_ids": rows, "from_slots": sources, "to_slots": targets}
        inputs = {name: put([array] * module.ranks) for name, array in given.items()}
        kept = {row.name for role in (Role.STATE, Role.LAYOUT) for row in module.entries(role)}
        states = {name: value for name, value in values.items() if name in kept}
        return self._program().get("kv_move").launch({**states, **inputs})

    def _program(self) -> ExecutableCache:
        if self._made is None:
            # Only here: what runs without trees runs without the passes.
            from graphgen.passes.specialize.kv_move_program import kv_move_module

            self._made = self._programs.beside(kv_move_module(self._programs.module, self._count))
        return self._made
