"""docs/families.md: for each family and value of an axis whether there are cells, or why not."""

from __future__ import annotations

from tests.matrix.axes import AXES
from tests.matrix.covering import is_possible
from tests.matrix.holes import HOLES, hole_of

INTRODUCTION = """\
# Every feature for every family

This page is written by `tests/matrix`, from the table of axes that its tests run. A cell of the
matrix has one value of each axis: the mini twin of a model of the family is compiled with the
default pipeline, and prefill, ragged decode steps and caches are compared in float64 with what they
were before it. `make test` runs cells in which every value occurs, without families that have the
structure of another, which are in `make slow`; `make exhaustive` runs cells in which every pair of
values occurs and `make slow` a third of those, each compared after every pass and in the program's
own types too, and `make matrix` cells in which every three values occur.

"""
BETWEEN = """
Combinations without a cell, by axes, with the code of the refusal where it is one:

"""


def page() -> str:
    """The page, ending in a newline."""
    families = AXES["family"]
    head = ["", *[f"`{family}`" for family in families]]
    rows = [
        [f"{axis}: {value}", *[_cell(family, axis, value) for family in families]]
        for axis, values in AXES.items()
        for value in values
        if axis != "family"
    ]
    holes = [
        [", ".join(hole.axes), hole.reason, hole.code or "means nothing new"] for hole in HOLES
    ]
    refused = _table([["axes", "reason", "code"], *holes])
    return INTRODUCTION + _table([head, *rows]) + BETWEEN + refused


def _cell(family: str, axis: str, value: str) -> str:
    """``yes`` where every pair of the matrix has the two, else a word for the hole."""
    part = {"family": family, axis: value}
    if is_possible(part):
        return "yes"
    if axis in ("experts", "groups of experts"):
        return "no experts"
    hole = hole_of(part)
    return "no window" if hole is not None and hole.words == "caches" else "refused"


def _table(rows: list[list[str]]) -> str:
    head, *rest = rows
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rest)]
    return "\n".join(lines) + "\n"
