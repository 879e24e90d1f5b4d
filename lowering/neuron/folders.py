"""Reads compiler caches and work folders: their programs, and the state of each."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from graphgen.atomic_write import open_regular, read_regular
from graphgen.errors import GraphgenError
from graphgen.json_value import parse_json
from graphgen.limits import JSON_BYTES

# File names of the module: of the cache (two versions), of NxD and vLLM, of nkipy.
MODULES = ("model.hlo_module.pb", "model.hlo.pb", "graph.hlo", "hlo_module.pb")
NEFFS = ("model.neff", "graph.neff", "file.neff")
_CACHED = re.compile(r"MODULE_(\w+)\+(\w+)")
_BUCKET = re.compile(r"_tp(\d+)_bk(\d+)")
# The first digits of the MD5 of an empty text: the cache key of no flags.
NO_FLAGS = "d41d8cd9"
_HELP = (
    "a cache holds neuronxcc-VERSION/MODULE_HASH+FLAGS folders, a work folder holds "
    + " or ".join(MODULES)
)


@dataclass(frozen=True, slots=True)
class NeuronProgram:
    """One compilation.

    Attributes:
        name: the cache's key, or the path of its folder.
        state: ``done``, ``failed`` (until it is deleted), ``locked``, ``unfinished`` or ``empty``.
        module: the HLO file, if it exists.
        neff: the compiled program, if it exists.
        flags: of the compiler, if known.
        facts: from the names of folders and files, such as rank and bucket.
    """

    name: str
    state: str
    module: Path | None
    neff: Path | None
    flags: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ProgramFolder:
    """A folder and its programs.

    Attributes:
        kind: ``compiler cache``, ``NxD work folder`` or ``compiler work folder``.
        programs: in the order of their names.
    """

    kind: str
    programs: tuple[NeuronProgram, ...]


def describe(path: str | Path) -> ProgramFolder:
    """List the programs in a compiler cache or a work folder, or in any folder above one.

    Raises:
        GraphgenError: GG0802 if there is none.
    """
    root = Path(path)
    try:
        cached = sorted(item for item in _folders(root) if _CACHED.fullmatch(item.name))
        if cached:
            return ProgramFolder("compiler cache", tuple(_cached(item) for item in cached))
        work = sorted({item.parent for name in MODULES for item in root.rglob(name)})
    except OSError as error:
        reason = error.strerror or str(error)
        raise GraphgenError("GG0705", f"cannot read '{path}': {reason}") from error
    if not work:
        what = "neither a compiler cache nor a work folder"
        raise GraphgenError("GG0802", what, where=str(path), help=_HELP)
    programs = tuple(_worked(item, root) for item in work)
    buckets = any("bucket" in dict(program.facts) for program in programs)
    return ProgramFolder("NxD work folder" if buckets else "compiler work folder", programs)


def _folders(root: Path) -> Iterator[Path]:
    """The folder itself and every folder below it."""
    if root.is_dir():
        yield root
        yield from (item for item in root.rglob("*") if item.is_dir())


def _first(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _flags(folder: Path) -> tuple[str, ...]:
    """Read the flags in ``compile_flags.json``, none where it is missing or damaged."""
    file = folder / "compile_flags.json"
    try:
        found: object = parse_json(read_regular(file, JSON_BYTES))
    except (OSError, ValueError):
        return ()
    return tuple(str(item) for item in found) if isinstance(found, list) else ()  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _cached(folder: Path) -> NeuronProgram:
    match = _CACHED.fullmatch(folder.name)
    assert match is not None
    facts = [("compiler", folder.parent.name), ("module hash", match[1])]
    if match[2] == NO_FLAGS:
        facts.append(("flags", "none were given"))
    module, neff = _first(folder, MODULES), _first(folder, NEFFS)
    locked = any(item.suffix == ".lock" for item in folder.iterdir())
    if (folder / "model.done").is_file():
        state = "done"
    elif (folder / "model.log").is_file():
        state = "failed"
    elif locked:
        state = "locked"
    else:
        state = "unfinished" if module or neff else "empty"
    return NeuronProgram(folder.name, state, module, neff, _flags(folder), tuple(facts))


def _worked(folder: Path, root: Path) -> NeuronProgram:
    relative = folder.relative_to(root)
    facts: list[tuple[str, str]] = []
    for part in folder.parts:
        if match := _BUCKET.fullmatch(part):
            facts += [("rank", match[1]), ("bucket", match[2])]
    command = folder / "command.txt"
    if command.is_file():
        text = read_regular(command, JSON_BYTES).decode("utf-8", "replace")
        facts.append(("command", text.strip()))
    if (folder / "metaneff.pb").is_file():
        facts.append(("metaneff", "metaneff.pb"))
    module, neff = _first(folder, MODULES), _first(folder, NEFFS)
    log = folder / "log-neuron-cc.txt"
    state = "done" if neff else "failed" if log.is_file() and _failed(log) else "unfinished"
    return NeuronProgram(str(relative), state, module, neff, _flags(folder), tuple(facts))


def _failed(log: Path) -> bool:
    """True if the compiler's log ends in an error of the compiler."""
    with open_regular(log) as opened:
        opened.seek(max(os.fstat(opened.fileno()).st_size - 20000, 0))
        text = opened.read(20000).decode("utf-8", "replace")
    return re.search(r"\bERROR\b|\[NCC_\w+\]", text) is not None
