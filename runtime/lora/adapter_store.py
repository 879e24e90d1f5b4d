"""Adapters by name: in files, in the memory of the host, and in slots of the device.

An adapter is registered under a name that requests may give then. Another thread reads and prepares
it when it is first wanted; the host keeps it, and it is written into a slot between two launches. A
slot is *pinned* while requests use it. To make room, the adapter that was used least
recently leaves: its slot, or the host. Nothing is compiled.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final, Generic, Protocol, TypeVar

from graphgen.errors import GraphgenError

Prepared = TypeVar("Prepared")
Taken = TypeVar("Taken", contravariant=True)


class AdapterDevice(Protocol[Taken]):
    """The slots of a session."""

    @property
    def slots(self) -> int:
        """Number of adapters at once."""
        ...

    def write_prepared(self, slot: int, adapter: Taken) -> None:
        """Put a prepared adapter into a slot."""
        ...

    def assign(self, row: int, slot: int) -> None:
        """Let a row of the cache use a slot, -1 for none."""
        ...


@dataclass(slots=True, eq=False)
class StoredAdapter(Generic[Prepared]):
    """One registered adapter.

    Attributes:
        name: that requests give.
        path: its files.
        number: unlike that of any other registration, of the same name too.
        load: reads and prepares it; called by another thread.
        loading: the load that runs.
        failure: of the last load, while requests wait for it.
        prepared: what the host keeps; ``None`` while it is in files only.
        slot: on the device; ``None`` while it has none.
        pins: requests that use the slot.
        wanted: requests that wait for it.
    """

    name: str
    path: Path
    number: int
    load: Callable[[], Prepared]
    loading: Future[Prepared] | None = None
    failure: BaseException | None = None
    prepared: Prepared | None = None
    slot: int | None = None
    pins: int = 0
    wanted: int = 0

    @property
    def is_idle(self) -> bool:
        """True while no request uses it or waits for it."""
        return not self.pins and not self.wanted


class AdapterStore(Generic[Prepared]):
    """The adapters of one session.

    Any thread may register, remove and find; all else is for the thread of the session.

    Args:
        device: the slots.
        host: adapters that the host keeps prepared, at least one.
        executor: runs loads; by default one thread of its own.

    Attributes:
        reads: number of loads that were started.
        writes: number of slots that were written.
    """

    def __init__(
        self, device: AdapterDevice[Prepared], host: int, executor: Executor | None = None
    ) -> None:
        if host < 1:
            what = f"the host keeps {host} adapters"
            raise GraphgenError("GG0705", what, help="let it keep at least one")
        self._device: Final = device
        self._host: Final = host
        self._executor: Final = executor or ThreadPoolExecutor(1, "adapters")
        self._lock: Final = Lock()
        self._numbers: Final = itertools.count(1)
        self._names: dict[str, StoredAdapter[Prepared]] = {}
        self._removed: list[StoredAdapter[Prepared]] = []
        self._loads: list[StoredAdapter[Prepared]] = []
        self._slots: list[StoredAdapter[Prepared] | None] = [None] * device.slots
        # Both least recently used first: slots, and what the host keeps.
        self._recent: list[int] = list(range(device.slots))
        self._kept: list[StoredAdapter[Prepared]] = []
        self.reads = self.writes = 0

    @property
    def in_slots(self) -> Sequence[str | None]:
        """The name of the adapter in each slot; ``None`` for a free one."""
        return [held.name if held is not None else None for held in self._slots]

    @property
    def kept(self) -> Sequence[str]:
        """Names of the adapters that the host keeps prepared, least recently used first."""
        return [held.name for held in self._kept]

    @property
    def names(self) -> dict[str, Path]:
        """The files of each adapter that requests may ask for, by name."""
        with self._lock:
            return {name: held.path for name, held in self._names.items()}

    def register(
        self, name: str, path: Path, load: Callable[[], Prepared]
    ) -> StoredAdapter[Prepared]:
        """Let requests ask for an adapter (GG0705 for a name that is taken or empty)."""
        with self._lock:
            taken = self._names.get(name)
            if taken is not None or not name:
                what = f"there is an adapter '{name}' already" if taken else "the name is empty"
                help = "unload it first, or choose another name"
                raise GraphgenError("GG0705", what, help=help)
            made = StoredAdapter(name, path, next(self._numbers), load)
            self._names[name] = made
            return made

    def remove(self, name: str) -> None:
        """Let no new request ask for an adapter; those that did are answered (GG0705)."""
        found = self.find(name)
        with self._lock:
            del self._names[name]
            self._removed.append(found)

    def find(self, name: str) -> StoredAdapter[Prepared]:
        """The adapter of a name (GG0705 for an unknown one)."""
        with self._lock:
            found = self._names.get(name)
            known = ", ".join(self._names) or "none"
        if found is None:
            raise GraphgenError(
                "GG0705", f"there is no adapter '{name}'", help=f"loaded adapters: {known}"
            )
        return found

    def want(self, adapter: StoredAdapter[Prepared]) -> None:
        """Note a request that waits for an adapter."""
        if not adapter.wanted:
            adapter.failure = None
        adapter.wanted += 1

    def unwant(self, adapter: StoredAdapter[Prepared]) -> None:
        """Undo :meth:`want`."""
        adapter.wanted -= 1

    def acquire(self, adapter: StoredAdapter[Prepared]) -> int | None:
        """Pin the slot of an adapter, which gets one if there is room.

        Returns:
            The slot; ``None`` while it is read, or while every slot is pinned.

        Raises:
            Exception: that of its load, or of the write; the next request may load it again.
        """
        if adapter.failure is not None:
            raise adapter.failure
        if adapter.slot is None:
            if adapter.prepared is None:
                self._start(adapter)
                return None
            free = self._free_slot()
            if free is None:
                return None
            self._write(adapter, adapter.prepared, free)
        assert adapter.slot is not None
        adapter.pins += 1
        self._touch(adapter)
        return adapter.slot

    def release(self, adapter: StoredAdapter[Prepared]) -> None:
        """Undo :meth:`acquire`."""
        assert adapter.pins > 0
        adapter.pins -= 1

    def assign(self, row: int, slot: int) -> None:
        """Let a row of the cache use a slot, -1 for none."""
        self._device.assign(row, slot)

    def lacks_slot(self, adapter: StoredAdapter[Prepared]) -> bool:
        """True if an adapter is prepared and every slot is pinned by others."""
        return adapter.slot is None and adapter.prepared is not None and self._free_slot() is None

    def freed_by(self, uses: Sequence[StoredAdapter[Prepared]]) -> StoredAdapter[Prepared] | None:
        """The least recently used adapter whose slot is free without these uses of adapters."""
        for slot in self._recent:
            held = self._slots[slot]
            if held is not None and uses.count(held) == held.pins:
                return held
        return None

    def poll(self) -> None:
        """Take the loads that have ended, and forget removed adapters that nothing uses."""
        for adapter in [held for held in self._loads if held.loading and held.loading.done()]:
            self._loads.remove(adapter)
            self._take(adapter)
        with self._lock:
            gone = [held for held in self._removed if held.is_idle and held not in self._loads]
            self._removed = [held for held in self._removed if held not in gone]
        for adapter in gone:
            if adapter.slot is not None:
                self._slots[adapter.slot], adapter.slot = None, None
            self._drop(adapter)

    def wait(self, seconds: float) -> None:
        """Wait until a load has ended, at most some seconds; at once where none runs."""
        running = [held.loading for held in self._loads if held.loading is not None]
        if running:
            wait(running, seconds, FIRST_COMPLETED)

    def close(self) -> None:
        """End the thread of the loads after the current one."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _start(self, adapter: StoredAdapter[Prepared]) -> None:
        """Start a load, unless it runs, or the host is full of adapters that wait for slots."""
        waiting = sum(_waits(held) for held in self._kept)
        if adapter.loading is None and len(self._loads) + waiting < self._host:
            self.reads += 1
            self._loads.append(adapter)
            adapter.loading = self._executor.submit(adapter.load)

    def _take(self, adapter: StoredAdapter[Prepared]) -> None:
        """Keep what a load has made, in the place of what was used least recently."""
        assert adapter.loading is not None
        done, adapter.loading = adapter.loading, None
        adapter.failure = done.exception()
        if adapter.failure is not None:
            return
        while len(self._kept) >= self._host:
            victim = next((held for held in self._kept if not _waits(held)), None)
            if victim is None:
                # All are about to be used: this one is read again after them.
                return
            self._drop(victim)
        adapter.prepared = done.result()
        self._kept.append(adapter)

    def _drop(self, adapter: StoredAdapter[Prepared]) -> None:
        """Let the host forget what it has prepared."""
        if adapter.prepared is not None:
            self._kept.remove(adapter)
            adapter.prepared = None

    def _free_slot(self) -> int | None:
        """An empty slot, else the least recently used one that is not pinned."""
        empty = [slot for slot in self._recent if self._slots[slot] is None]
        free = [slot for slot in self._recent if not _pinned(self._slots[slot])]
        return next(iter([*empty, *free]), None)

    def _write(self, adapter: StoredAdapter[Prepared], prepared: Prepared, slot: int) -> None:
        held = self._slots[slot]
        if held is not None:
            held.slot = None
        # After a write that fails nothing is known of the slot, so that no row uses it.
        self._slots[slot] = None
        self.writes += 1
        self._device.write_prepared(slot, prepared)
        self._slots[slot], adapter.slot = adapter, slot

    def _touch(self, adapter: StoredAdapter[Prepared]) -> None:
        assert adapter.slot is not None
        self._recent.remove(adapter.slot)
        self._recent.append(adapter.slot)
        if adapter.prepared is not None:
            self._kept.remove(adapter)
            self._kept.append(adapter)


def _pinned(held: StoredAdapter[Prepared] | None) -> bool:
    return held is not None and held.pins > 0


def _waits(adapter: StoredAdapter[Prepared]) -> bool:
    """True if requests wait for a slot of a prepared adapter."""
    return adapter.wanted > 0 and adapter.slot is None
