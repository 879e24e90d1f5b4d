"""Cells that hold every value, pair or triple of the axes, as few as a greedy search finds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations, product

from tests.matrix.axes import AXES, Cell
from tests.matrix.holes import HOLES, Hole, hole_of, is_in

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
        if is_possible(dict(zip(axes, values, strict=True)))
    )


def is_possible(part: Mapping[str, str]) -> bool:
    """Whether some cell holds the values given.

    Holes divide the axes into groups that have no hole in common: a part is possible where each
    group of its values is, and the values of a group are few.
    """
    return all(
        _has_cell(axes, frozenset((axis, part[axis]) for axis in axes if axis in part))
        for axes in _groups()
    )


@cache
def _groups() -> tuple[tuple[str, ...], ...]:
    """Axes joined by holes, in the order of the axes; those of no hole are left out."""
    groups: list[set[str]] = []
    for hole in HOLES:
        joined = [group for group in groups if not group.isdisjoint(hole.axes)]
        groups = [group for group in groups if group not in joined]
        groups.append(set(hole.axes).union(*joined))
    return tuple(
        tuple(sorted(group, key=lambda axis: (-len(_holes_of(axis)), axis))) for group in groups
    )


@cache
def _has_cell(axes: tuple[str, ...], choice: Choice) -> bool:
    """Whether the axes have values that are in no hole and hold those given."""
    part = dict(choice)
    plain = {axis: AXES[axis][0] for axis in axes} | part
    return hole_of(plain) is None or (hole_of(part) is None and _goes_on(axes, choice))


@cache
def _goes_on(axes: tuple[str, ...], choice: Choice) -> bool:
    """Whether values that are in no hole can be continued to values of all the axes."""
    part = dict(choice)
    axis = next((axis for axis in axes if axis not in part), None)
    if axis is None:
        return True
    options = [{**part, axis: value} for value in AXES[axis]]
    return any(
        _goes_on(axes, frozenset(option.items()))
        for option in options
        if not any(is_in(hole, option) for hole in _holes_of(axis))
    )


@cache
def _holes_of(axis: str) -> tuple[Hole, ...]:
    return tuple(hole for hole in HOLES if axis in hole.axes)


def _greedy(part: Mapping[str, str], waiting: Mapping[Choice, None], strength: int) -> Cell:
    """The cell with the values given that holds many of the choices that wait, axis by axis."""
    for axis, values in AXES.items():
        if axis in part:
            continue
        options = [{**part, axis: value} for value in values]
        possible = [option for option in options if is_possible(option)]
        part = max(possible, key=lambda option: _new(option, axis, waiting, strength))
    return {axis: part[axis] for axis in AXES}


def _new(part: Mapping[str, str], axis: str, waiting: Mapping[Choice, None], strength: int) -> int:
    """How many choices that wait the value of ``axis`` adds to those chosen before it."""
    others = [item for item in part.items() if item[0] != axis]
    pairs = combinations(others, strength - 1)
    return sum(frozenset([*pair, (axis, part[axis])]) in waiting for pair in pairs)


def _choices(cell: Cell, strength: int) -> Iterator[Choice]:
    return map(frozenset, combinations(cell.items(), strength))
