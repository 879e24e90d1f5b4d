"""Coverage of places: positions and rows, by program, at which calls had tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from graphgen.exec.session import ProgramCall
from graphgen.ir import ADAPTER_IDS
from graphgen.passes.workload.position_sweep import (
    EXHAUSTIVE,
    is_swept,
    largest,
    missed_places,
    planned_positions,
)

_PLACED = ("positions", "seq_ids")


@dataclass(frozen=True, slots=True)
class PlaceCoverage:
    """Positions of a program, and rows of its calls, at which a call had a token.

    Attributes:
        sizes: positions that the program attends to, and rows of its calls: one pair, or the
            largest of those that its symbols had.
        seen: the position and the row of each token.
        missed: pairs of the plan that no call had, in order. A program of at most 16 positions is
            called at all pairs, a larger one at each planned position in any row.
        adapters: slots of adapters that rows had, -1 for none; empty without adapters.
        missed_adapters: those that no row had.
    """

    sizes: tuple[tuple[int, int], ...]
    seen: frozenset[tuple[int, int]]
    missed: tuple[tuple[int, int], ...]
    adapters: tuple[int, ...] = ()
    missed_adapters: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """``positions 0..15 of 16 in rows 0..2``; of larger ones which positions were planned."""
        slots = max(size for size, _ in self.sizes)
        positions = sorted({position for position, _ in self.seen})
        if slots <= EXHAUSTIVE:
            tried = f"positions {ranges(positions)} of {slots}"
        else:
            planned = len(set(planned_positions(slots)).intersection(positions))
            tried = f"positions {planned} of {slots} (ends, around powers of two)"
        rows = f" in rows {ranges(sorted({row for _, row in self.seen}))}"
        adapters = f", adapters {ranges(self.adapters)}" if self.adapters else ""
        return tried + rows + adapters

    @property
    def missed_texts(self) -> list[str]:
        """``position 11 row 3``: one for each row or position with holes."""
        slots = max(size for size, _ in self.sizes)
        rows: dict[int, list[int]] = {}
        for position, row in self.missed:
            rows.setdefault(row if slots <= EXHAUSTIVE else -1, []).append(position)
        texts = [
            f"position{'s' * (len(at) > 1)} {ranges(sorted(at))}{f' row {row}' * (row >= 0)}"
            for row, at in sorted(rows.items())
        ]
        return texts + [f"adapter {slot}" for slot in self.missed_adapters]


def ranges(numbers: Sequence[int]) -> str:
    """``0..3 5 7..8`` for ascending numbers."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return " ".join(str(low) if low == high else f"{low}..{high}" for low, high in runs)


def place_coverage(
    calls: Iterable[ProgramCall], *, whole: bool, rings: bool, slots: int = 0
) -> PlaceCoverage | None:
    """The places of the calls of one program; ``None`` where its inputs do not say positions.

    Args:
        calls: of the program, each once.
        whole: whether rows begin at their first token, so that later positions have none.
        rings: whether rows go on only where they are; a large program is then not planned.
        slots: of adapters.
    """
    placed = [call for call in calls if _is_placed(call)]
    if not placed:
        return None
    sizes = largest({_size(call, whole=whole) for call in placed})
    seen: set[tuple[int, int]] = set()
    adapters: set[int] = set()
    for call in placed:
        positions = np.asarray(call.inputs["positions"])
        rows, columns = np.nonzero(positions >= 0)
        seen.update(zip(positions[rows, columns].tolist(), rows.tolist(), strict=True))
        if ADAPTER_IDS in call.inputs:
            adapters.update(np.asarray(call.inputs[ADAPTER_IDS])[np.unique(rows)].tolist())
    missed: set[tuple[int, int]] = set()
    for attended, count in sizes:
        if not (rings and attended > EXHAUSTIVE):
            missed.update(missed_places(attended, count, seen))
    every = range(-1, slots) if adapters else ()
    return PlaceCoverage(
        tuple(sizes),
        frozenset(seen),
        tuple(sorted(missed)),
        tuple(sorted(adapters)),
        tuple(slot for slot in every if slot not in adapters),
    )


def _is_placed(call: ProgramCall) -> bool:
    known = all(name in call.inputs for name in _PLACED) and isinstance(call.dims.get("C"), int)
    return known and is_swept(call.phase) and np.ndim(call.inputs["positions"]) == 2


def _size(call: ProgramCall, *, whole: bool) -> tuple[int, int]:
    rows, active = np.shape(call.inputs["positions"])
    attended = call.dims["C"]
    assert isinstance(attended, int)
    return (min(attended, active) if whole and active > 1 else attended), rows
