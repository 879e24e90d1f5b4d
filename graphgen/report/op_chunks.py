"""Divide the ops of a program into chunks that a page unpacks one at a time.

A chunk is an array of rows and two tables of what they name outside of it, so a layer is drawn from
its own chunks alone. Values are numbered through the program, arguments first; ops from 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

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
