"""Reading the programs that ``graphgen import`` is given, and naming what they take and give."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from graphgen.cli.module_file import read_with_values
from graphgen.errors import GraphgenError
from graphgen.ir import Module, Role

if TYPE_CHECKING:
    from graphgen.eval import Array

# Given, for each program, names as they are in it; gives what became of it, or nothing.
Change = Callable[[str, Module], bool]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user says about names.

    Attributes:
        weights: patterns of arguments that are weights.
        states: inputs and the outputs that are their new values, ``IN=OUT``.
        names: what is called otherwise, ``OLD=NEW``; ``PROGRAM:OLD=NEW`` in one program only.
        raising: whether composites are looked for.
    """

    weights: Sequence[str]
    states: Sequence[str]
    names: Sequence[str]
    raising: bool


def programs(
    sources: Sequence[str],
    wanted: Wanted,
    sizes: Mapping[str, int],
    held: dict[str, Array] | None = None,
) -> list[tuple[str, Module]]:
    """Each source's module by the name of its program, named, raised and with symbols for sizes.

    Args:
        sources: files and functions, each with the name of its program where there are several.
        wanted: what the user says about names.
        sizes: that become symbols.
        held: gets the weights and first states that sources hold, by their own names.

    Raises:
        GraphgenError: GG0705 for a name that nothing has, or a source that cannot be read, and what
            the readers and lifting sizes raise.
    """
    named = [_split(source) for source in sources]
    held = {} if held is None else held
    sized = [_is_sized(source, sizes) for _, source in named]
    found = [
        (name, _read(source, sizes if takes else None, held))
        for (name, source), takes in zip(named, sized, strict=True)
    ]
    prepare(found, wanted)
    if not sizes:
        return found
    from graphgen.passes.raising.sizes import lift_sizes, other_sizes

    second = other_sizes([module for _, module in found], sizes)
    for (name, source), (_, module), takes in zip(named, found, sized, strict=True):
        if takes:
            again = [(name, _read(source, second, {}))]
            prepare(again, wanted, strict=False)
            lift_sizes(module, sizes, again[0][1], second)
        else:
            lift_sizes(module, sizes)
    return found


def joined(found: Sequence[tuple[str, Module]]) -> Module:
    """The only program's module, else one of all."""
    if len(found) == 1 and not found[0][0]:
        return found[0][1]
    from graphgen.passes.raising.join import join

    return join([(name or f"program{number}", m) for number, (name, m) in enumerate(found)])


def _split(source: str) -> tuple[str, str]:
    """``prefill=FILE`` as a name and a source."""
    found = re.fullmatch(r"((?:prefill|decode)(?:\.\w+)*)=(.+)", source)
    return (found[1], found[2]) if found else ("", source)


def _is_sized(source: str, sizes: Mapping[str, int]) -> bool:
    from graphgen.lowering.traced import is_function, takes

    return bool(sizes) and is_function(source) and takes(source, sizes)


def _read(source: str, sizes: Mapping[str, int] | None, held: dict[str, Array]) -> Module:
    """The module of a source; ``sizes`` is what a function is called with."""
    from graphgen.lowering.traced import is_function, traced

    if not is_function(source):
        module, values = read_with_values(source)
        held |= values
        return module
    from graphgen.ops import verify

    program = traced(source, sizes)
    verify(program.module)
    held |= program.values
    return program.module


def prepare(found: Sequence[tuple[str, Module]], wanted: Wanted, *, strict: bool = True) -> None:
    """Names, weights and states; then composites."""
    for text in wanted.names:
        _everywhere(found, text, _renaming(text), strict)
    for pattern in wanted.weights:
        _everywhere(found, pattern, _weights(pattern), strict)
    for text in wanted.states:
        _everywhere(found, text, _states(text), strict)
    if wanted.raising:
        from graphgen.passes.core import run_pipeline
        from graphgen.passes.pipelines import parse

        for _, module in found:
            text = "imported{sharded=true}" if module.level == "sharded" else "imported"
            run_pipeline(module, parse(text))


def _everywhere(
    found: Sequence[tuple[str, Module]], text: str, change: Change, strict: bool
) -> None:
    """Make a change in each program that has the names it speaks of (GG0705 if none has)."""
    done = [change(name, module) for name, module in found]
    if strict and not any(done):
        names = [row.name for _, module in found for row in module.interface.values()]
        roles = (Role.INPUT, Role.OUTPUT)
        shown = [n for n in dict.fromkeys(names) if _role(found, n) in roles]
        raise GraphgenError(
            "GG0705",
            f"no input is called '{text.partition('=')[0]}'",
            help=f"the inputs are {', '.join(shown[:8]) or 'none'}",
        )


def _role(found: Sequence[tuple[str, Module]], name: str) -> Role | None:
    return next((m.interface[name].role for _, m in found if name in m.interface), None)


def _pair(text: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    if not equals or not left or not right:
        raise GraphgenError("GG0705", f"'{text}' says no pair", help="write NAME=NAME")
    return left, right


def _renaming(text: str) -> Change:
    from graphgen.passes.raising.names import matching, rename

    program, colon, rest = text.rpartition(":")
    old, new = _pair(rest)

    def change(name: str, module: Module) -> bool:
        if colon and program != name:
            return False
        found = matching(module.interface, old, new)
        if found:
            rename(module, found)
        return bool(found)

    return change


def _weights(pattern: str) -> Change:
    def change(name: str, module: Module) -> bool:
        inputs = [row for row in module.entries(Role.INPUT) if fnmatchcase(row.name, pattern)]
        for row in inputs:
            module.interface[row.name] = replace(row, role=Role.WEIGHT)
        return bool(inputs)

    return change


def _states(text: str) -> Change:
    from graphgen.passes.raising.names import keep_states, matching

    given, back = _pair(text)

    def change(name: str, module: Module) -> bool:
        inputs = [row.name for row in module.entries(Role.INPUT)]
        found = matching(inputs, given, back)
        if found:
            keep_states(module, found)
        return bool(found)

    return change
