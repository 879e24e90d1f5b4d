"""Cells that hold every value, pair or triple of the axes, as few as a greedy search finds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations, product

from tests.matrix.axes import AXES, Cell
from tests.matrix.holes import hole_of

Choice = frozenset[tuple[str, str]]


@cache
def covering_cells(strength: int) -> tuple[Cell, ...]:
    """Cells in which every possible combination of ``strength`` values occurs.

    Args:
        strength: 1 for each value, 2 for pairs, 3 for triples.

    Returns:
        the same cells in the same order in every process.
    """
    waiting = dict.fromkeys(possible_choices(strength))
    cells: list[Cell] = []
    while waiting:
        cell = _greedy(dict(next(iter(waiting))), waiting, strength)
        for choice in _choices(cell, strength):
            waiting.pop(choice, None)
        cells.append(cell)
    return tuple(cells)


@cache
def possible_choices(strength: int) -> tuple[Choice, ...]:
    """Combinations of values of as many axes that some cell holds."""
    return tuple(
        frozenset(zip(axes, values, strict=True))
        for axes in combinations(AXES, strength)
        for values in product(*[AXES[axis] for axis in axes])
        if completed(dict(zip(axes, values, strict=True))) is not None
    )


def completed(part: Mapping[str, str]) -> Cell | None:
    """A cell that holds the values given, plain ones elsewhere; None where holes leave none."""
    if hole_of(part) is not None:
        return None
    axis = next((axis for axis in AXES if axis not in part), None)
    if axis is None:
        return {axis: part[axis] for axis in AXES}
    found = (completed({**part, axis: value}) for value in AXES[axis])
    return next((cell for cell in found if cell is not None), None)


def _greedy(part: Mapping[str, str], waiting: Mapping[Choice, None], strength: int) -> Cell:
    """The cell with the values given that holds many of the choices that wait, axis by axis."""
    for axis, values in AXES.items():
        if axis in part:
            continue
        options = [{**part, axis: value} for value in values]
        possible = [option for option in options if completed(option) is not None]
        part = max(possible, key=lambda option: _new(option, axis, waiting, strength))
    return {axis: part[axis] for axis in AXES}


def _new(part: Mapping[str, str], axis: str, waiting: Mapping[Choice, None], strength: int) -> int:
    """How many choices that wait the value of ``axis`` adds to those chosen before it."""
    others = [item for item in part.items() if item[0] != axis]
    pairs = combinations(others, strength - 1)
    return sum(frozenset([*pair, (axis, part[axis])]) in waiting for pair in pairs)


def _choices(cell: Cell, strength: int) -> Iterator[Choice]:
    return map(frozenset, combinations(cell.items(), strength))
