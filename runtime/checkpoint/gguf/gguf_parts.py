"""A model in several GGUF files, as llama.cpp splits them: ``NAME-00001-of-00003.gguf``, ..."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.gguf.gguf_header import GgufHeader, GgufTensor, read_header
from graphgen.runtime.checkpoint.mapped_file import unreadable

_PART: Final = re.compile(r"(?P<name>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_COUNT, _NUMBER, _TENSORS = "split.count", "split.no", "split.tensors.count"


def first_part(path: Path) -> Path:
    """The file that a split model begins with, by the name of any of its files."""
    return part_files(path)[0]


def part_files(path: Path) -> list[Path]:
    """The files a split model has, by the name of any of them; the file alone if it is not one."""
    match = _PART.fullmatch(path.name)
    if match is None:
        return [path]
    count = int(match["count"])
    names = [f"{match['name']}-{n:05d}-of-{count:05d}.gguf" for n in range(1, count + 1)]
    return [path.with_name(name) for name in names] if path.name in names else [path]


def read_parts(path: Path) -> list[GgufHeader]:
    """The headers of all files of a model, in order; one for a model that is not split.

    Raises:
        GraphgenError: GG0601 for a damaged file, for parts that are missing or do not belong
            together, and for a part that does not have the name of one.
    """
    header = read_header(path)
    count = _number(header, _COUNT, 1)
    if count <= 1:
        return [header]
    files = part_files(path)
    if len(files) != count:
        raise unreadable(
            path,
            f"the file is part {_number(header, _NUMBER, 0) + 1} of {count}, but is not called "
            f"NAME-00001-of-{count:05d}.gguf",
            help="give the parts the names they had, or merge them",
        )
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        shown = "\n".join(f"missing: {name}" for name in missing[:20])
        more = f"\nmissing: and {len(missing) - 20} more files" if len(missing) > 20 else ""
        raise GraphgenError(
            "GG0601",
            f"{len(missing)} of the {count} files of the model are not there",
            where=str(path),
            note=shown + more,
            help="copy or download what is missing into the folder",
        )
    parts = [header if file == path else read_header(file) for file in files]
    _require_together(parts)
    return parts


def joined(parts: Sequence[GgufHeader]) -> GgufHeader:
    """One header for all parts: the first part's metadata, and every tensor (GG0601)."""
    first = parts[0]
    if len(parts) == 1:
        return first
    tensors: dict[str, GgufTensor] = {}
    for part in parts:
        for name in part.tensors.keys() & tensors.keys():
            raise unreadable(part.file.path, f"tensor '{name}' is in another part too")
        tensors |= part.tensors
    said = _number(first, _TENSORS, len(tensors))
    if said != len(tensors):
        what = f"the parts hold {len(tensors)} tensors, where {said} were said"
        raise unreadable(first.file.path, what)
    return replace(first, tensors=tensors)


def _require_together(parts: Sequence[GgufHeader]) -> None:
    for index, part in enumerate(parts):
        place, count = _number(part, _NUMBER, 0), _number(part, _COUNT, 1)
        if (place, count) != (index, len(parts)):
            raise unreadable(
                part.file.path,
                f"by its name the file is part {index + 1} of {len(parts)}, by what it says of "
                f"itself part {place + 1} of {count}",
                help="the names were mixed up: get the files again",
            )


def _number(header: GgufHeader, key: str, default: int) -> int:
    value = header.metadata.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise unreadable(header.file.path, f"GGUF metadata '{key}' is not an integer")
    return value
