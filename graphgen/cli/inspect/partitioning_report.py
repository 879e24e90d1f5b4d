"""The partitioning of a module as commands show it: in front of everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphgen.cli.console import note
from graphgen.ir import Module
from graphgen.report.table import Table
from graphgen.report.units import folded, pattern, short

if TYPE_CHECKING:
    from graphgen.lowering.hlo.preserved.partitioning import Partitioning, ShardedArgument

_MOST = 16


def partitioning_report(found: Partitioning) -> list[str | Table]:
    """Devices, meshes and the sharding of each argument, equal ones as one row."""
    state = (
        "not partitioned yet: sizes are global, of all devices"
        if found.before
        else "sizes are of one rank"
    )
    lines = [f"partitioning: {found.partitions} partitions, {found.replicas} replicas; {state}"]
    lines += [f"  mesh        @{name} {axes}" for name, axes in found.meshes.items()]
    if found.marks:
        lines.append(f"  shardings   {found.marks} ops have one")
    rows: dict[tuple[str, ...], list[ShardedArgument]] = {}
    for item in found.arguments:
        rows.setdefault((pattern(item.name), item.type.text, item.sharding), []).append(item)
    cells = [_row(items, before=found.before) for items in rows.values()]
    if len(cells) > _MOST:
        cells = [*cells[:_MOST], [f"{len(cells) - _MOST} more", "", "", "", ""]]
    if not cells:
        return ["\n".join(lines) + "\n"]
    headers = ["argument", "count", "type", "sharding", "on a rank"]
    return ["\n".join(lines) + "\n", Table(headers, cells, 1)]


def _row(items: list[ShardedArgument], *, before: bool) -> list[str]:
    first = items[0]
    inside = first.per_rank if before else first.type
    return [
        folded([item.name for item in items]),
        str(len(items)),
        first.type.text,
        short(first.sharding, 80),
        inside.text if inside is not None else "-",
    ]


def note_global_sizes(module: Module) -> None:
    """Print a note where a module is not partitioned yet, so that its sizes are global."""
    from graphgen.lowering.hlo.preserved.partitioning import partitioning_of

    found = partitioning_of(module)
    if found is not None and found.before:
        note(
            f"this module is from before SPMD partitioning: its sizes and work are global, of "
            f"{found.partitions} partitions together"
        )
