"""A compile cache at a URL, with a local folder as a copy of the entries read so far.

Compilers and readers work on files, so an entry is copied here before it is used, and its checksums
are compared here. Processes of one machine take turns by the locks of the folder. Two machines may
compile a program at the same time: the first NEFF in the store counts, and the second machine
describes that one, so that whatever order their writes come in, the files of an entry agree.
``model.done`` is written last.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from graphgen.atomic_write import write_inside
from graphgen.lowering.compile_cache.cache_entry import (
    DAY,
    DONE,
    FAILURE_SECONDS,
    FLAGS,
    LOCK,
    LOG,
    MODULE,
    NEFF,
    RECORD,
    CacheEntry,
    CacheRecord,
    damage,
    digest,
    flags_of_text,
    misplaced,
    neff_damage,
    record_of_text,
)
from graphgen.lowering.compile_cache.cache_store import CacheStore
from graphgen.lowering.compile_cache.neuron_cache import CacheKey, NeuronCache

# Where AWS's tools keep compilations, and the variable that names another place.
DEFAULT_ROOT, VARIABLE = "/var/tmp/neuron-compile-cache", "NEURON_COMPILE_CACHE_URL"
_FILE = "file://"


def open_cache(given: str, environment: str | None = None) -> NeuronCache:
    """The cache that is given, that of the variable, or AWS's default.

    Args:
        given: a folder or a URL, by an option; empty for none.
        environment: the value of :data:`VARIABLE`.

    Raises:
        GraphgenError: GG0705 for a URL that cannot be opened.
    """
    name = given or environment or DEFAULT_ROOT
    if "://" not in name or name.startswith(_FILE):
        root = Path(name.removeprefix(_FILE)).expanduser()
        return NeuronCache(root, private=name == DEFAULT_ROOT)
    from graphgen.lowering.compile_cache.cache_store import CacheStore

    store = CacheStore(name)
    return SharedCache(store, mirror_of(store.url))


@dataclass(frozen=True, slots=True)
class StoredEntry(CacheEntry):
    """An entry of the store; its folder here may be empty.

    Attributes:
        files: bytes by name.
        fetch: copies it here.
    """

    files: Mapping[str, int]
    fetch: Callable[[], object]

    @property
    def nbytes(self) -> int:
        """Bytes of its files."""
        return sum(self.files.values())

    def damage(self) -> str:
        """The damage of its files, which are copied here to see it; empty if they are right."""
        self.fetch()
        return misplaced(self.name, self.record) or damage(self.folder, self.record)


class SharedCache(NeuronCache):
    """The compilations at a URL.

    Args:
        store: of the URL.
        mirror: the folder of this machine.
    """

    def __init__(self, store: CacheStore, mirror: Path) -> None:
        super().__init__(mirror, private=True)
        self.store = store

    @property
    def name(self) -> str:
        """The URL."""
        return self.store.url

    def find(self, key: CacheKey) -> CacheEntry | None:
        """As of :class:`NeuronCache`; what is not here is copied from the store (GG0705)."""
        found = super().find(key)
        if found is None:
            for name in key.names():
                if self._of(key, name):
                    self._fetch(name)
            found = super().find(key)
        return found

    def _of(self, key: CacheKey, name: str) -> bool:
        """True if the store has an outcome in a folder, and it is of the key's options."""
        files = self.store.files(name)
        if FLAGS not in files:
            return False
        flags = self.store.read(name, FLAGS)
        write_inside(self.root, self.root / name / FLAGS, flags, parents=True)
        return flags_of_text(flags) == key.flags and not {DONE, LOG}.isdisjoint(files)

    def _fetch(self, name: str) -> None:
        """Copy an entry here, what makes it count last (GG0704, GG0705)."""
        files = [item for item in self.store.files(name) if item != LOCK]
        for item in sorted(files, key=lambda item: (item == LOG, item == DONE)):
            self.store.fetch(name, item, self.root)

    def put(self, key: CacheKey, module: Path, neff: Path, record: CacheRecord) -> CacheEntry:
        """As of :class:`NeuronCache`, here and then in the store."""
        made = super().put(key, module, neff, record)
        self._publish(made)
        return made

    def put_failure(self, key: CacheKey, module: Path, log: str, record: CacheRecord) -> CacheEntry:
        """As of :class:`NeuronCache`, here and then in the store, unless it has a program."""
        made = super().put_failure(key, module, log, record)
        name = made.name
        if DONE not in self.store.files(name):
            for item in (FLAGS, MODULE, RECORD, LOG):
                self.store.write(name, item, (made.folder / item).read_bytes())
        return made

    def _publish(self, made: CacheEntry) -> None:
        """Write an entry to the store; of files that are whole there, the first ones stay."""
        name, folder, store = made.name, made.folder, self.store
        if self._is_whole(name):
            return
        damaged = DONE in store.files(name)
        for mark in (DONE, LOG):
            store.remove(name, mark)
        store.write(name, FLAGS, (folder / FLAGS).read_bytes())
        for item in [item for item in (MODULE, NEFF) if (folder / item).is_file()]:
            self._first(name, item, overwrite=damaged)
        if made.record is not None:
            digests = {item: digest(self.root, folder / item) for item in (MODULE, NEFF)}
            write_inside(
                self.root, folder / RECORD, replace(made.record, digests=digests).to_json()
            )
            store.write(name, RECORD, (folder / RECORD).read_bytes())
        store.write(name, DONE, b"")

    def _first(self, name: str, item: str, *, overwrite: bool) -> None:
        """Write a file, or take the one that another machine wrote before."""
        own = self.root / name / item
        content = own.read_bytes()
        if not overwrite and not self.store.create(name, item, content):
            self.store.fetch(name, item, self.root)
            if item != NEFF or not neff_damage(own):
                return
            overwrite = True
        if overwrite:
            write_inside(self.root, own, content)
            self.store.write(name, item, content)

    def _is_whole(self, name: str) -> bool:
        """True if the store has a finished entry with the checksums of the written files."""
        files = self.store.files(name)
        if DONE not in files or NEFF not in files:
            return False
        record = self._record(name, files)
        if record is None:
            return True
        if misplaced(name, record):
            return False
        read = {item: self.store.read(name, item) for item in record.digests if item in files}
        found = {item: hashlib.sha256(content).hexdigest() for item, content in read.items()}
        return found == dict(record.digests)

    def entries(self) -> Iterator[CacheEntry]:
        """All compilations of the store, by version and name; NEFFs are not copied (GG0705)."""
        yield from map(self._entry, self.store.folders())

    def _entry(self, name: str) -> StoredEntry:
        files = self.store.files(name)
        record = self._record(name, files)
        state = self._state(name, files, record)
        return StoredEntry(self.root / name, state, record, files, lambda: self._fetch(name))

    def _record(self, name: str, files: Mapping[str, int]) -> CacheRecord | None:
        return record_of_text(self.store.read(name, RECORD)) if RECORD in files else None

    def _state(self, name: str, files: Mapping[str, int], record: CacheRecord | None) -> str:
        if DONE in files:
            return "done"
        if LOG not in files:
            return "unfinished" if {*files} - {LOCK} else "empty"
        ends = record.expires if record is not None else 0.0
        ends = ends or self.store.modified(name, LOG) + FAILURE_SECONDS
        return "failed" if time.time() < ends else "expired"

    def of_other_tools(self, version: str, flags: Sequence[str]) -> list[CacheEntry]:
        """As of :class:`NeuronCache`: those of the store are copied here first (GG0705)."""
        for name in self.store.folders(version):
            files = self.store.files(name)
            if RECORD not in files and {DONE, FLAGS} <= {*files}:
                theirs = flags_of_text(self.store.read(name, FLAGS))
                if theirs is not None and sorted(theirs) == sorted(flags):
                    self._fetch(name)
        return super().of_other_tools(version, flags)

    def remove_if_free(self, entry: CacheEntry) -> bool:
        """Remove an entry here and in the store; False if a process here works on it (GG0704)."""
        if entry.folder.is_dir() and not super().remove_if_free(entry):
            return False
        name = entry.name
        for item in (DONE, LOG, NEFF, *self.store.files(name)):
            self.store.remove(name, item)
        self.store.remove_folder(name)
        return True

    def take(self, entry: CacheEntry) -> bool:
        """Copy a finished compilation of another cache; False if the store has it (GG0704)."""
        if self._is_whole(entry.name):
            return False
        super().take(entry)
        self._publish(self.local_entry(entry))
        return True

    def unused_days(self, entry: CacheEntry) -> float:
        """Days since a compilation was written: stores do not keep when a file was read."""
        name, mark = entry.name, DONE if entry.state == "done" else LOG
        files = self.store.files(name)
        item = mark if mark in files else next(iter(files), "")
        return (time.time() - self.store.modified(name, item)) / DAY if item else 0.0


def mirror_of(url: str) -> Path:
    """The folder of this machine for the cache of a URL, in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    name = hashlib.sha256(url.encode()).hexdigest()[:16]
    return Path(home).expanduser() / "graphgen" / "neuron-cache" / name
