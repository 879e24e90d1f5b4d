"""Import of programs of other frontends: names, weights, states, symbolic sizes, composites."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from graphgen.errors import GraphgenError
from graphgen.ir import Module, Role
from graphgen.read_file import is_there

if TYPE_CHECKING:
    from graphgen.eval import Array

# Changes a program, given by name and module; false if the program has none of the names.
Change = Callable[[str, Module], bool]
# Module of a file, and the weights and first states in it by name.
Read = Callable[[str], tuple[Module, "Mapping[str, Array]"]]


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Roles and names of the interface of imported programs.

    Attributes:
        weights: patterns of arguments that are weights.
        states: inputs and the outputs that are their new values, ``IN=OUT``.
        names: renamed inputs and outputs, ``OLD=NEW``; ``PROGRAM:OLD=NEW`` in one program only.
        raising: whether to raise ops to composites.
    """

    weights: Sequence[str]
    states: Sequence[str]
    names: Sequence[str]
    raising: bool


def import_programs(
    sources: Sequence[str],
    wanted: ImportOptions,
    sizes: Mapping[str, int],
    held: dict[str, Array] | None = None,
    read: Read | None = None,
) -> list[tuple[str, Module]]:
    """Each source's module by the name of its program, named, raised and with symbols for sizes.

    Args:
        sources: files and functions, each with the name of its program if there are several.
        wanted: roles and names.
        sizes: values of the symbols that replace them.
        held: receives the weights and first states that sources hold, by their own names.
        read: reads a file; by default as :func:`graphgen.lowering.open.open_with_values`.

    Raises:
        GraphgenError: GG0705 for a name that no program has, or an unreadable source, and what the
            readers and the symbolizer raise.
    """
    named = [_split(source) for source in sources]
    held = {} if held is None else held
    read = read or _read_file
    sized = [_is_sized(source, sizes) for _, source in named]
    found = [
        (name, _read(source, sizes if takes else None, held, read))
        for (name, source), takes in zip(named, sized, strict=True)
    ]
    prepare(found, wanted)
    if not sizes:
        return found
    from graphgen.passes.raising.symbolize_shapes import lift_sizes, other_sizes

    second = other_sizes([module for _, module in found], sizes)
    for (name, source), (_, module), takes in zip(named, found, sized, strict=True):
        if takes:
            again = [(name, _read(source, second, {}, read))]
            prepare(again, wanted, strict=False)
            lift_sizes(module, sizes, again[0][1], second)
        else:
            lift_sizes(module, sizes)
    return found


def joined(found: Sequence[tuple[str, Module]]) -> Module:
    """One module of all programs."""
    if len(found) == 1 and not found[0][0]:
        return found[0][1]
    from graphgen.passes.raising.merge_programs import join

    return join([(name or f"program{number}", m) for number, (name, m) in enumerate(found)])


def _split(source: str) -> tuple[str, str]:
    """``prefill=FILE`` as a name and a source; a file may have ``=`` in its own name."""
    found = re.fullmatch(r"([A-Za-z_]\w*(?:\.\w+)*)=(.+)", source)
    return ("", source) if found is None or is_there(Path(source)) else (found[1], found[2])


def _is_sized(source: str, sizes: Mapping[str, int]) -> bool:
    from graphgen.lowering.traced_function import is_function, takes

    return bool(sizes) and is_function(source) and takes(source, sizes)


def _read_file(name: str) -> tuple[Module, Mapping[str, Array]]:
    from graphgen.lowering.open import open_with_values, source_of

    return open_with_values(source_of(name))


def _read(
    source: str, sizes: Mapping[str, int] | None, held: dict[str, Array], read: Read
) -> Module:
    """The module of a source; ``sizes`` is what a function is called with."""
    from graphgen.lowering.traced_function import is_function, traced

    if not is_function(source):
        module, values = read(source)
        held |= values
        return module
    from graphgen.ops import verify

    program = traced(source, sizes)
    verify(program.module)
    held |= program.values
    return program.module


def prepare(
    found: Sequence[tuple[str, Module]], wanted: ImportOptions, *, strict: bool = True
) -> None:
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
    from graphgen.passes.raising.rename_interface import matching, rename

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
    from graphgen.passes.raising.rename_interface import keep_states, matching

    given, back = _pair(text)

    def change(name: str, module: Module) -> bool:
        inputs = [row.name for row in module.entries(Role.INPUT)]
        found = matching(inputs, given, back)
        if found:
            keep_states(module, found)
        return bool(found)

    return change


def composite_counts(module: Module) -> dict[str, dict[str, int]]:
    """For each kind of composite, the number of them in each program."""
    from graphgen.passes.raising.near_misses import found_in

    each = {function.name: found_in(function) for function in module.programs()}
    names = dict.fromkeys(name for counts in each.values() for name in counts)
    return {name: {program: each[program].get(name, 0) for program in each} for name in names}
