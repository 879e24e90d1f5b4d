"""Binding the symbols of a program to sizes: ``--dims B=1,S=8`` and the defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from graphgen.analysis import called, free_symbols
from graphgen.errors import GraphgenError
from graphgen.ir import WEIGHTS_GLOBAL, WEIGHTS_RANK, Dim, Function, Module
from graphgen.ir.clone import Cloner

# A logical module is run at these sizes when the user says nothing: small enough for NumPy.
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
    """Sizes that go together with those given: as many cache rows as rows, room for the tokens."""
    rows = given.get("B", 1)
    tokens = given.get("S", min(DEFAULT_TOKENS, given.get("C", DEFAULT_TOKENS)))
    attended = given.get("C", given.get("M", max(tokens, DEFAULT_SLOTS)))
    return {"B": rows, "S": tokens, "R": rows, "C": attended, "M": attended, **given}


def alone(module: Module, function: Function) -> Module:
    """The module with this function and what it takes to run it: a new one, the same functions.

    Kept are the functions that it calls and those that prepare the weights it reads, the interface
    rows all these name, and the functions that pack and unpack those rows.
    """
    kept = {function.name: function}
    read = {value.name for value in function.args}
    preparing = [
        module.functions[n] for n in (WEIGHTS_GLOBAL, WEIGHTS_RANK) if n in module.functions
    ]
    if any(name in read for f in preparing for name, _ in f.outputs):
        kept |= {f.name: f for f in preparing}
    names = {value.name for f in kept.values() for value in f.args}
    names |= {name for f in kept.values() for name, _ in f.outputs}
    rows = {name: row for name, row in module.interface.items() if name in names}
    packs = {name for row in rows.values() for name in (row.pack, row.unpack) if name}
    run = {f.name for name in (*kept, *packs) for f in called(module, module.function(name))}
    functions = {n: f for n, f in module.functions.items() if n in kept or n in packs | run}
    return Module(module.name, module.level, module.mesh, functions, rows, module.meta)


def check_sizes(module: Module, function: Function, sizes: Mapping[str, int]) -> None:
    """Every size must be of a symbol there is, and not contradict the program (GG0705)."""
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


def check_slots(sizes: Mapping[str, Dim]) -> None:
    """C slots are read of the M there are (GG0705)."""
    attended, slots = sizes.get("C"), sizes.get("M")
    if isinstance(attended, int) and isinstance(slots, int) and attended > slots:
        raise GraphgenError(
            "GG0705", f"--dims: C = {attended} slots are read, but the cache has M = {slots}"
        )


def bind_symbols(module: Module, sizes: Mapping[str, int]) -> Module:
    """The module with every symbol bound.

    Args:
        module: its programs must agree on the symbols; see :func:`alone`.
        sizes: what the symbols become.

    Raises:
        GraphgenError: GG0106 naming the symbols without a size.
    """
    missing = free_symbols(module.functions.values()) - sizes.keys()
    if missing:
        wanted = ",".join(f"{name}=..." for name in sorted(missing))
        raise GraphgenError(
            "GG0106",
            f"no size for {', '.join(sorted(missing))}",
            help=f"give them: --dims {wanted}",
        )
    made = Module(module.name, module.level, module.mesh, {}, {}, module.meta)
    made.functions = {name: _bound(f, sizes) for name, f in module.functions.items()}
    fixed = {name: size for f in module.programs() for name, size in f.dims.items()}
    values: dict[str, Dim] = {**sizes, **fixed}
    for name, row in module.interface.items():
        made.interface[name] = replace(
            row, logical=row.logical.bind(values), physical=row.physical.bind(values)
        )
    return made


def _bound(function: Function, sizes: Mapping[str, int]) -> Function:
    values: dict[str, Dim] = {**sizes, **function.dims}
    made = Function(function.name, phase=function.phase)
    made.dims = values if function.phase else {}
    Cloner(symbols=values).function(function, made)
    return made
