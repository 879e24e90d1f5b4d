"""Differences of two modules: programs paired by name, and changes that repeat grouped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphgen.analysis.annotation_diff import module_differences
from graphgen.analysis.diff import OpDifference, ProgramDifference, diff_functions
from graphgen.analysis.layers import layers_of
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module
from graphgen.report.units import pattern


@dataclass(frozen=True, slots=True)
class ModuleDifference:
    """Differences of the programs of two modules.

    Attributes:
        programs: of each pair of programs.
        unpaired: names of programs without a counterpart.
        module: differences of the modules themselves, such as the number of partitions.
    """

    programs: list[ProgramDifference]
    unpaired: list[str]
    module: list[str]

    @property
    def same(self) -> bool:
        """True if the modules are equal."""
        return not self.unpaired and not self.module and all(item.same for item in self.programs)

    @property
    def with_bodies(self) -> list[ProgramDifference]:
        """All pairs of programs, each followed by those of its loops and conditionals."""
        return [each for item in self.programs for each in _with_bodies(item)]


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """Changes that differ in numbers only, such as one per layer.

    Attributes:
        changes: in program order.
        layers: names of their layers.
    """

    changes: list[OpDifference]
    layers: list[str]


def diff_modules(first: Module, second: Module, program: str | None = None) -> ModuleDifference:
    """Compare the programs of two modules, or one program of each.

    Args:
        first, second: the modules.
        program: name of the only program to compare.

    Raises:
        GraphgenError: GG0705 if no program has a counterpart, GG0202 for an unknown program.
    """
    mine, theirs = _functions(first, program), _functions(second, program)
    if len(mine) == len(theirs) == 1:
        pairs, unpaired = list(zip(mine.values(), theirs.values(), strict=True)), list[str]()
    else:
        pairs = [(function, theirs[name]) for name, function in mine.items() if name in theirs]
        unpaired = [name for name in (*mine, *theirs) if not (name in mine and name in theirs)]
    if not pairs:
        raise GraphgenError(
            "GG0705",
            "the modules have no program of the same name",
            help=f"they have {', '.join(mine)} and {', '.join(theirs)}",
        )
    programs = [diff_functions((first, second), *pair) for pair in pairs]
    return ModuleDifference(programs, unpaired, module_differences(first, second))


def _functions(module: Module, program: str | None) -> dict[str, Function]:
    programs = {function.name: function for function in module.programs()} or module.functions
    if program is None or (len(programs) == 1 and program not in programs):
        return programs
    return {program: module.function(program.removeprefix("@"))}


def _with_bodies(found: ProgramDifference) -> Iterator[ProgramDifference]:
    seen: set[tuple[str, str]] = set()
    work = [found]
    while work:
        item = work.pop(0)
        names = (item.first.name, item.second.name)
        if names not in seen:
            seen.add(names)
            yield item
            work += item.bodies


def grouped_changes(found: ProgramDifference) -> list[ChangeGroup]:
    """The changes of a program, those that differ in numbers only together."""
    layer_of = {
        op: name
        for function in (found.first, found.second)
        for name, ops in layers_of(function).items()
        for op in ops
    }
    groups: dict[tuple[str, str], ChangeGroup] = {}
    for change in found.changes:
        op = change.first or change.second
        layer = layer_of.get(op, "") if op is not None else ""
        scope = op.loc.scope if op is not None else ""
        key = (pattern(change.what), pattern(scope or layer))
        group = groups.setdefault(key, ChangeGroup([], []))
        group.changes.append(change)
        if layer and layer not in group.layers:
            group.layers.append(layer)
    return list(groups.values())
