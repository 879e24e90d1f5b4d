"""``graphgen inspect`` of what is no module: checkpoints, caches, work folders, NEFF, artifacts."""

from __future__ import annotations

import json
import mmap
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

from graphgen.cli.console import Json, table, write_json, write_stdout
from graphgen.cli.units import folded, pattern, short, size, spans
from graphgen.errors import GraphgenError
from graphgen.whole_file import unreadable

if TYPE_CHECKING:
    from graphgen.lowering.hlo.hlo_summary import HloParameter, HloSummary
    from graphgen.lowering.neuron import Found
    from graphgen.runtime.checkpoint.listing import Listing, Stored

_HEAD = 16


def inspected_otherwise(path: Path, largest: int, *, as_json: bool) -> bool:
    """Inspect what is no module; whether it was none.

    A work folder with one module in it is left to be opened as that.

    Raises:
        GraphgenError: GG0802 a folder with nothing known in it, GG0601 a damaged checkpoint.
    """
    if path.is_dir():
        return _folder(path, largest, as_json=as_json)
    from graphgen.runtime.checkpoint.listing import is_checkpoint, is_torch_file, list_checkpoint

    try:
        with path.open("rb") as opened:
            head = opened.read(_HEAD)
    except (OSError, ValueError):
        return False  # the reader of modules says why
    if is_checkpoint(head) or is_torch_file(path):
        _checkpoint(list_checkpoint([path]), largest, as_json=as_json)
    elif path.suffix == ".neff":
        _neff(path, as_json=as_json)
    else:
        return False
    return True


def _folder(path: Path, largest: int, *, as_json: bool) -> bool:
    from graphgen.lowering.neuron import describe
    from graphgen.runtime.artifact import is_artifact
    from graphgen.runtime.checkpoint.listing import checkpoint_files, list_checkpoint

    if is_artifact(path):
        _artifact(path, largest, as_json=as_json)
        return True
    files = checkpoint_files(path)
    if files:
        _checkpoint(list_checkpoint(files), largest, as_json=as_json)
        return True
    try:
        found = describe(path)
    except GraphgenError:
        if not _dumps(path, as_json=as_json):
            raise
        return True
    if len(found.programs) == 1 and found.programs[0].module is not None:
        return False
    _programs(found, as_json=as_json)
    return True


def _dumps(folder: Path, *, as_json: bool) -> bool:
    """List the modules in a folder of dumps; whether there are any."""
    from graphgen.lowering.open import FORMATS, HEAD

    rows: list[dict[str, Json]] = []
    for file in sorted(item for item in folder.rglob("*") if item.is_file()):
        with file.open("rb") as opened:
            head = opened.read(HEAD)
        form = next((form.name for form in FORMATS if head.strip() and form.fits(head)), None)
        if form is None:
            continue
        row: dict[str, Json] = {"file": str(file.relative_to(folder)), "form": form}
        rows.append({**row, "bytes": file.stat().st_size, **_counts(file, form)})
    if not rows:
        return False
    if as_json:
        write_json({"kind": "folder of dumps", "modules": rows})
        return True
    keys = ("module", "instructions", "parameters", "taken_over", "outputs")
    shown = [
        [str(row["file"]), str(row["form"]), size(cast(int, row["bytes"]))]
        + [str(row.get(key, "-")) for key in keys]
        for row in rows
    ]
    headers = ["file", "form", "bytes", "module", "ops", "parameters", "taken over", "outputs"]
    write_stdout(f"folder of dumps: {len(rows)} modules\n\n{table(headers, shown, sys.stdout)}")
    return True


def _counts(file: Path, form: str) -> dict[str, Json]:
    """What a walk through a protobuf tells at once; nothing of other forms, or a damaged file."""
    from graphgen.lowering.hlo.hlo_summary import summarize_hlo

    if form != "HLO protobuf":
        return {}
    try:
        with file.open("rb") as opened:
            found = summarize_hlo(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
    except GraphgenError as error:
        return {"module": f"damaged: {error.what}"}
    return {
        "module": found.name,
        "instructions": sum(found.opcodes.values()),
        "parameters": len(found.parameters),
        "taken_over": sum(item.aliased for item in found.parameters),
        "outputs": len(found.outputs),
    }


def _programs(found: Found, *, as_json: bool) -> None:
    """A cache or a work folder."""
    if as_json:
        rows: list[Json] = [
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
        write_json({"kind": found.kind, "programs": rows})
        return
    keys = list(dict.fromkeys(key for program in found.programs for key, _ in program.facts))
    shown = [
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
    count = len(found.programs)
    write_stdout(f"{found.kind}: {count} programs\n\n{table(headers, shown, sys.stdout)}")


def _file_size(path: Path | None) -> str:
    return size(path.stat().st_size) if path else "-"


def _neff(path: Path, *, as_json: bool) -> None:
    from graphgen.lowering.neuron import read_neff

    found = read_neff(path)
    if as_json:
        members: list[Json] = [asdict(member) for member in found.members]
        write_json({"kind": "NEFF", "bytes": found.nbytes, "words": [*found.words],
                    "members": members})  # fmt: skip
        return
    head = f"NEFF: {size(found.nbytes)}, {len(found.members)} files, says {', '.join(found.words)}"
    rows = [[member.name, size(member.nbytes)] for member in found.members]
    write_stdout(f"{head}\n\n{table(['file', 'bytes'], rows, sys.stdout, numeric=1)}")


def _checkpoint(listing: Listing, largest: int, *, as_json: bool) -> None:
    if as_json:
        tensors: list[Json] = [{**asdict(t), "shape": [*t.shape]} for t in listing.tensors]
        facts: dict[str, Json] = dict(listing.facts)
        write_json({"kind": listing.kind, "bytes": listing.nbytes, "facts": facts,
                    "tensors": tensors})  # fmt: skip
        return
    count = len(listing.tensors)
    lines = [f"{listing.kind}: {count} tensors, {size(listing.nbytes)}{_by_type(listing)}"]
    lines += [f"  {key}: {short(value, 80)}" for key, value in listing.facts[:12]]
    found: dict[tuple[str, ...], list[Stored]] = {}
    for tensor in listing.tensors:
        key = (pattern(tensor.name), tensor.type, str(tensor.shape))
        found.setdefault(key, []).append(tensor)
    rows = [_stored(tensors) for tensors in found.values()]
    headers = ["tensors", "count", "bytes each", "type"]
    lines += ["", table(headers, rows, sys.stdout, numeric=2)]
    top = sorted(listing.tensors, key=lambda tensor: -tensor.nbytes)[:largest]
    if top:
        rows = [[t.name, size(t.nbytes), f"{t.type}{[*t.shape]}", t.file] for t in top]
        lines.append(table(["largest", "bytes", "type", "file"], rows, sys.stdout, numeric=1))
    write_stdout("\n".join(lines))


def _stored(tensors: list[Stored]) -> list[str]:
    first = tensors[0]
    names = folded([tensor.name for tensor in tensors])
    return [names, str(len(tensors)), size(first.nbytes), f"{first.type}{[*first.shape]}"]


def _by_type(listing: Listing) -> str:
    bytes_: dict[str, int] = {}
    for tensor in listing.tensors:
        bytes_[tensor.type] = bytes_.get(tensor.type, 0) + tensor.nbytes
    return "".join(f", {size(count)} of {kind}" for kind, count in bytes_.items())


def _artifact(path: Path, largest: int, *, as_json: bool) -> None:
    """The manifest, the programs, and the weights of each rank."""
    from graphgen.analysis.overview import overview
    from graphgen.cli.inspect.inspect_program import (
        module_json,
        module_text,
        program_json,
        program_text,
    )
    from graphgen.runtime.artifact import open_artifact

    artifact = open_artifact(path)
    module = artifact.model.module
    looked = [overview(module, function, largest) for function in module.programs()]
    settings = asdict(artifact.model.settings)
    compiled = sorted(item.name for item in (path / "compiled").glob("*") if item.is_file())
    if as_json:
        programs: list[Json] = [program_json(item) for item in looked]
        facts: dict[str, Json] = {"settings": cast(Json, settings), "compiled": [*compiled]}
        write_json({"kind": "artifact", "source": artifact.source, **facts,
                    **module_json(module), "programs": programs})  # fmt: skip
        return
    shown = ", ".join(f"{key} {value}" for key, value in settings.items() if value != "")
    head = f"artifact of graphgen, from checkpoint {artifact.source[:12]}: {shown}\n"
    head += f"  compiled for this kind of CPU: {len(compiled)} files\n"
    write_stdout("\n".join([head + module_text(module), *map(program_text, looked)]))


def summarized(path: Path, *, as_json: bool) -> None:
    """What walking through an HLO protobuf tells, whatever its size and its types.

    Raises:
        GraphgenError: GG0705 it cannot be read, GG0801 it is damaged or none.
    """
    from graphgen.lowering.hlo.hlo_summary import summarize_hlo

    try:
        with path.open("rb") as opened:
            mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise unreadable(str(path), error) from error
    found = summarize_hlo(mapped)
    if as_json:
        write_json(cast(Json, json.loads(json.dumps(asdict(found)))))
        return
    write_stdout(_summary(found, path.stat().st_size))


def _summary(found: HloSummary, nbytes: int) -> str:
    ops = sum(found.opcodes.values())
    lines = [
        f"{found.name}: {size(nbytes)}, {found.computations} computations, {ops} instructions",
        f"  entry       %{found.entry}, {len(found.outputs)} outputs",
        f"  constants   {size(found.constant_bytes)}",
        f"  highest id  {found.highest_id}"
        + ("  (readers before jaxlib 0.6 refuse it)" if found.highest_id > 2**31 - 1 else ""),
        "  ops         " + ", ".join(f"{k} {v}" for k, v in [*found.opcodes.items()][:10]),
    ]
    for name, counts in (("collectives", found.collectives), ("calls", found.custom_calls)):
        if counts:
            lines.append(f"  {name:<12}" + ", ".join(f"{k} {v}" for k, v in counts.items()))
    lines += ["", table(_PARAMETERS, _parameters(found.parameters), sys.stdout)]
    if found.largest:
        rows = [[name, size(count)] for name, count in found.largest]
        lines.append(table(["largest constants", "bytes"], rows, sys.stdout, numeric=1))
    return "\n".join(lines)


_PARAMETERS = ["parameters", "name", "shape", "bytes", "taken over"]


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
    most = 16
    return rows if len(rows) <= most else [*rows[:most], [f"{len(rows) - most} more", *[""] * 4]]
