"""Contradictions within a file: instructions that do not fit their operands, and shardings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.ir import Module, Value
from graphgen.lowering.hlo.annotations import FRONTEND, SHARDING, frontend_map
from graphgen.lowering.hlo_text.hlo_sharding import HloSharding, parse_sharding
from graphgen.lowering.stablehlo.shardy import SHARDING as SHARDY
from graphgen.lowering.stablehlo.shardy import axes_of, meshes_of_module

# Fact of a module: what contradicts itself, one a line.
INVALID: Final = "invalid"


def note_contradictions(module: Module) -> None:
    """Add the shardings that contradict themselves to what a reader found, in place."""
    found = [line for line in module.meta.get(INVALID, "").split("\n") if line]
    found += dict.fromkeys(_wrong_shardings(module))
    if found:
        module.meta[INVALID] = "\n".join(found)


def require_valid(module: Module) -> None:
    """Refuse a module that contradicts itself (GG0203)."""
    found = module.meta.get(INVALID, "").split("\n")
    if found[0]:
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        raise GraphgenError(
            "GG0203",
            f"the file contradicts itself: {found[0]}{more}",
            help="graphgen inspect lists what does not fit",
        )


def _wrong_shardings(module: Module) -> Iterator[str]:
    partitions = module.stated_number("hlo.num_partitions", 1)
    found = meshes_of_module(module)
    meshes = {name: {axis for axis, _ in mesh.axes} for name, mesh in found.items()}
    for function in module.functions.values():
        values: list[tuple[Value, object, str]] = [
            (value, value.annotations.get(SHARDING), str(value.annotations.get(FRONTEND, "")))
            for value in function.args
        ]
        values += [
            (op.results[0], op.annotations.get(SHARDING), str(op.annotations.get(FRONTEND, "")))
            for op in function.block
            if op.annotations and op.results
        ]
        for value, text, entries in values:
            several = value.op is not None and len(value.op.results) > 1
            if isinstance(text, str):
                for what in _wrong(text, value.type.rank, partitions, several=several):
                    yield f"%{value.name or '-'}: sharding {text}: {what}"
            shardy = frontend_map({FRONTEND: entries}).get(SHARDY, "") if entries else ""
            for what in _wrong_axes(axes_of(shardy), meshes):
                yield f"%{value.name or '-'}: {shardy}: {what}"


def _wrong(text: str, rank: int, partitions: int, *, several: bool) -> Iterator[str]:
    try:
        sharding = parse_sharding(text)
    except GraphgenError as error:
        yield error.what
        return
    if sharding.kind == "devices":
        yield from _wrong_tiles(sharding, rank, partitions, several=several)


def _wrong_tiles(
    sharding: HloSharding, rank: int, partitions: int, *, several: bool
) -> Iterator[str]:
    order, tiles = sharding.order, prod(sharding.dims)
    if len(order) != tiles:
        yield f"{tiles} tiles for {len(order)} devices"
    if len(set(order)) != len(order):
        yield "a device has two tiles"
    if partitions > 1 and len(order) != partitions:
        yield f"{len(order)} devices, and the module has {partitions} partitions"
    if not several and len(sharding.parts) != rank:
        yield f"{len(sharding.parts)} dimensions for a value of {rank}"


def _wrong_axes(
    used: Sequence[tuple[str, Sequence[str]]], meshes: dict[str, set[str]]
) -> Iterator[str]:
    for mesh, axes in used:
        known = meshes.get(mesh)
        if known is None:
            continue
        for axis in dict.fromkeys(axes):
            name = axis.partition(":")[0]
            if name not in known:
                yield f"no axis '{name}' in mesh {mesh}"
            elif axes.count(axis) > 1:
                yield f"axis '{axis}' is used twice"
