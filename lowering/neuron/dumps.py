"""Lists the modules in a folder of dumps, in any known format, with counts of HLO protobufs."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.lowering.hlo import looks_like_text, parse_hlo_text
from graphgen.lowering.hlo.hlo_summary import HloSummary, summarize_hlo
from graphgen.lowering.open import FORMATS, HEAD
from graphgen.paused_collector import paused_collector


def summarize_file(path: Path) -> HloSummary:
    """Summarize an HLO protobuf of any size, or HLO text (GG0801, GG0201 if it is damaged).

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is empty.
    """
    with path.open("rb") as opened:
        data = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    if looks_like_text(data[:HEAD]):
        with paused_collector():
            return summarize_hlo(parse_hlo_text(data[:].decode("utf-8"), str(path)))
    return summarize_hlo(data)


def list_dumps(folder: Path) -> list[dict[str, Json]]:
    """List the modules below a folder: file, form, bytes, and for HLO protobufs the counts.

    Keys of an HLO protobuf: ``module``, ``instructions``, ``parameters``, ``taken_over``,
    ``outputs``; of a damaged one ``module`` only.
    """
    return [*_dumps(folder)]


def _dumps(folder: Path) -> Iterator[dict[str, Json]]:
    for file in sorted(item for item in folder.rglob("*") if item.is_file()):
        with file.open("rb") as opened:
            head = opened.read(HEAD)
        form = next((form.name for form in FORMATS if head.strip() and form.fits(head)), None)
        if form is not None:
            counts = _counts(file) if form == "HLO protobuf" else {}
            row: dict[str, Json] = {"file": str(file.relative_to(folder)), "form": form}
            yield {**row, "bytes": file.stat().st_size, **counts}


def _counts(file: Path) -> dict[str, Json]:
    try:
        found = summarize_file(file)
    except GraphgenError as error:
        return {"module": f"damaged: {error.what}"}
    return {
        "module": found.name,
        "instructions": sum(found.opcodes.values()),
        "parameters": len(found.parameters),
        "taken_over": sum(item.aliased for item in found.parameters),
        "outputs": len(found.outputs),
    }
