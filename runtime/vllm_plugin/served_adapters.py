"""The adapters of vLLM's requests: loaded when one names them, unloaded by number."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from graphgen.runtime.lora.loaded_adapters import LoadedAdapters


class NamedAdapter(Protocol):
    """vLLM's ``LoRARequest``.

    Attributes:
        lora_name: unique.
        lora_int_id: unique too, from 1 on.
        lora_path: folder of the adapter.
    """

    lora_name: str
    lora_int_id: int
    lora_path: str


class ServedAdapters:
    """Adapters by vLLM's numbers.

    Args:
        loaded: the adapters by name.
    """

    def __init__(self, loaded: LoadedAdapters) -> None:
        self._loaded: Final = loaded
        self._names: dict[int, str] = {}

    @property
    def numbers(self) -> set[int]:
        """Numbers of the loaded adapters."""
        return set(self._names)

    def add(self, adapter: NamedAdapter) -> bool:
        """Load an adapter; False for one that is loaded (errors as of :class:`LoadedAdapters`)."""
        if adapter.lora_int_id in self._names:
            return False
        self._loaded.load(adapter.lora_name, Path(adapter.lora_path))
        self._names[adapter.lora_int_id] = adapter.lora_name
        return True

    def remove(self, number: int) -> bool:
        """Unload an adapter; False for an unknown number."""
        name = self._names.pop(number, None)
        if name is None:
            return False
        self._loaded.store.remove(name)
        return True

    def use(self, adapters: Sequence[NamedAdapter | None]) -> None:
        """Let rows 0, 1, ... of a step use these adapters, ``None`` for the base model."""
        for adapter in adapters:
            if adapter is not None:
                self.add(adapter)
        self._loaded.use(["" if found is None else found.lora_name for found in adapters])
