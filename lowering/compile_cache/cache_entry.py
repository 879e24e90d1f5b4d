"""One compilation in a cache: its files, the record beside them, and its state."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from graphgen.atomic_write import open_readable, plain_name, read_inside
from graphgen.errors import GraphgenError
from graphgen.json_value import Json, parse_json
from graphgen.limits import JSON_BYTES
from graphgen.lowering.compile_cache.file_lock import is_locked
from graphgen.lowering.neuron.folders import MODULES
from graphgen.lowering.neuron.neff import read_neff

# AWS's names of files; RECORD is ours, and other readers pass over it.
MODULE, NEFF, DONE, LOG = MODULES[0], "model.neff", "model.done", "model.log"
FLAGS, LOCK, RECORD = "compile_flags.json", f"{MODULE}.lock", "graphgen.json"
DAY = 86400.0
# Failures of caches that say nothing else are believed for so long.
FAILURE_SECONDS = DAY


@dataclass(frozen=True, slots=True)
class CacheRecord:
    """Facts that are kept beside a compilation.

    Attributes:
        program: the name of the program; of no meaning for the key.
        digests: SHA-256 of files by name.
        seconds: that the compilation took.
        peak_bytes: memory of the compiler at its worst moment; 0 where it is not known.
        failure: of a failed compilation, what is known of it.
        expires: seconds since 1970 at which a failure ends; 0 for never.
        entry: the folder below the cache's root that it was written for; empty in records of
            versions that did not write it.
    """

    program: str = ""
    digests: Mapping[str, str] = field(default_factory=dict[str, str])
    seconds: float = 0.0
    peak_bytes: int = 0
    failure: Mapping[str, Json] = field(default_factory=dict[str, Json])
    expires: float = 0.0
    entry: str = ""

    def to_json(self) -> bytes:
        """As the file holds it."""
        return json.dumps(
            {
                "program": self.program,
                "digests": dict(self.digests),
                "seconds": round(self.seconds, 3),
                "peak_bytes": self.peak_bytes,
                "failure": dict(self.failure),
                "expires": self.expires,
                "entry": self.entry,
            },
            indent=1,
        ).encode()


def read_record(folder: Path) -> CacheRecord | None:
    """The record of an entry; ``None`` for an entry of another tool, or a damaged record."""
    try:
        return record_of_text(read_inside(_cache(folder), folder / RECORD, JSON_BYTES))
    except OSError:
        return None


def record_of_text(text: bytes) -> CacheRecord | None:
    """The record of a text; ``None`` for a damaged one."""
    try:
        found: object = parse_json(text)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    values = cast("dict[str, object]", found)
    try:
        return CacheRecord(**values)  # pyright: ignore[reportArgumentType]
    except TypeError:
        return None


def read_flags(folder: Path) -> tuple[str, ...] | None:
    """The options of an entry; ``None`` where they are not written or damaged."""
    try:
        return flags_of_text(read_inside(_cache(folder), folder / FLAGS, JSON_BYTES))
    except OSError:
        return None


def flags_of_text(text: bytes) -> tuple[str, ...] | None:
    """The options of a text; ``None`` for a damaged one."""
    try:
        found: object = parse_json(text)
    except ValueError:
        return None
    if not isinstance(found, list):
        return None
    return tuple(str(item) for item in cast("list[object]", found))


def _cache(folder: Path) -> Path:
    """The root of the cache that an entry is in, out of which no link is followed."""
    return folder.parents[1]


def digest(root: Path, path: Path) -> str:
    """SHA-256 of a regular file inside of a folder that came from elsewhere (OSError).

    Args:
        root, path: as for :func:`~graphgen.atomic_write.open_readable`.
    """
    with open_readable(root, path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A folder ``neuronxcc-VERSION/MODULE_HASH+FLAGS`` as it is found.

    Attributes:
        folder: its path.
        state: ``done``, ``failed``, ``expired`` (a failure that is tried again), ``locked`` (in
            work), ``unfinished``, or ``empty``.
        record: ``None`` for an entry of another tool.
    """

    folder: Path
    state: str
    record: CacheRecord | None

    @property
    def name(self) -> str:
        """Its path below the cache's root."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def version(self) -> str:
        """Of the compiler."""
        return self.folder.parent.name.removeprefix("neuronxcc-")

    @property
    def nbytes(self) -> int:
        """Bytes of its files."""
        return sum(item.stat().st_size for item in self.folder.iterdir() if item.is_file())

    @property
    def is_bound(self) -> bool:
        """True if its record names its folder: another folder's compilation cannot pass for it."""
        return self.record is not None and self.record.entry == self.name

    def damage(self) -> str:
        """The damage of the files of a finished compilation; empty if they are right."""
        return misplaced(self.name, self.record) or damage(self.folder, self.record)


def misplaced(name: str, record: CacheRecord | None) -> str:
    """The damage of an entry that was written for another folder; empty where none is known.

    Args:
        name: of the folder below the cache's root.
        record: of the entry.
    """
    if record is None or record.entry in ("", name):
        return ""
    return f"it was written as {record.entry}"


def read_entry(folder: Path) -> CacheEntry:
    """The entry in a folder."""
    record = read_record(folder)
    return CacheEntry(folder, _state(folder, record), record)


def _state(folder: Path, record: CacheRecord | None) -> str:
    if (folder / DONE).is_file():
        return "done"
    has_log = (folder / LOG).is_file()
    if has_log and time.time() < expiry(folder, record):
        return "failed"
    if is_locked(folder / LOCK):
        return "locked"
    if has_log:
        return "expired"
    files = {item.name for item in folder.iterdir()} - {LOCK}
    return "unfinished" if files else "empty"


def expiry(folder: Path, record: CacheRecord | None) -> float:
    """When the failure in an entry ends, in seconds since 1970."""
    if record is not None and record.expires:
        return record.expires
    return (folder / LOG).stat().st_mtime + FAILURE_SECONDS


def damage(folder: Path, record: CacheRecord | None) -> str:
    """The damage of the files of a finished compilation; empty if they are right."""
    expected: Mapping[str, str] = record.digests if record is not None else {}
    for name in (NEFF, *[name for name in expected if name != NEFF]):
        try:
            plain_name(name)
        except ValueError as error:
            return str(error)
        if not (folder / name).is_file():
            return f"{name} is missing"
        try:
            found = digest(_cache(folder), folder / name)
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
        if found != expected.get(name, found):
            return f"{name} is not the file that was written"
    return "" if expected else neff_damage(folder / NEFF)


def neff_damage(path: Path) -> str:
    """The damage of a NEFF; empty for one whose archive is whole."""
    try:
        members = read_neff(path).members
    except GraphgenError as error:
        return error.what
    return "" if members else "its archive holds no file"
