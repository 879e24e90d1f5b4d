"""``graphgen memory``: bytes over program order, the peak with its buffers, XLA's allocations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import emit, note
from graphgen.cli.module_file import choose_program, read_module, tell_sizes
from graphgen.cli.open_sizes import with_sizes
from graphgen.cli.shared_options import AsJson, Dims, OnlyProgram, pipeline_sizes
from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.read_file import is_file, is_folder
from graphgen.report.table import Report, Table
from graphgen.report.units import short, size

if TYPE_CHECKING:
    from graphgen.lowering.xla_dump.memory_texts import Allocation
    from graphgen.lowering.xla_dump.memory_use import LiveBuffer, MemoryUse

COMMAND: Final = Command("inspect", "Show what uses the memory of a program.")

_PREFIXES = "KMGT"
_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate(_PREFIXES, 1):
    _UNITS[f"{_letter}B"] = 1000**_power
    _UNITS[f"{_letter}IB"] = 1024**_power
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([a-zA-Z]*)")
# Columns of the chart, and the marks of its heights.
_COLUMNS, _MARKS = 64, " ▁▂▃▄▅▆▇█"

FileOrFolder = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="A scheduled HLO module, a file of XLA about its memory, a dump folder, any module.",
    ),
]
Fit = Annotated[
    str | None,
    typer.Option("--fit", metavar="SIZE", help="Show what has to go so that 16GB, 80GiB fit."),
]
At = Annotated[
    int | None,
    typer.Option("--at", metavar="TIME", min=0, help="Show this instant instead of the peak."),
]
OfKind = Annotated[
    Literal["parameter", "output", "constant", "temp", "thread-local"] | None,
    typer.Option("--kind", help="Show buffers of this kind only."),
]
Top = Annotated[int, typer.Option("--top", min=0, help="Number of buffers to show.")]


def memory(
    path: FileOrFolder,
    program: OnlyProgram = None,
    fit: Fit = None,
    at: At = None,
    top: Top = 10,
    kind: OfKind = None,
    dims: Dims = "",
    as_json: AsJson = False,
) -> None:
    """Show the memory of a program: reserved, over program order, and at its peak.

    A module of XLA after its optimizations states its schedule, from which buffers are assigned as
    XLA's compiler for the CPU does. With XLA's own files beside it (buffer assignment, live ranges,
    usage report, or the assignment inside of the protobuf), their numbers come first. Other modules
    are lowered first; their order is that of the file, and nothing is fused.

    Padding is what the tiles of a layout add. --fit lists the buffers that have to go, the largest
    at the fullest instant first, so that the live bytes fit.

    \b
    Examples:
      graphgen memory dump/module_0006.jit_step.cpu_after_optimizations.txt
      graphgen memory dump/ --program jit_step
      graphgen memory step.hlo --fit 16GB
      graphgen memory step.hlo --kind temp --top 3
      graphgen memory step.mlir --at 12 --json
    """
    found = _memory(path, program, dims)
    limit = None if fit is None else parse_size(fit)
    time = found.peak if at is None else at
    if time >= max(len(found.live), 1):
        what = f"--at: the program has the times 0 to {len(found.live) - 1}"
        raise GraphgenError("GG0705", what)
    if not found.scheduled:
        note("the module states no schedule: the order of its instructions is taken for one")
    emit(
        as_json,
        lambda: _facts(found, time, limit, kind),
        lambda: _report(found, time, limit, top, kind),
    )


def parse_size(text: str) -> int:
    """Bytes of ``16GB`` or ``1.5GiB`` (GG0705)."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[2].upper() not in _UNITS:
        raise GraphgenError("GG0705", f"--fit: '{text}' is not a size such as 16GB or 80GiB")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def _memory(path: str, program: str | None, dims: str) -> MemoryUse:
    from graphgen.lowering.xla_dump.dump_files import AFTER, BEFORE
    from graphgen.lowering.xla_dump.dump_folder import (
        dumped_memory,
        is_dump_folder,
        is_xla_file,
        read_folder,
    )

    place = Path(path)
    if is_folder(place) and is_dump_folder(place):
        chosen = read_folder(place).program(program)
        file = chosen.one(AFTER) or chosen.one(BEFORE)
        if file is None:
            what = f"{chosen.name} has no module in {path}"
            raise GraphgenError("GG0802", what, where=path)
        return dumped_memory(file.path)
    if is_file(place) and is_xla_file(place):
        return dumped_memory(place)
    return _lowered(path, program, dims)


def _lowered(path: str, program: str | None, dims: str) -> MemoryUse:
    """The memory of another module, whose program is written as HLO first."""
    from graphgen.exec.bind import isolate
    from graphgen.lowering.hlo import emit_hlo
    from graphgen.lowering.xla_dump.memory_use import memory_of
    from graphgen.passes.core import run_pipeline
    from graphgen.passes.partial_pipeline import foreign, remaining

    module = read_module(path)
    sized = with_sizes(module, program, dims, default=True)
    if sized is not module:
        module, program, dims = sized, None, ""
    function = choose_program(module, program)
    module = isolate(module, function)
    passes = remaining(module, "cpu", pipeline_sizes(module, dims)) or foreign(module, "cpu")
    if passes:
        note(f"lowering for cpu: {','.join(map(str, passes))}")
        tell_sizes(module, passes)
        run_pipeline(module, passes)
    programs = module.programs()
    names = [item.name for item in programs]
    chosen = programs[0] if programs else module.function(function.name)
    if len(names) > 1:
        note(f"of the programs {', '.join(names)}: {chosen.name}")
    return memory_of(emit_hlo(module, chosen))


def _alive(found: MemoryUse, time: int, kind: str | None) -> list[LiveBuffer]:
    """The buffers alive at an instant, the largest first; of one kind, or all."""
    return [buffer for buffer in found.at(time) if kind in (None, buffer.kind)]


def _facts(found: MemoryUse, time: int, limit: int | None, kind: str | None) -> Json:
    from graphgen.lowering.xla_dump.memory_use import to_fit

    peak = found.xla_peak
    facts: dict[str, Json] = {
        "module": found.name,
        "scheduled": found.scheduled,
        "bytes": found.total,
        "computed_bytes": found.reserved,
        "xla_bytes": found.stated,
        "by_kind": dict(found.by_kind),
        "xla_by_kind": dict(_by_kind(found.assigned)),
        "donated": [{"parameter": name, "bytes": nbytes} for name, nbytes in found.donated],
        "padding": sum(buffer.padding for buffer in found.buffers),
        "peak": {
            "time": time,
            "instruction": _instruction(found, time),
            "bytes": found.live[time] if found.live else 0,
            "buffers": [buffer.to_json() for buffer in _alive(found, time, kind)],
        },
        "live": [*found.live],
        "instructions": [*found.instructions],
        "allocations": [item.to_json() for item in found.assigned],
        "xla_peak": {
            "time": peak.time,
            "instruction": peak.instruction,
            "bytes": peak.nbytes,
            "buffers": [{"name": name, "bytes": nbytes} for name, nbytes in peak.buffers],
        }
        if peak is not None
        else None,
    }
    if limit is not None:
        gone, left = to_fit(found, limit)
        facts["fit"] = {
            "limit": limit,
            "fits": left <= limit,
            "live_bytes": left,
            "to_go": [buffer.to_json() for buffer in gone],
        }
    return facts


def _by_kind(assigned: Sequence[Allocation]) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in assigned:
        found[item.kind] = found.get(item.kind, 0) + item.nbytes
    return found


def _instruction(found: MemoryUse, time: int) -> str:
    return found.instructions[time] if time < len(found.instructions) else ""


def exact(nbytes: int) -> str:
    """Bytes with their unit, and all digits where the unit hides some."""
    shown = size(nbytes)
    return shown if shown.endswith(" B") else f"{shown} ({nbytes:,} B)"


def _report(found: MemoryUse, time: int, limit: int | None, top: int, kind: str | None) -> Report:
    lines = [f"{found.name}: {exact(found.total)} reserved"]
    if found.stated is not None:
        lines.append(f"  XLA's total  {exact(found.stated)}")
    part = found.reserved - (found.stated if found.stated is not None else found.reserved)
    apart = f", {part:+,} B beside XLA's" if part else ""
    lines.append(f"  computed     {exact(found.reserved)}{apart}")
    kinds = _by_kind(found.assigned) or found.by_kind
    lines.append("  of that      " + ", ".join(f"{size(n)} {kind}" for kind, n in kinds.items()))
    if found.donated:
        saved = sum(nbytes for _, nbytes in found.donated)
        names = ", ".join(name for name, _ in found.donated[:8])
        more = f" and {len(found.donated) - 8} more" if len(found.donated) > 8 else ""
        lines.append(f"  donated      {size(saved)}: outputs take the buffers of {names}{more}")
    padding = sum(buffer.padding for buffer in found.buffers)
    lines.append(f"  padding      {size(padding)}")
    if found.xla_peak is not None:
        peak = found.xla_peak
        lines.append(f"  XLA's peak   {exact(peak.nbytes)} live at {peak.time}: {peak.instruction}")
    live = found.live[time] if found.live else 0
    at = f"{size(live)} live at {time}: {_instruction(found, time)}"
    report: list[str | Table] = ["\n".join([*lines, f"  live         {at}", *_chart(found), ""])]
    rows = [_row(buffer) for buffer in _alive(found, time, kind)[:top]]
    headers = ["buffer", "bytes", "padding", "kind", "lives", "shape", "layer"]
    report.append(Table(headers, rows, 2))
    if limit is not None:
        report += _fit_report(found, limit, top)
    return report


def _row(buffer: LiveBuffer) -> list[str]:
    lives = f"{buffer.start}-{buffer.end}"
    padding = size(buffer.padding) if buffer.padding else "-"
    name, shape = f"%{buffer.name}", short(buffer.shape)
    return [
        name,
        size(buffer.nbytes),
        padding,
        buffer.kind,
        lives,
        shape,
        short(buffer.layer) or "-",
    ]


def _chart(found: MemoryUse) -> list[str]:
    """The live bytes over program order, a column for several instants."""
    live, most = found.live, max(found.live, default=0)
    if not most or len(live) < 2:
        return []
    columns = min(_COLUMNS, len(live))
    heights = [
        max(live[len(live) * i // columns : max(len(live) * (i + 1) // columns, 1)] or [0])
        for i in range(columns)
    ]
    marks = "".join([_MARKS[-(-height * (len(_MARKS) - 1) // most)] for height in heights])
    return [f"  over time    |{marks}| 0 to {len(live) - 1}"]


def _fit_report(found: MemoryUse, limit: int, top: int) -> list[str | Table]:
    from graphgen.lowering.xla_dump.memory_use import to_fit

    gone, left = to_fit(found, limit)
    if not gone:
        return [f"fits into {size(limit)}: {size(left)} live at most\n"]
    saved = sum(buffer.nbytes for buffer in gone)
    count = "1 buffer" if len(gone) == 1 else f"{len(gone)} buffers"
    head = f"to fit {size(limit)}, free {count} of {size(saved)}"
    rest = f"; then {size(left)} live at most\n" if left <= limit else "; even then it does not\n"
    headers = ["to go", "bytes", "padding", "kind", "lives", "shape", "layer"]
    return [head + rest, Table(headers, [_row(buffer) for buffer in gone[: max(top, 1)]], 2)]
