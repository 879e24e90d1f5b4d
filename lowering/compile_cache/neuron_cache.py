"""The cache of compilations: found by content, written in steps of which each leaves it right.

The layout is that of AWS's tools, ``neuronxcc-VERSION/MODULE_HASH+FLAGS/model.neff``, so that each
reads what the others wrote. HASH is the canonical hash of the program, without paths and source
lines; FLAGS begins the MD5 of the options. ``model.done`` is written last: without it nothing in a
folder counts.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from os import utime
from pathlib import Path

from graphgen.atomic_write import (
    copy_inside,
    foreign_owner,
    private_folder,
    remove_inside,
    unwritable,
    write_inside,
)
from graphgen.errors import GraphgenError
from graphgen.lowering.compile_cache.cache_entry import (
    DAY,
    DONE,
    FLAGS,
    LOCK,
    LOG,
    MODULE,
    NEFF,
    RECORD,
    CacheEntry,
    CacheRecord,
    digest,
    misplaced,
    read_entry,
    read_flags,
)
from graphgen.lowering.compile_cache.file_lock import file_lock, lock_if_free
from graphgen.lowering.neuron.folders import NO_FLAGS

# Digits of the hash of options: as AWS's tools write them, and of options whose first ones agree.
_DIGITS = (8, 32)


@dataclass(frozen=True, slots=True)
class CacheKey:
    """The inputs that a compilation depends on.

    Attributes:
        version: of the compiler.
        module: the canonical hash of the program for its target.
        flags: the options, in order.
    """

    version: str
    module: str
    flags: tuple[str, ...]

    def name(self, digits: int = _DIGITS[0]) -> str:
        """The path of the entry below the root."""
        flags = hashlib.md5(" ".join(self.flags).encode(), usedforsecurity=False).hexdigest()
        assert flags[:8] == NO_FLAGS or self.flags
        return f"neuronxcc-{self.version}/MODULE_{self.module[:32]}+{flags[:digits]}"

    def names(self) -> list[str]:
        """The two paths that an entry can have: the second where another one has the first."""
        return [self.name(digits) for digits in _DIGITS]


class NeuronCache:
    """The compilations below one folder.

    One that belongs to another user is not used: methods refuse it (GG0703). No symbolic link
    below it is followed to write.

    Args:
        root: of the cache; it need not be there.
        private: only this user may enter a root that is made.
    """

    def __init__(self, root: Path, *, private: bool = False) -> None:
        self.root = root
        self._private = private

    @property
    def name(self) -> str:
        """The place as it is shown."""
        return str(self.root)

    def folder(self, key: CacheKey) -> Path:
        """The folder of a key: a second one for other options with the same first digits."""
        first, second = (self.root / name for name in key.names())
        flags = read_flags(first)
        return first if flags is None or flags == key.flags else second

    def find(self, key: CacheKey) -> CacheEntry | None:
        """The finished or failed compilation of a key; ``None`` if there is none to rely on.

        A damaged one counts as none, as do one that was written for another key, and a failure that
        has expired. Of an entry that is not bound to its folder (``is_bound``) the caller compares
        the program.

        Raises:
            GraphgenError: GG0703 for a cache of another user.
        """
        self.require_own()
        folder = self.folder(key)
        if not folder.is_dir():
            return None
        entry = read_entry(folder)
        if entry.state == "failed":
            return None if misplaced(entry.name, entry.record) else entry
        if entry.state != "done" or entry.damage():
            return None
        with suppress(OSError):
            # The time of the last use, by which prune chooses.
            utime(folder / DONE, follow_symlinks=False)
        return entry

    @contextmanager
    def locked(self, key: CacheKey, waiting: Callable[[], object]) -> Generator[None]:
        """Keep other processes from compiling a key in a ``with`` block (GG0703, GG0704).

        Args:
            key: of the compilation.
            waiting: called again and again while another process compiles it.
        """
        with self._held(self.folder(key), waiting):
            yield

    def put(self, key: CacheKey, module: Path, neff: Path, record: CacheRecord) -> CacheEntry:
        """Keep a compilation, under the lock of its key.

        Args:
            key: of the compilation.
            module: the HLO file.
            neff: the compiler's output, checked.
            record: what is known of it; digests are added.

        Raises:
            GraphgenError: GG0703 or GG0704 if it cannot be written; the cache is right then, too.
        """
        folder = self._begin(key, module)
        copy_inside(neff, self.root, folder / NEFF)
        files = {name: digest(self.root, folder / name) for name in (MODULE, NEFF)}
        record = replace(record, digests=files, entry=self._name(folder))
        write_inside(self.root, folder / RECORD, record.to_json())
        write_inside(self.root, folder / DONE, b"")
        return read_entry(folder)

    def put_failure(self, key: CacheKey, module: Path, log: str, record: CacheRecord) -> CacheEntry:
        """Keep a failure with its log; arguments and errors as of :meth:`put`."""
        folder = self._begin(key, module)
        record = replace(record, entry=self._name(folder))
        write_inside(self.root, folder / RECORD, record.to_json())
        write_inside(self.root, folder / LOG, log.encode("utf-8", "replace"))
        return read_entry(folder)

    def _name(self, folder: Path) -> str:
        return folder.relative_to(self.root).as_posix()

    def _begin(self, key: CacheKey, module: Path) -> Path:
        """Write what both outcomes have; what was there before counts no longer."""
        folder = self.folder(key)
        self._require_root()
        self._clear(folder)
        write_inside(self.root, folder / FLAGS, json.dumps(key.flags).encode(), parents=True)
        copy_inside(module, self.root, folder / MODULE)
        return folder

    def entries(self) -> Iterator[CacheEntry]:
        """All compilations, by version and name; a link to a folder is not one (GG0703)."""
        self.require_own()
        for folder in sorted(self.root.glob("neuronxcc-*/MODULE_*")):
            linked = folder.is_symlink() or folder.parent.is_symlink()
            if folder.is_dir() and not linked:
                yield read_entry(folder)

    def measured(self, module: str) -> int:
        """Bytes that a compiler took at most for a module, with any options; 0 if not known."""
        if foreign_owner(self.root):
            return 0
        found = self.root.glob(f"neuronxcc-*/MODULE_{module[:32]}+*")
        records = [entry.record for entry in map(read_entry, found)]
        return max((record.peak_bytes for record in records if record is not None), default=0)

    def of_other_tools(self, version: str, flags: Sequence[str]) -> list[CacheEntry]:
        """Finished compilations that another tool wrote with these options, in any order.

        Raises:
            GraphgenError: GG0703 for a cache of another user.
        """
        self.require_own()
        found: list[CacheEntry] = []
        for folder in sorted((self.root / f"neuronxcc-{version}").glob("MODULE_*")):
            theirs = read_flags(folder)
            if theirs is not None and sorted(theirs) == sorted(flags):
                entry = read_entry(folder)
                if entry.record is None and entry.state == "done" and not entry.damage():
                    found.append(entry)
        return found

    def remove_if_free(self, entry: CacheEntry) -> bool:
        """Remove an entry; False if a process works on it.

        The files that make it count go first, so that a kill leaves none that is false.

        Raises:
            GraphgenError: GG0703 or GG0704 if it cannot be removed.
        """
        self.require_own()
        try:
            with lock_if_free(self.root, entry.folder / LOCK) as free:
                if not free:
                    return False
                for name in (DONE, LOG, NEFF):
                    remove_inside(self.root, entry.folder / name)
                for item in entry.folder.iterdir():
                    remove_inside(self.root, item)
            with suppress(OSError):
                entry.folder.rmdir()
        except OSError as error:
            raise unwritable(str(entry.folder), error.strerror or str(error)) from error
        return True

    def take(self, entry: CacheEntry) -> bool:
        """Copy a finished compilation of another cache; False if it is there already.

        Raises:
            GraphgenError: GG0703 or GG0704 if it cannot be written.
        """
        folder = self.local_entry(entry).folder
        with self._held(folder, lambda: None):
            if folder.is_dir():
                own = read_entry(folder)
                if own.state == "done" and not own.damage():
                    return False
                self._clear(folder)
            for item in sorted(entry.folder.iterdir()):
                own = item.is_file() and not item.is_symlink()
                if own and item.name not in (DONE, LOG, LOCK):
                    origin = entry.folder.parents[1]
                    copy_inside(item, self.root, folder / item.name, origin)
            write_inside(self.root, folder / DONE, b"")
        return True

    def local_entry(self, entry: CacheEntry) -> CacheEntry:
        """The entry here that has the name of one of another cache."""
        folder = self.root / entry.folder.parent.name / entry.folder.name
        return read_entry(folder) if folder.is_dir() else CacheEntry(folder, "empty", None)

    def unused_days(self, entry: CacheEntry) -> float:
        """Days since a compilation was last used, or written."""
        file = entry.folder / (DONE if entry.state == "done" else LOG)
        stamp = (file if file.exists() else entry.folder).stat().st_mtime
        return (time.time() - stamp) / DAY

    def require_own(self) -> None:
        """Refuse a cache of another user, whose programs would run as this user (GG0703)."""
        owner = foreign_owner(self.root)
        if owner:
            raise GraphgenError(
                "GG0703",
                f"the cache {self.root} {owner}",
                help="choose another folder with --cache-dir or NEURON_COMPILE_CACHE_URL",
            )

    def _require_root(self) -> None:
        """Have a root that is this user's before something is written (GG0703, GG0704)."""
        if self._private:
            private_folder(self.root)
        self.require_own()

    @contextmanager
    def _held(self, folder: Path, waiting: Callable[[], object]) -> Generator[None]:
        """Hold the lock of an entry (GG0703, GG0704); a folder that stays empty is removed."""
        self._require_root()
        lock = file_lock(self.root, folder / LOCK, waiting)
        try:
            lock.__enter__()
        except OSError as error:
            help = "choose another folder with --cache-dir"
            raise unwritable(str(folder), error.strerror or str(error), help) from error
        try:
            yield
        finally:
            lock.__exit__(None, None, None)
            with suppress(OSError):
                # Only if nothing was kept.
                folder.rmdir()

    def _clear(self, folder: Path) -> None:
        """Remove the marks by which an entry counts (GG0703, GG0704)."""
        for name in (DONE, LOG):
            remove_inside(self.root, folder / name)
