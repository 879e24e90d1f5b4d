"""``graphgen inspect`` of checkpoints, caches, work folders, NEFFs, artifacts and HLO summaries."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from graphgen.analysis.overview import Overview, overview
from graphgen.atomic_write import unreadable
from graphgen.cli.console import note
from graphgen.errors import GraphgenError
from graphgen.gc_pause import paused_collector
from graphgen.ir import Function, Module
from graphgen.json_value import Json
from graphgen.read_file import is_file, is_folder
from graphgen.report.program_json import module_json, program_json
from graphgen.report.program_text import module_text, program_text
from graphgen.report.table import Report, Table
from graphgen.report.units import folded, pattern, short, size, spans
from graphgen.runtime.checkpoint.stored_range import CheckpointQuantization, quantization_of
from graphgen.runtime.file_kind import FileKind

if TYPE_CHECKING:
    from graphgen.lowering.hlo.hlo_summary import HloParameter, HloSummary
    from graphgen.lowering.hlo.partitioning import Partitioning, ShardedArgument
    from graphgen.lowering.neuron import ProgramFolder
    from graphgen.runtime.checkpoint.listing import Listing, Stored

# Most rows of parameters.
_MOST_TENSORS = 16


@dataclass(frozen=True, slots=True)
class Inspection:
    """A result in both forms; only the form that is printed is computed.

    Attributes:
        facts: for ``--json``.
        report: for people.
    """

    facts: Callable[[], Json]
    report: Callable[[], Report]


def inspect_file(path: Path, kind: FileKind, largest: int) -> Inspection | None:
    """Inspect a file or folder that is not a module; ``None`` for a module.

    A work folder with one module in it counts as that module.

    Raises:
        GraphgenError: GG0802 a folder with nothing known in it, GG0601 a damaged checkpoint.
    """
    from graphgen.cli.inspect_dump import inspect_dump_file, inspect_dump_folder

    match kind:
        case FileKind.XLA_DUMP:
            return inspect_dump_folder(path)
        case FileKind.ARTIFACT:
            return _artifact(path, largest)
        case FileKind.CHECKPOINT:
            return _checkpoint(path, largest)
        case FileKind.FOLDER:
            return _folder(path)
        case FileKind.NEFF:
            return _neff(path)
        case FileKind.XLA_FILE:
            return inspect_dump_file(path)
        case _:
            return None


def _folder(path: Path) -> Inspection | None:
    """A cache, a work folder, or a folder of dumps."""
    from graphgen.lowering.neuron import describe
    from graphgen.lowering.open import list_dumps

    try:
        found = describe(path)
    except GraphgenError:
        rows = list_dumps(path)
        if not rows and is_file(path / "config.json"):
            raise GraphgenError(
                "GG0601",
                "config.json is there, but weights are missing",
                where=str(path),
                help=f"graphgen build {shlex.quote(str(path))} -o model.gg writes its graph",
            ) from None
        if not rows:
            raise
        return _dumps(rows)
    if len(found.programs) == 1 and found.programs[0].module is not None:
        return None
    return _programs(found)


def _dumps(rows: Sequence[dict[str, Json]]) -> Inspection:
    keys = ("module", "instructions", "parameters", "taken_over", "outputs")
    shown = [
        [str(row["file"]), str(row["form"]), size(cast(int, row["bytes"]))]
        + [str(row.get(key, "-")) for key in keys]
        for row in rows
    ]
    headers = ["file", "form", "bytes", "module", "ops", "parameters", "taken over", "outputs"]
    return Inspection(
        lambda: {"kind": "folder of dumps", "modules": rows},
        lambda: [f"folder of dumps: {len(rows)} modules\n", Table(headers, shown)],
    )


def _programs(found: ProgramFolder) -> Inspection:
    """A cache or a work folder."""
    programs: list[Json] = [
        {
            "name": program.name,
            "state": program.state,
            "module": str(program.module) if program.module else None,
            "neff": str(program.neff) if program.neff else None,
            "flags": list(program.flags),
            **dict[str, Json](program.facts),
        }
        for program in found.programs
    ]
    keys = list(dict.fromkeys(key for program in found.programs for key, _ in program.facts))
    rows = [
        [
            program.name,
            program.state,
            program.module.name if program.module else "-",
            _file_size(program.module),
            _file_size(program.neff),
            *[short(dict(program.facts).get(key, "-"), 30) for key in keys],
            short(" ".join(program.flags) or "-", 60),
        ]
        for program in found.programs
    ]
    headers = ["program", "state", "module", "bytes", "neff", *keys, "flags"]
    return Inspection(
        lambda: {"kind": found.kind, "programs": programs},
        lambda: [f"{found.kind}: {len(rows)} programs\n", Table(headers, rows)],
    )


def _file_size(path: Path | None) -> str:
    return size(path.stat().st_size) if path else "-"


def _neff(path: Path) -> Inspection:
    from graphgen.lowering.neuron import read_neff

    found = read_neff(path)
    members: list[Json] = [asdict(member) for member in found.members]
    head = f"NEFF: {size(found.nbytes)}, {len(members)} files, says {', '.join(found.words)}\n"
    rows = [[member.name, size(member.nbytes)] for member in found.members]
    words = [*found.words]
    return Inspection(
        lambda: {"kind": "NEFF", "bytes": found.nbytes, "words": words, "members": members},
        lambda: [head, Table(["file", "bytes"], rows, 1)],
    )


def _checkpoint(path: Path, largest: int) -> Inspection:
    """A file of tensors, or those of a folder."""
    from graphgen.runtime.checkpoint.hf_folder import absent_files
    from graphgen.runtime.checkpoint.listing import checkpoint_files, list_checkpoint

    folder = is_folder(path)
    if folder and (absent := absent_files(path)):
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        note(f"incomplete: the index names {absent[0]}{more}, not in the folder")
    listing = list_checkpoint(checkpoint_files(path) if folder else [path])
    quantization = quantization_of(path)

    def facts() -> Json:
        return {
            "kind": listing.kind,
            "bytes": listing.nbytes,
            "facts": dict(listing.facts),
            "quantization": quantization.facts(),
            "tensors": [{**asdict(tensor), "shape": [*tensor.shape]} for tensor in listing.tensors],
        }

    return Inspection(facts, lambda: _checkpoint_report(listing, largest, quantization))


def _checkpoint_report(
    listing: Listing, largest: int, quantization: CheckpointQuantization
) -> Report:
    count = len(listing.tensors)
    head = [f"{listing.kind}: {count} tensors, {size(listing.nbytes)}{_by_type(listing)}"]
    head += [f"  {key}: {short(value, 80)}" for key, value in listing.facts[:12]]
    head += quantization.lines()
    found: dict[tuple[str, ...], list[Stored]] = {}
    for tensor in listing.tensors:
        key = (pattern(tensor.name), tensor.type, str(tensor.shape))
        found.setdefault(key, []).append(tensor)
    rows = [_stored(tensors) for tensors in found.values()]
    report = [*head, "", Table(["tensors", "count", "bytes each", "type"], rows, 2)]
    top = sorted(listing.tensors, key=lambda tensor: -tensor.nbytes)[:largest]
    if top:
        rows = [[t.name, size(t.nbytes), f"{t.type}{[*t.shape]}", t.file] for t in top]
        report.append(Table(["largest", "bytes", "type", "file"], rows, 1))
    return report


def _stored(tensors: list[Stored]) -> list[str]:
    first = tensors[0]
    names = folded([tensor.name for tensor in tensors])
    return [names, str(len(tensors)), size(first.nbytes), f"{first.type}{[*first.shape]}"]


def _by_type(listing: Listing) -> str:
    bytes_: dict[str, int] = {}
    for tensor in listing.tensors:
        bytes_[tensor.type] = bytes_.get(tensor.type, 0) + tensor.nbytes
    return "".join(f", {size(count)} of {kind}" for kind, count in bytes_.items())


def _artifact(path: Path, largest: int) -> Inspection:
    """The manifest, the programs, and the weights of each rank."""
    from graphgen.runtime.artifact import open_artifact
    from graphgen.runtime.model import settings_of

    artifact = open_artifact(path)
    settings = settings_of(artifact.model.settings)
    compiled = sorted(item.name for item in (path / "compiled").glob("*") if is_file(item))
    shown = ", ".join(f"{key} {value}" for key, value in settings.items() if value != "")
    head = f"artifact of graphgen, from checkpoint {artifact.source[:12]}: {shown}\n"
    head += f"  compiled for this kind of CPU: {len(compiled)} files\n"
    facts: dict[str, Json] = {
        "kind": "artifact",
        "source": artifact.source,
        "settings": cast(Json, settings),
        "compiled": [*compiled],
    }
    module = artifact.model.module
    return programs_inspection(module, module.programs(), largest, head, facts)


def inspect_summary(path: Path) -> Inspection:
    """Counts from walking through an HLO protobuf or HLO text of any size; no graph is built.

    Raises:
        GraphgenError: GG0705 the file cannot be read, GG0801 it is damaged or not a protobuf.
    """
    from graphgen.lowering.open import summarize_file

    try:
        found = summarize_file(path)
    except (OSError, ValueError) as error:
        raise unreadable(str(path), error) from error
    return Inspection(
        lambda: cast(Json, json.loads(json.dumps(asdict(found)))),
        lambda: _summary(found, path.stat().st_size),
    )


def _summary(found: HloSummary, nbytes: int) -> Report:
    ops = sum(found.opcodes.values())
    report: list[str | Table] = [
        f"{found.name}: {size(nbytes)}, {found.computations} computations, {ops} instructions",
        f"  entry       %{found.entry}, {len(found.outputs)} outputs",
        f"  constants   {size(found.constant_bytes)}",
        f"  highest id  {found.highest_id}"
        + ("  (readers before jaxlib 0.6 refuse it)" if found.highest_id > 2**31 - 1 else ""),
        "  ops         " + ", ".join(f"{k} {v}" for k, v in [*found.opcodes.items()][:10]),
    ]
    for name, counts in (("collectives", found.collectives), ("calls", found.custom_calls)):
        if counts:
            report.append(f"  {name:<12}" + ", ".join(f"{k} {v}" for k, v in counts.items()))
    headers = ["parameters", "name", "shape", "bytes", "taken over"]
    report += ["", Table(headers, _parameters(found.parameters))]
    if found.largest:
        rows = [[name, size(count)] for name, count in found.largest]
        report.append(Table(["largest constants", "bytes"], rows, 1))
    return report


def _parameters(parameters: tuple[HloParameter, ...]) -> list[list[str]]:
    found: dict[tuple[str, str, bool], list[tuple[int, HloParameter]]] = {}
    for index, item in enumerate(parameters):
        key = (pattern(item.name), item.shape, item.aliased)
        found.setdefault(key, []).append((index, item))
    rows = [
        [
            spans([index for index, _ in items]),
            folded([item.name for _, item in items]),
            items[0][1].shape,
            size(items[0][1].nbytes),
            "by an output" if items[0][1].aliased else "-",
        ]
        for items in found.values()
    ]
    if len(rows) <= _MOST_TENSORS:
        return rows
    return [*rows[:_MOST_TENSORS], [f"{len(rows) - _MOST_TENSORS} more", *[""] * 4]]


_MOST_CELLS = 16


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
    if len(cells) > _MOST_CELLS:
        cells = [*cells[:_MOST_CELLS], [f"{len(cells) - _MOST_CELLS} more", "", "", "", ""]]
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
    from graphgen.lowering.hlo.partitioning import partitioning_of

    found = partitioning_of(module)
    if found is not None and found.before:
        note(
            f"this module is from before SPMD partitioning: its sizes and work are global, of "
            f"{found.partitions} partitions together"
        )


def overviews(module: Module, functions: Sequence[Function], largest: int) -> list[Overview]:
    """One overview per function, with its ``largest`` largest values."""
    with paused_collector():
        return [overview(module, function, largest) for function in functions]


def programs_inspection(
    module: Module,
    functions: Sequence[Function],
    largest: int,
    head: str = "",
    more: Mapping[str, Json] | None = None,
) -> Inspection:
    """A module and its programs.

    Args:
        module: of the programs.
        functions: the programs.
        largest: number of largest values to show.
        head: text before the module's.
        more: facts before the module's.
    """
    from graphgen.lowering.hlo.partitioning import partitioning_of
    from graphgen.lowering.hlo.subcomputations import opcodes_inside

    items = overviews(module, functions, largest)
    partitioned = partitioning_of(module)

    def facts() -> Json:
        return {
            **(more or {}),
            **module_json(module),
            "partitioning": partitioned.to_json() if partitioned is not None else None,
            "programs": [program_facts(item) for item in items],
        }

    def report() -> Report:
        parts = [part for item in items for part in program_text(item, opcodes_inside(item))]
        split = partitioning_report(partitioned) if partitioned is not None else []
        return [head + module_text(module), *split, *parts]

    return Inspection(facts, report)


def program_facts(item: Overview) -> dict[str, Json]:
    """One program as JSON."""
    from graphgen.lowering.hlo.subcomputations import opcodes_inside

    return program_json(item, opcodes_inside(item))
