"""Fresh names: the first free one of a numbered series."""

from __future__ import annotations

from collections.abc import Container


def fresh_name(
    name: str, taken: Container[str], first: int = 1, form: str = "{name}.{number}"
) -> str:
    """``name`` if it is free, else the first free name of a numbered series.

    Args:
        name: the name wanted.
        taken: names in use; unchanged.
        first: number of the first name of the series.
        form: a name of the series, a format of ``name`` and ``number``.
    """
    found, number = name, first
    while found in taken:
        found, number = form.format(name=name, number=number), number + 1
    return found


def claim_name(name: str, taken: set[str], first: int = 1) -> str:
    """:func:`fresh_name` of ``name``, which is added to ``taken``."""
    found = fresh_name(name, taken, first)
    taken.add(found)
    return found
