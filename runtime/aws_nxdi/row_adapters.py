"""The adapter of each row of an application's cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.lora_settings import adapter_files, device_files
from graphgen.runtime.aws_config.neuron_config import LoraServingConfig
from graphgen.runtime.aws_nxdi.forward_inputs import RowInput
from graphgen.runtime.lora.loaded_adapters import LoadedAdapters
from graphgen.runtime.model import BuiltModel
from graphgen.runtime.session.session import Session


class RowAdapters:
    """Adapters that are loaded, and the one that each row uses until its next prompt.

    Args:
        session: whose programs have slots.
        model: that the session runs.
        lora: names the files; those of the device are read at once.

    Attributes:
        ids: names of the adapters; a number in ``adapter_ids`` is a place in this list.
    """

    def __init__(self, session: Session, model: BuiltModel, lora: LoraServingConfig) -> None:
        files = adapter_files(lora)
        dynamic = bool(lora.value("dynamic_multi_lora"))
        host = cast(int, lora.value("max_cpu_loras")) if dynamic else max(1, len(files))
        self._loaded = LoadedAdapters(session, model, host)
        for name, path in files.items():
            self._loaded.load(name, path)
        self.ids: Sequence[str] = list(files)
        self._names = [""] * len(session.lengths)
        first = list(device_files(lora))
        for place in range(0, len(first), len(self._names)):
            self._loaded.use(first[place : place + len(self._names)])
        self.forget()

    def forget(self) -> None:
        """Let all rows be of the base model, so that no slot is held."""
        self._names = [""] * len(self._names)
        self._loaded.use(self._names)

    def use(self, adapter_ids: object, rows: int) -> None:
        """Let the prompts of rows 0, 1, ... use their adapters, and all other rows none.

        Args:
            adapter_ids: as of :meth:`give`.
            rows: number of prompts.

        Raises:
            GraphgenError: GG0402 for another number of ids, GG0705 for an unknown one and for more
                adapters than slots.
        """
        named = [] if adapter_ids is None else self._named(adapter_ids, rows)
        names = named + [""] * (len(self._names) - len(named))
        self._loaded.use(names)
        self._names = names

    def name_of(self, row: int) -> str:
        """The adapter of a row of the cache; empty for the base model."""
        return self._names[row]

    def give(self, rows: Sequence[RowInput], adapter_ids: object, *, begins: bool = False) -> None:
        """Let prompts use their adapters; other rows go on with what they began with.

        Args:
            rows: of a call.
            adapter_ids: one for each row: a name, its place in :attr:`ids`, or ``None`` or -1 for
                the base model; ``None`` for the base model in every prompt.
            begins: rows may be of other sequences than before: each has the adapter that is given.

        Raises:
            GraphgenError: GG0402 for another number of ids or a sequence that began with another
                adapter, GG0705 for an unknown one and for more adapters than slots.
        """
        named = None if adapter_ids is None else self._named(adapter_ids, len(rows))
        names = list(self._names)
        for place, row in enumerate(rows):
            if row.start == 0 or begins:
                names[row.row] = named[place] if named is not None else ""
            elif named is not None and named[place] != names[row.row]:
                raise GraphgenError(
                    "GG0402",
                    f"seq_id {row.row} began with the adapter '{names[row.row] or None}', and "
                    f"adapter_ids has '{named[place] or None}'",
                    help="leave adapter_ids out after the prompt",
                )
        if names != self._names:
            self._loaded.use(names)
            self._names = names

    def _named(self, given: object, count: int) -> list[str]:
        """The name of each row's adapter, empty for none."""
        plain = given.tolist() if hasattr(given, "tolist") else given  # pyright: ignore
        if isinstance(plain, str) or not isinstance(plain, Sequence):
            what = f"adapter_ids is {type(given).__name__}, not a list"
            raise GraphgenError("GG0402", what, help="give the adapter of each row, or None")
        listed = cast("Sequence[object]", plain)
        if len(listed) != count:
            what = f"adapter_ids has {len(listed)} adapters for {count} rows"
            raise GraphgenError("GG0402", what, help="give one for each row")
        return [self._name(one) for one in listed]

    def _name(self, one: object) -> str:
        if one is None:
            return ""
        if isinstance(one, int) and not isinstance(one, bool):
            if -1 <= one < len(self.ids):
                return "" if one == -1 else self.ids[one]
        elif isinstance(one, str) and one in self.ids:
            return one
        raise GraphgenError(
            "GG0705",
            f"there is no adapter {one!r}",
            help=f"adapters: {', '.join(self.ids) or 'none'}; None is the base model",
        )


def refuse_adapters(adapter_ids: object) -> None:
    """Refuse adapters for a model that has none (GG0705)."""
    if adapter_ids is not None:
        raise GraphgenError(
            "GG0705",
            "adapter_ids: the model has no adapters",
            help="give NeuronConfig a lora_config, a LoraServingConfig",
        )
