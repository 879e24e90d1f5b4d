"""Stable names: a value keeps its name while passes change the program around it.

The printer numbers unnamed values by position, so one more op renumbers all that follow. In two
texts that are compared, a value that is in both has one name. Where a pass rebuilds a function, as
specialization and partitioning do, its ops take their names from the ops of the old function with
the same location, in the same order.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from graphgen.ir import Function, Op, Value
from graphgen.text.printer import value_names


@dataclass(frozen=True, slots=True)
class _Seen:
    """A function as it was named last.

    Attributes:
        names: of its values.
        keys: of its ops, what they have in common with their copies.
        results: names of the results of each op.
    """

    names: Mapping[Value, str]
    keys: Sequence[Hashable]
    results: Sequence[Sequence[str]]


def parent_of(name: str, known: Mapping[str, object]) -> str:
    """The function that ``name`` was made from: ``decode`` for ``decode.b1.c128``, or itself."""
    while name not in known and "." in name:
        name = name.rpartition(".")[0]
    return name if name in known else ""


class StableNames:
    """Hands out names, and the same again to a value that has been seen before."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._next: dict[str, int] = {}

    def of(self, function: Function) -> Mapping[Value, str]:
        """``%name`` of every value of a function, unique in it."""
        fresh = value_names(function)
        keys = [_key(op) for op in function.block]
        parent = parent_of(function.name, self._seen)
        before = self._seen.get(parent)
        # A number that has been a value's name is not another value's, in a copy neither.
        self._next.setdefault(function.name, self._next.get(parent, 0))
        known: dict[Value, str] = {}
        if before is not None:
            known = {value: name for value, name in before.names.items() if value in fresh}
            if not known:
                known = _copied(function, keys, before)
        taken = set(known.values())
        names: dict[Value, str] = {}
        for value, name in fresh.items():
            found = known.get(value)
            if found is None:
                found = self._unused(function.name, name, taken)
                taken.add(found)
            names[value] = found
        results = [[names[result] for result in op.results] for op in function.block]
        self._seen[function.name] = _Seen(names, keys, results)
        return names

    def _unused(self, function: str, name: str, taken: set[str]) -> str:
        if not name[1:].isdigit() and name not in taken:
            return name
        number = self._next[function]
        while f"%{number}" in taken:
            number += 1
        self._next[function] = number + 1
        return f"%{number}"


def _key(op: Op) -> Hashable:
    return op.name, op.loc.file, op.loc.line, op.loc.scope


def _copied(function: Function, keys: Sequence[Hashable], before: _Seen) -> dict[Value, str]:
    """Names for the ops of a rebuilt function."""
    shown = set(before.names.values())
    names = {v: f"%{v.name}" for v in function.args if f"%{v.name}" in shown}
    ops = list(function.block)
    for place in SequenceMatcher(None, before.keys, keys, autojunk=False).get_matching_blocks():
        for offset in range(place.size):
            op, results = ops[place.b + offset], before.results[place.a + offset]
            names.update(zip(op.results, results, strict=True))
    return names
