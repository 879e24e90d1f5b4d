"""The adapters of an opened model: loaded from files, checked by its programs, used by rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.ir import Role
from graphgen.models import known_family
from graphgen.models.family import Family, FusedRows
from graphgen.runtime.checkpoint.expert_tensors import stacked_name
from graphgen.runtime.checkpoint.interfaces import Array
from graphgen.runtime.checkpoint.name_mapping import current_names
from graphgen.runtime.checkpoint.split_rows import RowRange
from graphgen.runtime.lora.adapter_file import Adapter, LowRankPair, open_adapter, require_none
from graphgen.runtime.lora.adapter_store import AdapterStore, StoredAdapter
from graphgen.runtime.model import BuiltModel
from graphgen.runtime.session.adapter_slots import NO_ADAPTER, PreparedAdapter
from graphgen.runtime.session.session import Session

Shape = tuple[int, ...]
# By projection the shapes of A (rank, in) and B (out, rank), rank the largest that programs take;
# those of experts have the number of experts in front.
Targets = Mapping[str, tuple[Shape, Shape]]
_MERGE: Final = "merge it into the checkpoint: graphgen merge-lora"


@dataclass(frozen=True, slots=True)
class AdapterPart:
    """The factors of one projection: those of a module, or of rows of it.

    Attributes:
        target: name of the projection.
        pair: the stored factors.
        rows: the rows of B, where a checkpoint holds several projections as one.
        expert: number of the expert that the module is of; ``None`` for other modules.
    """

    target: str
    pair: LowRankPair
    rows: RowRange | None
    expert: int | None = None

    @property
    def outputs(self) -> int:
        """Number of rows of B."""
        if self.rows is None:
            return self.pair.b.shape[0]
        return self.rows.rows * self.rows.blocks


def adapter_parts(
    adapter: Adapter, config: Mapping[str, object], targets: Targets, weights: Collection[str] = ()
) -> list[AdapterPart]:
    """The parts of an adapter for the projections of a model; reads no tensor.

    Args:
        adapter: opened.
        config: of the model, under Hugging Face's names.
        targets: the projections that the programs have slots for.
        weights: names of the model's weights, to tell what it lacks from what was left out.

    Raises:
        GraphgenError: GG0602 that lists each tensor without a place, or of another shape; GG0502
            for what can only be merged.
    """
    _refuse_merged_only(adapter)
    parts = list(_parts(adapter, config))
    problems = [line for part in parts if (line := _problem(part, targets, weights))]
    problems += _missing(adapter, {(part.target, part.expert) for part in parts}, targets)
    require_none(problems, adapter.path, "these programs")
    return parts


def projections(adapter: Adapter, config: Mapping[str, object]) -> set[str]:
    """The last parts of the names of the projections that an adapter is of, such as ``q_proj``.

    Those of experts have ``experts.`` in front, as the targets of ``multi-lora`` have.
    """
    found: set[str] = set()
    for part in _parts(adapter, config):
        parts = part.target.split(".")
        found.add(".".join(parts[-1:] if part.expert is None else parts[-2:]))
    return found


def read_parts(adapter: Adapter, parts: list[AdapterPart], targets: Targets) -> dict[str, Array]:
    """The tensors of the parts: ``P.lora_A`` [r,in] and ``P.lora_B`` [out,r] with the scale in it.

    B is f32, A as it is stored: a view of the file. Those of experts are stacks, [E,r,in] and
    [E,out,r] with zeros for an expert without an adapter.
    """
    found: dict[str, Array] = {}
    for part in parts:
        a, b = adapter.factors(part.pair.module)
        b = b if part.rows is None else part.rows.of(b)
        for name, factor, shape in zip(
            ("lora_A", "lora_B"), (a, b), targets[part.target], strict=True
        ):
            whole = f"{part.target}.{name}"
            if part.expert is None:
                found[whole] = factor
            else:
                stack = found.setdefault(whole, np.zeros(shape, np.float32))
                stack[part.expert][: factor.shape[0], : factor.shape[1]] = factor
    return found


def _refuse_merged_only(adapter: Adapter) -> None:
    what = ""
    if adapter.whole:
        names = ", ".join(f"'{name}'" for name in list(adapter.whole.values())[:5])
        what = f"the adapter replaces whole tensors of the model: {names}"
    elif adapter.config.dora:
        what = "the adapter has DoRA's magnitudes, which scale the model's own weights"
    if what:
        raise GraphgenError("GG0502", what, where=str(adapter.path), help=_MERGE)


def _parts(adapter: Adapter, config: Mapping[str, object]) -> Iterator[AdapterPart]:
    family = known_family(config.get("model_type"))
    fused: Mapping[str, FusedRows] = {} if family is None else family.fused_rows(config)
    names = _current_names(family, adapter.pairs)
    for stored, pair in adapter.pairs.items():
        module = names[stored]
        base, _, last = module.rpartition(".")
        layout = fused.get(last)
        total = 0 if layout is None else sum(rows for _, rows in layout.parts) * layout.blocks
        if layout is None or pair.b.shape[0] != total:
            target, expert = stacked_name(module)
            yield AdapterPart(target, pair, None, expert)
            continue
        start = 0
        for part, rows in layout.parts:
            piece = RowRange(pair.b.name, start, rows, layout.blocks)
            yield AdapterPart(f"{base}.{part}", pair, piece)
            start += rows


def _current_names(family: Family[Any] | None, modules: Collection[str]) -> dict[str, str]:
    """Today's name of each module."""
    if family is None:
        return {name: name for name in modules}
    names = current_names(family, [f"{own}." for own in modules])
    return {own: names[f"{own}."].removesuffix(".") for own in modules}


def _problem(part: AdapterPart, targets: Targets, weights: Collection[str]) -> str:
    """The reason why a part has no place; empty where it has one."""
    pair, wanted = part.pair, targets.get(part.target)
    if wanted is None:
        if f"{part.target}.weight" in weights:
            return f"'{pair.a.name}': the programs were compiled without '{part.target}'"
        return f"'{pair.a.name}': the model has no '{part.target}'"
    (most, inputs), (outputs, _) = wanted[0][-2:], wanted[1][-2:]
    experts = wanted[0][0] if len(wanted[0]) > 2 else None
    if (part.expert is None) != (experts is None):
        return f"'{pair.a.name}': the model has no '{pair.module}'"
    if experts is not None and part.expert is not None and part.expert >= experts:
        return f"'{pair.a.name}': the model has {experts} experts"
    if pair.a.shape[1] != inputs or part.outputs != outputs:
        return (
            f"'{pair.a.name}' {list(pair.a.shape)} and '{pair.b.name}' {list(pair.b.shape)} do not "
            f"fit '{part.target}' with {inputs} inputs and {outputs} outputs"
        )
    if pair.rank > most:
        return f"'{pair.a.name}' has rank {pair.rank}, the programs take {most} at most"
    return ""


def _missing(
    adapter: Adapter, found: Collection[tuple[str, int | None]], targets: Targets
) -> Iterator[str]:
    """A line for each projection that the configuration names and the adapter has nothing for."""
    config = adapter.config
    for target, (of_a, _) in targets.items() if config.targets else ():
        owner, _, last = target.rpartition(".")
        numbers = range(of_a[0]) if len(of_a) > 2 else (None,)
        for number in numbers:
            name = target if number is None else f"{owner}.{number}.{last}"
            if (target, number) not in found and config.names(name):
                yield f"'{name}.lora_A' is missing: target_modules names '{name}'"


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
