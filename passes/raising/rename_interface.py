"""Rename the interface of an imported program, and turn inputs into states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from graphgen.errors import GraphgenError
from graphgen.ir import Module, Role


def matching(names: Iterable[str], pattern: str, other: str) -> dict[str, str]:
    """Map each name that matches ``pattern`` to ``other``; ``*`` matches the same text in both.

    Raises:
        GraphgenError: GG0705 where only one of both has a star, or one has several.
    """
    if pattern.count("*") > 1 or pattern.count("*") != other.count("*"):
        raise GraphgenError(
            "GG0705", f"'{pattern}={other}' needs one * on both sides, or none", help="'a.*=b.*'"
        )
    head, star, tail = pattern.partition("*")
    found: dict[str, str] = {}
    for name in names:
        fits = name == pattern
        if star:
            long = len(name) >= len(head) + len(tail)
            fits = long and name.startswith(head) and name.endswith(tail)
        if fits:
            found[name] = other.replace("*", name[len(head) : len(name) - len(tail)])
    return found


def rename(module: Module, names: Mapping[str, str]) -> None:
    """Rename arguments and results, in the interface and in every program.

    Raises:
        GraphgenError: GG0107 where a name is taken.
    """
    after = [names.get(name, name) for name in module.interface]
    twice = next((name for name in after if after.count(name) > 1), None)
    if twice is not None:
        raise GraphgenError("GG0107", f"two of the interface would be called {twice}")
    rows = list(module.interface.values())
    module.interface.clear()
    for row, name in zip(rows, after, strict=True):
        module.interface[name] = replace(row, name=name)
    for function in module.programs():
        given = [value.name or "" for value in function.args]
        function.block.rename_args([names.get(name, name) for name in given])
        taken = {value.name for value in function.args}
        for op in function.block:
            for value in op.results:
                if value.name in taken:
                    value.name = None
        function.outputs = [(names.get(name, name), value) for name, value in function.outputs]


def keep_states(module: Module, states: Mapping[str, str]) -> None:
    """Turn inputs into states; the new value of each is an output.

    Args:
        module: changed in place; each of its programs with the input has the output.
        states: inputs to outputs.

    Raises:
        GraphgenError: GG0705 where there is no such input or output, or their types differ.
    """
    for given, back in states.items():
        row, result = module.interface.get(given), module.interface.get(back)
        if row is None or row.role is not Role.INPUT:
            raise GraphgenError("GG0705", f"no input is called '{given}'")
        if result is None or result.role is not Role.OUTPUT:
            shown = ", ".join(item.name for item in module.entries(Role.OUTPUT)) or "none"
            raise GraphgenError(
                "GG0705", f"no output is called '{back}'", help=f"the outputs are {shown}"
            )
        if row.logical is not result.logical:
            raise GraphgenError(
                "GG0705",
                f"{given} is {row.logical.text} and comes back as {result.logical.text}",
                help="a state has one type in all calls",
            )
        module.interface[given] = replace(row, role=Role.STATE)
        del module.interface[back]
        for function in module.programs():
            pairs = [(given if name == back else name, v) for name, v in function.outputs]
            function.outputs = pairs


def returned_inputs(module: Module) -> dict[str, str]:
    """Find inputs whose updated value is an output: undeclared states."""
    found: dict[str, str] = {}
    inputs = {row.name for row in module.entries(Role.INPUT)}
    for function in module.programs():
        for name, value in function.outputs:
            source = value
            while source.op is not None and source.op.name in ("kv_update", "transpose"):
                source = source.op.operands[0]
            given = source.name or ""
            updated = source is not value and source.op is None and given in inputs
            if updated and source.type is value.type:
                found[given] = name
    return found
