"""The adapters of an opened model: loaded from files, checked by its programs, used by rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.ir import Role
from graphgen.runtime.adapters.adapter_file import Adapter, open_adapter
from graphgen.runtime.adapters.adapter_parts import (
    AdapterPart,
    adapter_parts,
    projections,
    read_parts,
)
from graphgen.runtime.adapters.adapter_slots import NO_ADAPTER, PreparedAdapter
from graphgen.runtime.adapters.adapter_store import AdapterStore, StoredAdapter
from graphgen.runtime.model import BuiltModel
from graphgen.runtime.session import Session

# Adapters that the host keeps prepared by default.
HOST_ADAPTERS: Final = 100
# Seconds after which a wait for a load looks again.
_PATIENCE: Final = 1.0


class LoadedAdapters:
    """The adapters of a session by name.

    Args:
        session: whose programs have slots for adapters.
        model: that the session runs.
        host: adapters that the host keeps prepared; the others stay in files.

    Raises:
        GraphgenError: GG0705 for programs without slots.

    Attributes:
        store: their places.
    """

    def __init__(self, session: Session, model: BuiltModel, host: int = HOST_ADAPTERS) -> None:
        slots = session.adapters
        if slots is None:
            raise GraphgenError(
                "GG0705",
                "the programs have no slots for adapters",
                help="compile them with --max-loras",
            )
        self._slots: Final = slots
        self._config: Final = model.config
        self._weights: Final = frozenset(row.name for row in model.module.entries(Role.WEIGHT))
        self.store: Final[AdapterStore[PreparedAdapter]] = AdapterStore(slots, host)
        self._used: list[StoredAdapter[PreparedAdapter]] = []

    def load(self, name: str, path: Path) -> None:
        """Let requests name an adapter; its tensors are read when the first one does.

        Args:
            name: of the adapter.
            path: its folder or file.

        Raises:
            GraphgenError: GG0705 for a name that is taken; GG0502, GG0503, GG0601, GG0602 and
                GG0604 for an adapter that cannot be used with these programs.
        """
        opened = open_adapter(path)
        self._parts(opened)
        source = opened.fingerprint()

        def load() -> PreparedAdapter:
            # Its files are not held open between loads.
            again = open_adapter(path)
            if again.fingerprint() != source:
                raise GraphgenError(
                    "GG0602",
                    f"the files of the adapter '{name}' have changed since it was loaded",
                    where=str(path),
                    help="unload it and load it again",
                )
            parts = self._parts(again)
            return self._slots.prepare(read_parts(again, parts, self._slots.targets))

        self.store.register(name, path, load)

    def check(self, path: Path) -> None:
        """Refuse an adapter that cannot be used with these programs, as :meth:`load` does."""
        self._parts(open_adapter(path))

    def _parts(self, adapter: Adapter) -> list[AdapterPart]:
        return adapter_parts(adapter, self._config, self._slots.targets, self._weights)

    def use(self, names: Sequence[str]) -> None:
        """Let rows 0, 1, ... use these adapters, empty for none; waits for their files.

        Raises:
            GraphgenError: GG0705 for a name that is unknown, and for more adapters than slots;
                what :meth:`load` raises where the files have changed.
        """
        for adapter in self._used:
            self.store.release(adapter)
        self._used = []
        held = self.store.in_slots
        # Those in slots first, so that none of them leaves for another one.
        wanted = sorted(dict.fromkeys(filter(None, names)), key=lambda name: name not in held)
        if len(wanted) > self._slots.slots:
            raise GraphgenError(
                "GG0705",
                f"{len(wanted)} adapters at once, and the programs have {self._slots.slots} slots",
                help="compile with a larger --max-loras, or answer in several calls",
            )
        slots = {"": NO_ADAPTER, **{name: self._slot(name) for name in wanted}}
        for row, name in enumerate(names):
            self._slots.assign(row, slots[name])

    def _slot(self, name: str) -> int:
        """The slot of an adapter, pinned until the next use."""
        adapter = self.store.find(name)
        self.store.want(adapter)
        try:
            while (slot := self.store.acquire(adapter)) is None:
                self.store.wait(_PATIENCE)
                self.store.poll()
        finally:
            self.store.unwant(adapter)
        self._used.append(adapter)
        return slot


def needed_settings(
    config: Mapping[str, object], paths: Collection[Path], *, only: bool
) -> dict[str, object]:
    """The fields of a compilation whose programs have slots for adapters.

    Args:
        config: of the model.
        paths: of the adapters.
        only: no other adapter will follow: projections without are left as they are.

    Raises:
        GraphgenError: GG0502, GG0503, GG0601, GG0602 and GG0604 for files that are not adapters.
    """
    opened = [open_adapter(path) for path in paths]
    names = {name for adapter in opened for name in projections(adapter, config)}
    own = names & {"lm_head", "embed_tokens", "wte", "word_embeddings", "embed_out"}
    own |= {name for name in names if "." in name}
    targets = tuple(sorted(names)) if only or own else ()
    return {
        "max_loras": len(opened),
        "max_lora_rank": max(adapter.rank for adapter in opened),
        "lora_target_modules": targets,
    }
