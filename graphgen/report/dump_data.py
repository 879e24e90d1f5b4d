"""Convert a program to JSON for an HTML page, with identical layers grouped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphgen.analysis.layers import identical_layers
from graphgen.analysis.overview import Overview
from graphgen.ir import Function, Loc, Op, Value
from graphgen.ir.loc import UNKNOWN
from graphgen.json_value import Json
from graphgen.text.printer import attr_text, value_names

# Longer attributes, such as the elements of a constant, are truncated.
_LONGEST = 400


class LocationTable:
    """A table of distinct locations.

    Attributes:
        rows: (file, line, scope, passes) of each.
    """

    def __init__(self) -> None:
        self.rows: list[Json] = []
        self._known: dict[Loc, int] = {}

    def of(self, where: Loc) -> int:
        """The index of a location, -1 for an unknown one."""
        if where is UNKNOWN:
            return -1
        if where not in self._known:
            self._known[where] = len(self.rows)
            self.rows.append([where.file, where.line, where.scope, ", ".join(where.via)])
        return self._known[where]


def program_data(
    item: Overview, facts: Mapping[str, Json], places: LocationTable
) -> dict[str, Json]:
    """The JSON of one program.

    Args:
        item: its overview.
        facts: the overview as JSON, equal to ``graphgen inspect --json``.
        places: table that receives the locations.
    """
    function = item.function
    names = {value: name[1:] for value, name in value_names(function).items()}
    kinds = {value: part.kind for part in item.parts for value in part.values}
    ids: dict[Value, int] = {value: index for index, value in enumerate(function.args)}
    ops: list[Json] = []
    for op in function.block:
        reads = [ids[value] for value in op.operands]
        for result in op.results:
            ids[result] = len(ids)
        ops.append(_op(op, reads, names, places))
    return {
        "facts": facts,
        "args": [
            {
                "name": names[value],
                "type": value.type.text,
                "bytes": _bytes(value),
                "kind": kinds[value],
            }
            for value in function.args
        ],
        "ops": ops,
        "outputs": [[name, ids[value]] for name, value in function.outputs],
        "parts": _parts(function, item.layer_of),
    }


def _op(op: Op, reads: Sequence[int], names: Mapping[Value, str], places: LocationTable) -> Json:
    attrs = attr_text(op)
    return {
        "op": op.attrs.text("opcode") if op.name == "hlo.opaque" else op.name,
        "names": [names[value] for value in op.results],
        "types": [value.type.text for value in op.results],
        "bytes": [_bytes(value) for value in op.results],
        "attrs": attrs if len(attrs) <= _LONGEST else f"{attrs[: _LONGEST - 3]}...",
        "reads": reads,
        "loc": places.of(op.loc),
    }


def _bytes(value: Value) -> int | None:
    return value.type.nbytes if value.type.static else None


def _parts(function: Function, layer_of: Mapping[Op, str]) -> list[Json]:
    """Layers, identical ones grouped, and the ops between them, in program order."""
    runs: dict[str, list[int]] = {}
    ops: dict[str, list[Op]] = {}
    before, count = "", 0
    for index, op in enumerate(function.block):
        layer = layer_of.get(op, "")
        if not layer and (index == 0 or before):
            count += 1
        name = layer or f"outside of layers, {count}"
        runs.setdefault(name, []).append(index)
        if layer:
            ops.setdefault(layer, []).append(op)
        before = layer
    alike = identical_layers(ops)
    made: dict[str, list[Json]] = {}
    for name, indices in runs.items():
        made.setdefault(alike.get(name, name), []).append({"name": name, "ops": indices})
    last = {alike.get(name, name): name for name in runs}
    return [
        {"label": name if last[name] == name else f"{name} to {last[name]}", "instances": instances}
        for name, instances in made.items()
    ]
