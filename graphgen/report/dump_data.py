"""Convert programs to the data of an HTML page: a small head, and blocks that it unpacks lazily."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.analysis.layers import identical_layers
from graphgen.analysis.liveness import LiveMemory
from graphgen.analysis.overview import Overview
from graphgen.ir import Function, Loc, Op, Value
from graphgen.ir.loc import UNKNOWN
from graphgen.json_value import Json
from graphgen.ops import OPS
from graphgen.ops.control import callees
from graphgen.ops.external import shown_name, shown_type
from graphgen.text.printer import attr_text, value_names

CHUNK = 1000
# Longer attributes, such as the elements of a constant, are truncated.
_LONGEST = 400
# A value with more readers lists these only; the page shows the number of all.
READERS = 60


@dataclass(slots=True)
class ProgramIndex:
    """The numbers and names of the values and ops of a function.

    Attributes:
        names: of values, without ``%``.
        values: number of each value.
        ops: number of each op.
    """

    names: dict[Value, str] = field(default_factory=dict[Value, str])
    values: dict[Value, int] = field(default_factory=dict[Value, int])
    ops: dict[Op, int] = field(default_factory=dict[Op, int])


def program_index(function: Function) -> ProgramIndex:
    """Number the values and ops of a function in order."""
    made = ProgramIndex({value: name[1:] for value, name in value_names(function).items()})
    made.values = {value: index for index, value in enumerate(function.args)}
    for number, op in enumerate(function.block):
        made.ops[op] = number
        for result in op.results:
            made.values[result] = len(made.values)
    return made


def op_chunks(
    function: Function, index: ProgramIndex, layouts: Mapping[Value, str], size: int = CHUNK
) -> Iterator[Json]:
    """Yield the chunks of a function, ``size`` ops each, as JSON.

    Args:
        function: without calls.
        index: of this function.
        layouts: sharding of values, where known.
        size: number of ops in a chunk.

    Yields:
        ``first``, ``start``, the numbers of the first op and result; ``ops``, rows ``[opcode,
        results, attributes, operands, place, more]``; ``places``, rows ``[file, line, scope,
        passes]``; ``values`` and ``readers``, the values and ops outside of the chunk that rows
        name, by number.
    """
    ops = list(function.block)
    for first in range(0, max(len(ops), 1), size):
        yield _Chunk(index, layouts, first, ops[first : first + size]).json()


class _Chunk:
    """One chunk in the making."""

    def __init__(
        self, index: ProgramIndex, layouts: Mapping[Value, str], first: int, ops: Sequence[Op]
    ) -> None:
        self.index = index
        self.layouts = layouts
        self.first = first
        self.ops = ops
        self.places: dict[Loc, int] = {}
        self.values: dict[str, Json] = {}
        self.readers: dict[str, Json] = {}

    def json(self) -> Json:
        """The chunk as JSON."""
        rows: list[Json] = [self._row(op) for op in self.ops]
        places: list[Json] = [
            [where.file, where.line, where.scope, ", ".join(where.via)] for where in self.places
        ]
        results = [value for op in self.ops for value in op.results]
        return {
            "first": self.first,
            "start": self.index.values[results[0]] if results else 0,
            "ops": rows,
            "places": places,
            "values": self.values,
            "readers": self.readers,
        }

    def _row(self, op: Op) -> Json:
        attrs = attr_text(op)
        return [
            shown_name(op),
            [self._result(value) for value in op.results],
            attrs if len(attrs) <= _LONGEST else f"{attrs[: _LONGEST - 3]}...",
            [self._operand(value) for value in op.operands],
            -1 if op.loc is UNKNOWN else self.places.setdefault(op.loc, len(self.places)),
            _more(op),
        ]

    def _result(self, value: Value) -> Json:
        """Name, type, bytes, readers and the number of these; sharding where known."""
        readers = list(dict.fromkeys(value.users))
        row: list[Json] = [
            self.index.names[value],
            shown_type(value),
            value.type.nbytes if value.type.static else None,
            [self._reader(op) for op in readers[:READERS]],
            len(readers),
        ]
        layout = self.layouts.get(value)
        return [*row, layout] if layout else row

    def _operand(self, value: Value) -> int:
        number = self.index.values[value]
        if value.op is not None and not self._inside(self.index.ops[value.op]):
            row: list[Json] = [self.index.names[value], shown_type(value)]
            row += [self.index.ops[value.op], shown_name(value.op), self.layouts.get(value)]
            self.values[str(number)] = row
        return number

    def _reader(self, op: Op) -> int:
        number = self.index.ops[op]
        if not self._inside(number):
            name = self.index.names[op.results[0]] if op.results else op.name
            self.readers[str(number)] = [name, shown_name(op)]
        return number

    def _inside(self, number: int) -> bool:
        return self.first <= number < self.first + len(self.ops)


def _more(op: Op) -> dict[str, Json]:
    """The groups or pairs of a collective, and the functions that the op runs."""
    made: dict[str, Json] = {}
    if OPS[op.name].collective:
        pairs = "replica_groups" not in op.attrs
        groups = op.attrs.groups("source_target_pairs" if pairs else "replica_groups")
        made["pairs" if pairs else "groups"] = [list(group) for group in groups]
    if names := callees(op):
        made["runs"] = list(names)
    return made


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
