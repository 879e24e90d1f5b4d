"""Reports of ``graphgen inspect`` on XLA's dumps: a folder's programs, files about one program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from graphgen.cli.inspect_files import Inspection
from graphgen.cli.memory_cmd import exact
from graphgen.json_value import Json
from graphgen.lowering.xla_dump.dump_files import (
    AFTER,
    ALLOCATIONS,
    BEFORE,
    DEBUG,
    OPTIONS,
    OTHER,
    RANGES,
    REPORT,
    VALUES,
    DumpFile,
    file_without_module,
)
from graphgen.report.table import Report, Table
from graphgen.report.units import short, size

if TYPE_CHECKING:
    from graphgen.lowering.xla_dump.dump_folder import DumpFolder
    from graphgen.lowering.xla_dump.memory_texts import Allocation, XlaPeak

# Most names of small programs in one row, and of values in a row of an allocation.
_MOST_NAMES, _MOST_VALUES = 8, 4


def inspect_dump_folder(path: Path) -> Inspection:
    """The programs of a folder of XLA's dumps."""
    from graphgen.lowering.xla_dump.dump_folder import read_folder

    folder = read_folder(path)
    rows = [item.to_json(path) for item in folder.programs]
    others = _kinds(folder)

    def facts() -> Json:
        return {"kind": "XLA dump", "programs": rows, "other_files": others}

    return Inspection(facts, lambda: _folder_report(folder, rows, others))


def _kinds(folder: DumpFolder) -> dict[str, Json]:
    """The files that are not of a known program, by kind; those of no kind by name."""
    counts = Counter([file.kind for file in folder.others])
    found: dict[str, Json] = {kind: count for kind, count in counts.items() if kind != OTHER}
    unknown = [file.path.relative_to(folder.path).as_posix() for file in folder.others
               if file.kind == OTHER]  # fmt: skip
    return {**found, **({OTHER: cast(Json, unknown)} if unknown else {})}


def _folder_report(folder: DumpFolder, rows: list[dict[str, Json]], others: Json) -> Report:
    keys = ("ops_before", "ops_after", "parameters", "taken_over", "outputs")
    shown = [
        [
            str(row["program"]),
            *["-" if row[key] is None else str(row[key]) for key in keys],
            size(cast(int, row["bytes"])) if row["bytes"] is not None else "-",
            str(row["passes"] or "-"),
        ]
        for row in rows
        if not row["small"]
    ]
    small = [row for row in rows if row["small"]]
    lines: list[str] = []
    if small:
        names = sorted({str(row["module"]) for row in small})
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        some = ", ".join(names[:_MOST_NAMES])
        lines.append(f"  {len(small)} small programs of a few ops: {some}{more}")
    lines += _advice(folder, rows)
    kinds = Counter([kind for row in rows for kind in _of_kinds(row)])
    files = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    lines.append(f"  files: {files}")
    if isinstance(others, dict) and others:
        texts = [
            f"{len(count)} {kind} ({', '.join(map(str, count[:_MOST_NAMES]))})"
            if isinstance(count, list)
            else f"{count} {kind}"
            for kind, count in others.items()
        ]
        lines.append(f"  of no program: {', '.join(texts)}")
    headers = ["program", "ops before", "after", "parameters", "taken over", "outputs", "bytes",
               "passes"]  # fmt: skip
    head = f"XLA dump: {len(rows)} program{'s' if len(rows) != 1 else ''}\n"
    return [head, Table(headers, shown, 7), "\n".join(lines) + "\n"]


def _of_kinds(row: dict[str, Json]) -> list[str]:
    files = row["files"]
    if not isinstance(files, dict):
        return []
    return [kind for kind, names in files.items() for _ in cast(list[Json], names)]


def _advice(folder: DumpFolder, rows: Sequence[dict[str, Json]]) -> list[str]:
    """Commands for the largest program: its pair, its passes, its memory."""
    large = [row for row in rows if not row["small"] and row["ops_after"] is not None]
    if not large:
        return []
    name = str(max(large, key=lambda row: cast(int, row["ops_after"]))["program"])
    program = folder.program(name)
    before, after = program.one(BEFORE), program.one(AFTER)
    lines: list[str] = []
    if before is not None and after is not None:
        pair = f"{before.path} {after.path}"
        lines += [f"  graphgen equiv {pair}", f"  graphgen diff {pair}"]
    if len(program.states) > 1:
        lines.append(f"  graphgen diff {folder.path} --program {name}")
    if after is not None:
        lines.append(f"  graphgen memory {after.path}")
    return lines


def inspect_dump_file(path: Path) -> Inspection | None:
    """A file of XLA that holds no module; ``None`` for a module or a file that is not XLA's."""
    file = file_without_module(path)
    if file is None:
        return None
    shown = _SHOWN.get(file.kind)
    if shown is not None:
        return shown(file)
    text = f"{path}: {file.kind}, {size(path.stat().st_size)}; it holds no module\n"
    facts: Json = {"kind": file.kind, "bytes": path.stat().st_size}
    return Inspection(lambda: facts, lambda: [text])


def _text(file: DumpFile) -> str:
    from graphgen.lowering.xla_dump.dump_folder import text_of

    return text_of(file.path)


def _assignment(file: DumpFile) -> Inspection:
    from graphgen.lowering.xla_dump.memory_texts import read_allocations

    found = read_allocations(_text(file), str(file.path))
    return Inspection(
        lambda: {
            "kind": file.kind,
            "bytes": sum([item.nbytes for item in found]),
            "allocations": [item.to_json() for item in found],
        },
        lambda: _allocations_report(found),
    )


def _allocations_report(found: Sequence[Allocation]) -> list[str | Table]:
    total = sum([item.nbytes for item in found])
    kinds = Counter[str]()
    for item in found:
        kinds[item.kind] += item.nbytes
    head = f"buffer assignment: {len(found)} allocations, {exact(total)}\n"
    head += "  " + ", ".join(f"{size(n)} {kind}" for kind, n in kinds.most_common()) + "\n"
    ordered = sorted(found, key=lambda item: (-item.nbytes, item.number))
    rows = [
        [
            str(item.number),
            size(item.nbytes),
            item.kind + (f" {item.parameter}" if item.parameter >= 0 else ""),
            "yes" if item.lives_out else "-",
            str(len(item.values)),
            short(", ".join(f"%{v.name} @{v.offset}" for v in item.values[:_MOST_VALUES]), 80),
        ]
        for item in ordered
    ]
    return [head, Table(["allocation", "bytes", "kind", "lives out", "values", "in it"], rows, 1)]


def _ranges(file: DumpFile) -> Inspection:
    from graphgen.lowering.xla_dump.memory_texts import read_live_ranges

    found = read_live_ranges(_text(file), str(file.path))
    layers = _layers(file)
    return Inspection(
        lambda: {
            "kind": file.kind,
            "bytes": found.nbytes,
            "time": found.time,
            "instruction": found.instruction,
            "buffers": [
                {"name": name, "bytes": nbytes, "layer": layers.get(_instruction(name), "")}
                for name, nbytes in found.buffers
            ],
            "ranges": [[name, start, end] for name, start, end in found.ranges],
        },
        lambda: _ranges_report(found, layers),
    )


def _instruction(name: str) -> str:
    """The instruction of a value ``name{0}``."""
    return name.partition("{")[0]


def _layers(file: DumpFile) -> dict[str, str]:
    """The place in the traced program of each instruction, from the module beside the file."""
    from graphgen.lowering.xla_dump.dump_folder import DumpProgram, hlo_source, siblings
    from graphgen.lowering.xla_dump.pass_history import read_state

    after = DumpProgram(file.program, siblings(file.path)).one(AFTER)
    if after is None:
        return {}
    return {name: item.layer for name, item in read_state(hlo_source(after.path)).items()}


def _ranges_report(found: XlaPeak, layers: dict[str, str]) -> Report:
    head = f"live ranges: {exact(found.nbytes)} at {found.time}, {found.instruction}\n"
    times = {name: f"{start}-{end}" for name, start, end in found.ranges}
    rows = [
        [f"%{name}", size(nbytes), times.get(name, "-"), layers.get(_instruction(name), "") or "-"]
        for name, nbytes in found.buffers
    ]
    return [head, Table(["at the peak", "bytes", "lives", "layer"], rows, 1)]


def _total(file: DumpFile) -> Inspection:
    from graphgen.lowering.xla_dump.dump_folder import hlo_source, stated_memory
    from graphgen.lowering.xla_dump.memory_texts import report_bytes, total_bytes

    if file.path.suffix == ".pb":
        total = report_bytes(hlo_source(file.path))
    else:
        total = total_bytes(_text(file))
    allocations, _, _ = stated_memory(_beside(file))
    shown = exact(total) if total is not None else "no total"
    blocks = _allocations_report(allocations) if allocations else list[str | Table]()
    return Inspection(
        lambda: {
            "kind": file.kind,
            "bytes": total,
            "allocations": [item.to_json() for item in allocations],
        },
        lambda: [f"{file.kind}: {shown}\n", *blocks],
    )


def _beside(file: DumpFile) -> list[DumpFile]:
    from graphgen.lowering.xla_dump.dump_folder import siblings

    return [item for item in siblings(file.path) if item.kind == ALLOCATIONS]


def _debug(file: DumpFile) -> Inspection:
    from graphgen.lowering.xla_dump.compile_options import read_debug_options

    found = read_debug_options(_text(file))
    facts: Json = {"kind": file.kind, "options": dict[str, Json](found)}
    rows = [[name, value] for name, value in found.items()]
    head = f"debug options: {len(rows)} that are not by default\n"
    return Inspection(lambda: facts, lambda: [head, Table(["option", "value"], rows)])


def _options(file: DumpFile) -> Inspection:
    from graphgen.lowering.xla_dump.compile_options import read_compile_options
    from graphgen.lowering.xla_dump.dump_folder import hlo_source

    found = read_compile_options(hlo_source(file.path))
    rows = [[name, str(value)] for name, value in found.items()]
    return Inspection(
        lambda: {"kind": file.kind, "options": found},
        lambda: [f"{file.kind}: {len(rows)} known\n", Table(["option", "value"], rows)],
    )


def _thunks(file: DumpFile) -> Inspection:
    from graphgen.lowering.xla_dump.thunk_text import read_thunks

    found = read_thunks(_text(file))
    counts = Counter([thunk.kind for thunk in found])
    head = f"thunk sequence: {len(found)} thunks\n"
    rows = [[thunk.kind, thunk.name, short(thunk.rest, 80)] for thunk in found]
    return Inspection(
        lambda: {
            "kind": file.kind,
            "counts": dict[str, Json](counts),
            "thunks": [
                {"kind": thunk.kind, "name": thunk.name, "text": thunk.rest} for thunk in found
            ],
        },
        lambda: [head, Table(["thunk", "op", "text"], rows)],
    )


_SHOWN: dict[str, Callable[[DumpFile], Inspection]] = {
    ALLOCATIONS: _assignment,
    RANGES: _ranges,
    REPORT: _total,
    VALUES: _total,
    DEBUG: _debug,
    OPTIONS: _options,
    "thunk sequence": _thunks,
}
