"""Convert programs to the data of an HTML page: a small head, and blocks that it unpacks lazily."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.analysis.layers import identical_layers
from graphgen.analysis.liveness import LiveMemory
from graphgen.analysis.overview import Overview
from graphgen.ir import Function, Op, Value
from graphgen.json_value import Json
from graphgen.report.op_chunks import CHUNK, READERS, ProgramIndex, op_chunks, program_index


@dataclass(slots=True)
class DumpData:
    """The data of one page.

    Attributes:
        module: name, level, mesh and so on, as ``inspect --json`` prints them.
        programs: one row for each program or function, in order.
        blocks: JSON texts by name, compressed in the page.
    """

    module: dict[str, Json]
    programs: list[Json] = field(default_factory=list[Json])
    blocks: dict[str, str] = field(default_factory=dict[str, str])

    def add(
        self,
        item: Overview,
        facts: Mapping[str, Json],
        layouts: Mapping[Value, str] | None = None,
        live: LiveMemory | None = None,
        figures: Sequence[tuple[str, str]] = (),
        caller: str = "",
    ) -> None:
        """Add a program.

        Args:
            item: its overview.
            facts: the overview as JSON, equal to ``graphgen inspect --json``.
            layouts: sharding of values, where known.
            live: its live memory; ``None`` with unbound symbols.
            figures: (title, SVG) of pictures for its overview.
            caller: the program that runs it; empty for a program itself.
        """
        function, number = item.function, len(self.programs)
        index = program_index(function)
        known = layouts or {}
        for place, chunk in enumerate(op_chunks(function, index, known)):
            self.blocks[f"ops-{number}-{place}"] = _text(chunk)
        results: list[Json] = [" ".join([index.names[r] for r in op.results]) for op in index.ops]
        self.blocks[f"names-{number}"] = _text(results)
        if live is not None and live.ops:
            self.blocks[f"live-{number}"] = _text(_live(live))
        parts = _parts(function, item.layer_of)
        self.blocks[f"parts-{number}"] = _text([part.json() for part in parts])
        self.programs.append(
            {
                "facts": facts,
                "caller": caller,
                "count": len(index.ops),
                "args": _arguments(item, index, known),
                "outputs": _outputs(function, index),
                "parts": [
                    [part.label, len(part.instances), part.size, part.instances[0][0]]
                    for part in parts
                ],
                "live": live is not None and bool(live.ops),
                "figures": [{"title": title, "svg": svg} for title, svg in figures],
            }
        )

    def head(self) -> Json:
        """The data that the page needs at once."""
        return {"module": self.module, "chunk": CHUNK, "programs": self.programs}


@dataclass(slots=True)
class _ProgramPart:
    """Identical layers, or ops between layers.

    Attributes:
        label: the names of the first layer and the last.
        instances: name of each layer, and its ops as runs ``[first, count, first, count, ...]``.
    """

    label: str
    instances: list[tuple[str, list[int]]]

    @property
    def size(self) -> int:
        """The number of ops in one layer."""
        return sum(self.instances[0][1][1::2])

    def json(self) -> Json:
        """The instances as JSON."""
        return [[name, list[Json](runs)] for name, runs in self.instances]


def _text(data: Json) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _arguments(item: Overview, index: ProgramIndex, layouts: Mapping[Value, str]) -> list[Json]:
    """Name, type, bytes, kind, readers, their number, and sharding of each argument."""
    kinds = {value: part.kind for part in item.parts for value in part.values}
    made: list[Json] = []
    for value in item.function.args:
        readers = list(dict.fromkeys(value.users))
        shown: list[Json] = [index.ops[op] for op in readers[:READERS]]
        size = value.type.nbytes if value.type.static else None
        row: list[Json] = [index.names[value], value.type.text, size, kinds[value]]
        made.append([*row, shown, len(readers), layouts.get(value)])
    return made


def _live(live: LiveMemory) -> Json:
    """Bytes by op, and each value: its op, how long it is held, its bytes, its place of results."""
    alive: list[Json] = [
        [item.first, item.last - item.first, item.value.type.nbytes, item.value.index]
        for item in live.lifetimes
    ]
    return {"bytes": list[Json](live.bytes), "alive": alive}


def _outputs(function: Function, index: ProgramIndex) -> list[Json]:
    """Name of each output, name of its value, and the op that makes it (-1: an argument)."""
    return [
        [name, index.names[value], -1 if value.op is None else index.ops[value.op]]
        for name, value in function.outputs
    ]


def _parts(function: Function, layer_of: Mapping[Op, str]) -> list[_ProgramPart]:
    """Layers, identical ones grouped, and the ops between them, in program order."""
    runs: dict[str, list[int]] = {}
    ops: dict[str, list[Op]] = {}
    before, count = "", 0
    for index, op in enumerate(function.block):
        layer = layer_of.get(op, "")
        if not layer and (index == 0 or before):
            count += 1
        name = layer or f"outside of layers, {count}"
        _extend(runs.setdefault(name, []), index)
        if layer:
            ops.setdefault(layer, []).append(op)
        before = layer
    alike = identical_layers(ops)
    made: dict[str, list[tuple[str, list[int]]]] = {}
    for name, found in runs.items():
        made.setdefault(alike.get(name, name), []).append((name, found))
    return [
        _ProgramPart(name if len(found) == 1 else f"{name} to {found[-1][0]}", found)
        for name, found in made.items()
    ]


def _extend(runs: list[int], index: int) -> None:
    """Add an op to runs of consecutive ops."""
    if runs and runs[-2] + runs[-1] == index:
        runs[-1] += 1
    else:
        runs += [index, 1]
