"""The option ``--dims B=1,S=8``: sizes of the symbols of a program, and their defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

import typer

from graphgen.analysis import free_symbols
from graphgen.errors import GraphgenError
from graphgen.ir import Dim, Function, Module

Dims = Annotated[
    str,
    typer.Option(
        "--dims", metavar="B=1,S=8", help="Sizes of the program's symbols, whatever their names."
    ),
]

# Default sizes of programs that are run: small enough for NumPy.
DEFAULT_TOKENS, DEFAULT_SLOTS = 8, 16


def parse_sizes(text: str) -> dict[str, int]:
    """Read ``B=1,S=8`` (GG0705)."""
    sizes: dict[str, int] = {}
    for item in filter(None, text.replace(" ", "").split(",")):
        match = re.fullmatch(r"([A-Za-z]\w*)=(\d+)", item)
        if not match or not int(match[2]):
            raise GraphgenError(
                "GG0705", f"--dims: '{item}' is not a symbol and a size", help="write e.g. B=1,S=8"
            )
        if match[1] in sizes:
            raise GraphgenError("GG0705", f"--dims: {match[1]} is given twice")
        sizes[match[1]] = int(match[2])
    return sizes


def default_sizes(given: Mapping[str, int]) -> dict[str, int]:
    """Consistent sizes for the other symbols: as many cache rows as rows, room for the tokens."""
    rows = given.get("B", 1)
    tokens = given.get("S", min(DEFAULT_TOKENS, given.get("C", DEFAULT_TOKENS)))
    attended = given.get("C", given.get("M", max(tokens, DEFAULT_SLOTS)))
    return {"B": rows, "S": tokens, "R": rows, "C": attended, "M": attended, **given}


def check_sizes(module: Module, function: Function, sizes: Mapping[str, int]) -> None:
    """Refuse sizes of unknown symbols, or that contradict the program (GG0705)."""
    known = free_symbols(module.functions.values())
    fixed = dict(function.dims)
    for name, size in sizes.items():
        if name in fixed:
            if fixed[name] != size:
                raise GraphgenError(
                    "GG0705",
                    f"--dims: {name} = {size}, but @{function.name} has {name} = {fixed[name]}",
                )
        elif name not in known:
            has = ", ".join(sorted(known)) or "none"
            raise GraphgenError(
                "GG0705", f"--dims: @{function.name} has no symbol '{name}'", help=f"it has {has}"
            )


def pipeline_sizes(module: Module, text: str) -> tuple[str, ...]:
    """``--dims`` as the option ``dims`` of pipelines; every name is a symbol (GG0705)."""
    sizes = parse_sizes(text)
    free = free_symbols(module.functions.values())
    for name in sizes.keys() - free:
        has = ", ".join(sorted(free)) or "none"
        raise GraphgenError(
            "GG0705", f"--dims: @{module.name} has no symbol '{name}'", help=f"it has {has}"
        )
    return tuple(f"{name}={size}" for name, size in sizes.items())


def check_slots(sizes: Mapping[str, Dim]) -> None:
    """Refuse C > M: C slots of M are read (GG0705)."""
    attended, slots = sizes.get("C"), sizes.get("M")
    if isinstance(attended, int) and isinstance(slots, int) and attended > slots:
        raise GraphgenError(
            "GG0705", f"--dims: C = {attended} slots are read, but the cache has M = {slots}"
        )
