"""Convert modules to the data of the explorer page: columns of numbers and tables of texts.

A module of 170,000 ops is a few megabytes: each fact of an op is a column of small integers, most
of which are places in a table of texts. The page unpacks the columns once, and lays out only what
is unfolded.
"""

from __future__ import annotations

import base64
import json
import zlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from graphgen.analysis.calls import called
from graphgen.analysis.loops import trip_count
from graphgen.analysis.work import work_of
from graphgen.ir import Dim, Function, Module, Op, Value
from graphgen.ir.dims import bind
from graphgen.ir.loc import UNKNOWN
from graphgen.json_value import Json
from graphgen.ops import OPS, Trait
from graphgen.ops.control import SCALAR, callees, kernel_of
from graphgen.ops.external import shown_name, shown_type
from graphgen.text.printer import attr_text, value_names

if TYPE_CHECKING:
    from graphgen.analysis.liveness import LiveMemory
    from graphgen.report.diff import ProgramDifference

# Longer attributes, such as the elements of a constant, are truncated.
_LONGEST = 400
# Whole numbers above this are not exact in JavaScript.
_EXACT = 1 << 53
# The array type of a column, by the largest value in it.
_WIDTHS = ((1 << 8, "B"), (1 << 16, "H"), (1 << 32, "I"))
# Groups of ops that the page has colours for; the first that holds.
_PRODUCTS = frozenset(("dot_general", "convolution", "attention", "attention_part", "experts"))
_SOURCES = frozenset(("constant", "iota", "rng", "rng_bit_generator"))
_KINDS = (
    ("collective", Trait.COLLECTIVE),
    ("control", Trait.CONTROL),
    ("external", Trait.EXTERNAL),
    ("movement", Trait.DATA_MOVEMENT),
    ("composite", Trait.COMPOSITE),
    ("elementwise", Trait.ELEMENTWISE),
)


def op_kind(name: str) -> str:
    """The group that an op is coloured by, such as ``movement``."""
    if name in _PRODUCTS:
        return "product"
    if name in _SOURCES:
        return "source"
    if name.startswith("reduce") and name != "reduce_precision" and "scatter" not in name:
        return "reduction"
    return next((kind for kind, trait in _KINDS if OPS[name].has(trait)), "other")


class Texts:
    """A table of values in which each stands once.

    Attributes:
        numbers: place of each value.
    """

    def __init__(self, *first: Json | tuple[Json, ...]) -> None:
        self.numbers: dict[object, int] = {value: place for place, value in enumerate(first)}

    def place(self, value: object) -> int:
        """The place of a hashable value; a new one is appended."""
        return self.numbers.setdefault(value, len(self.numbers))

    def json(self) -> list[Json]:
        """The values in order."""
        return [_plain(value) for value in self.numbers]


def _plain(value: object) -> Json:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value  # pyright: ignore


@dataclass(slots=True)
class Columns:
    """Columns of numbers, packed one after the other.

    Attributes:
        rows: ``[name, array type, first byte, count]`` of each column.
        data: the bytes, little endian; each column begins at a multiple of 8.
    """

    rows: list[Json] = field(default_factory=list[Json])
    data: bytearray = field(default_factory=bytearray)

    def add(self, name: str, values: Sequence[int]) -> None:
        """Append a column of numbers that are not negative."""
        most = max(values, default=0)
        code = next((code for limit, code in _WIDTHS if most < limit), "d")
        self._append(name, code, array(code, values))

    def add_floats(self, name: str, values: Sequence[float]) -> None:
        """Append a column of floats."""
        self._append(name, "d", array("d", values))

    def _append(self, name: str, code: str, values: array[int] | array[float]) -> None:
        if values.itemsize > 1 and _BIG_ENDIAN:
            values.byteswap()
        self.data.extend(bytes(-len(self.data) % 8))
        self.rows.append([name, code, len(self.data), len(values)])
        self.data.extend(values.tobytes())


_BIG_ENDIAN = array("H", [1]).tobytes() == b"\0\1"


def zigzag(number: int) -> int:
    """A whole number as one that is not negative: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return 2 * number if number >= 0 else -2 * number - 1


@dataclass(frozen=True, slots=True)
class OpTimes:
    """Measured times of the ops of a module.

    Attributes:
        ops: of each op seconds in one run, seconds that they take at least (``None`` if not
            known), and how often it ran.
        seconds: of one run.
        alone: whether each op ran by itself.
        text: what was measured, and how, in words.
    """

    ops: Mapping[Op, tuple[float, float | None, float]]
    seconds: float
    alone: bool
    text: str


class ModuleColumns:
    """The data of one module.

    Args:
        module: has the functions.
        programs: functions to begin with; the functions they run follow.
        layouts: sharding of values as text, where known.
        layers: layer of ops without a scope of their own.
        sizes: of symbols, for which work is counted.
        times: of its ops, where they were measured.
        verdicts: of a proof about the module, by value: the number of the verdict, 0 for none, and
            the relation in words.
    """

    def __init__(
        self,
        module: Module,
        programs: Sequence[Function],
        layouts: Mapping[Value, str],
        layers: Mapping[Op, str],
        sizes: Mapping[str, int] = MappingProxyType({}),
        times: OpTimes | None = None,
        verdicts: Mapping[Value, tuple[int, str]] | None = None,
    ) -> None:
        self.module = module
        self.times = times
        self.verdicts = verdicts
        self.judged: list[tuple[int, int]] = []
        self.relations = Texts("")
        self.timed: list[tuple[float, float, float]] = []
        self.sizes = sizes
        self.functions = list(dict.fromkeys(programs))
        self.entries = len(self.functions)
        names = {function.name for function in self.functions}
        for program in programs:
            for function in called(module, program):
                if function.name not in names:
                    names.add(function.name)
                    self.functions.append(function)
        self.layouts = layouts
        self.layers = layers
        self.numbers = {function.name: at for at, function in enumerate(self.functions)}
        self.codes, self.attrs, self.places = Texts(), Texts(""), Texts(("", 0, ""))
        self.types, self.shardings = Texts(), Texts("")
        self.groups, self.work = Texts(None), Texts((0, 0))
        self.scopes: dict[str, int] = {"": 0}
        self.scope_names: list[str] = [""]
        self.scope_parents: list[int] = [0]
        self.names: list[str] = []
        self.runs: dict[str, Json] = {}
        self.totals: dict[str, tuple[float, float]] = {}
        self.column: dict[str, list[int]] = {key: [] for key in _OP_COLUMNS}
        self.rows = [self._function(function) for function in self.functions]

    def _function(self, function: Function) -> Json:
        """Append the ops and values of a function; its row."""
        names = value_names(function)
        first_value, first_op = len(self.names), len(self.column["code"])
        numbers: dict[Value, int] = {}
        for value in function.args:
            self._value(value, names, numbers)
        for op in function.block:
            self._op(op, names, numbers)
        return {
            "name": function.name,
            "phase": function.phase or "",
            "op": first_op,
            "ops": function.block.size,
            "value": first_value,
            "args": len(function.args),
            "outputs": [[name, numbers[value]] for name, value in function.outputs],
        }

    def _value(self, value: Value, names: Mapping[Value, str], numbers: dict[Value, int]) -> None:
        numbers[value] = len(self.names)
        self.names.append(names[value][1:])
        size = value.type.nbytes if value.type.static else None
        self.column["type"].append(self.types.place((shown_type(value), size)))
        self.column["layout"].append(self.shardings.place(self.layouts.get(value, "")))
        if self.verdicts is not None:
            number, relation = self.verdicts.get(value, (0, ""))
            self.judged.append((number, self.relations.place(relation)))

    def _op(self, op: Op, names: Mapping[Value, str], numbers: dict[Value, int]) -> None:
        column, number = self.column, len(self.column["code"])
        column["code"].append(self.codes.place((_shown(op), op_kind(op.name))))
        column["attrs"].append(self.attrs.place(_attributes(op)))
        column["scope"].append(self._scope(op.loc.scope or self.layers.get(op, "")))
        where = op.loc
        place = ("", 0, "") if where is UNKNOWN else (where.file, where.line, ", ".join(where.via))
        column["place"].append(self.places.place(place))
        column["results"].append(len(op.results))
        column["reads"].append(len(op.operands))
        base = len(self.names)
        column["operands"] += [zigzag(base - numbers[value] - 1) for value in op.operands]
        for value in op.results:
            self._value(value, names, numbers)
        column["groups"].append(self.groups.place(_exchange(op)))
        if self.times is not None:
            took, least, ran = self.times.ops.get(op, _UNMEASURED)
            self.timed.append((took, -1.0 if least is None else least, ran))
        run = callees(op)
        if run:
            self.runs[str(number)] = self._runs(op, run)
            column["work"].append(self.work.place(self._control_work(op, run)))
        else:
            column["work"].append(self.work.place(self._work(op)))

    def _scope(self, text: str) -> int:
        """The number of a dotted scope; a number in it belongs to the word before it."""
        found = self.scopes.get(text)
        if found is not None:
            return found
        head, _, last = text.rpartition(".")
        if last.isdigit() and head:
            head, _, word = head.rpartition(".")
            last = f"{word}.{last}"
        parent = self._scope(head)
        self.scopes[text] = len(self.scope_names)
        self.scope_names.append(last.replace("\n", " "))
        self.scope_parents.append(parent)
        return self.scopes[text]

    def _runs(self, op: Op, run: Sequence[str]) -> Json:
        """Role and number of each function that an op runs, and the turns of a loop."""
        if op.name == "while":
            roles = ["condition", "body"]
        elif op.name == "conditional":
            roles = [f"branch {at}" for at in range(len(run))]
        else:
            roles = list(run)
        pairs: list[Json] = [
            [role, self.numbers[name]] for role, name in zip(roles, run, strict=True)
        ]
        turns = trip_count(self.module, op) if op.name == "while" else None
        takes = [*op.attrs.integers("takes")] if op.name == "conditional" else []
        kernel = bool(kernel_of(op))
        return {"runs": pairs, "turns": turns, "takes": takes, "op": op.name, "kernel": kernel}

    def _control_work(self, op: Op, run: Sequence[str]) -> tuple[float, float]:
        """Operations and bytes of the functions that an op runs, all turns of a loop together."""
        if op.name in SCALAR:
            return self._work(op)
        parts = [self._total(name) for name in run]
        if op.name == "conditional":
            return max(parts)
        turns = (trip_count(self.module, op) if op.name == "while" else 1) or 1
        return turns * sum(part[0] for part in parts), turns * sum(part[1] for part in parts)

    def _work(self, op: Op) -> tuple[float, float]:
        """Operations and bytes of one op."""
        work = work_of(op)
        return self._number(work.flops), self._number(work.bytes)

    def _number(self, count: Dim) -> float:
        """A count with its symbols bound; 0 where one has no size."""
        bound = count if isinstance(count, int) else bind(count, self.sizes)
        if not isinstance(bound, int):
            return 0
        return bound if bound < _EXACT else float(bound)

    def _total(self, name: str) -> tuple[float, float]:
        """Operations and bytes of one run of a function."""
        if name not in self.totals:
            flops = moved = 0.0
            for op in self.module.function(name).block:
                run = callees(op)
                part = self._control_work(op, run) if run else self._work(op)
                flops, moved = flops + part[0], moved + part[1]
            self.totals[name] = flops, moved
        return self.totals[name]

    def tables(self) -> dict[str, Json]:
        """The tables that columns point into, and what few ops have."""
        return {
            "functions": self.rows,
            "entries": self.entries,
            "codes": self.codes.json(),
            "attrs": self.attrs.json(),
            "places": self.places.json(),
            "types": self.types.json(),
            "layouts": self.shardings.json(),
            "groups": [
                None if text is None else json.loads(str(text)) for text in self.groups.numbers
            ],
            "work": self.work.json(),
            "scopes": "\n".join(self.scope_names),
            "names": "\n".join(self.names),
            "runs": self.runs,
            **({} if self.verdicts is None else {"relations": self.relations.json()}),
        }

    def columns(self) -> Columns:
        """All columns."""
        made = Columns()
        for name, values in self.column.items():
            made.add(name, values)
        made.add("parents", self.scope_parents)
        for name, values in zip(_TIME_COLUMNS, zip(*self.timed, strict=True), strict=False):
            made.add_floats(name, values)
        for name, numbers in zip(_PROOF_COLUMNS, zip(*self.judged, strict=True), strict=False):
            made.add(name, list(numbers))
        return made


_OP_COLUMNS = (
    *("code", "attrs", "scope", "place", "results", "reads", "operands"),
    *("type", "layout", "groups", "work"),
)


# Seconds that an op took and takes at least, and how often it ran; -1 for what is not known.
_TIME_COLUMNS = ("took", "least", "ran")
# The number of a value's verdict, and of its relation in words.
_PROOF_COLUMNS = ("proof", "relation")
_UNMEASURED: Final[tuple[float, float | None, float]] = (-1.0, None, 0.0)


def _shown(op: Op) -> str:
    """The op's name; of a call that was an instruction of HLO, such as ``fusion``, its opcode."""
    name = str(op.annotations.get("hlo.opcode") or shown_name(op))
    kind = op.annotations.get("hlo.kind")
    return f"{name} {kind}" if kind else name


def _attributes(op: Op) -> str:
    text = attr_text(op)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _exchange(op: Op) -> str | None:
    """The groups or pairs of a collective as JSON; ``None`` for other ops."""
    if not OPS[op.name].collective:
        return None
    pairs = "replica_groups" not in op.attrs
    groups = op.attrs.groups("source_target_pairs" if pairs else "replica_groups")
    return json.dumps({"pairs" if pairs else "groups": [list(group) for group in groups]})


def live_columns(live: LiveMemory) -> Columns:
    """Bytes by op, and of each value its op, how long it is held, its bytes, its place of results.

    Positions are those of the program without calls.
    """
    made, times = Columns(), live.lifetimes
    made.add("bytes", live.bytes)
    made.add("first", [item.first for item in times])
    made.add("held", [item.last - item.first for item in times])
    made.add("size", [item.value.type.nbytes for item in times])
    made.add("result", [item.value.index for item in times])
    return made


def pair_columns(found: ProgramDifference) -> Columns:
    """Positions of the paired ops of two programs without calls, and which pairs are equal."""
    first = {op: place for place, op in enumerate(found.first.block)}
    second = {op: place for place, op in enumerate(found.second.block)}
    made = Columns()
    made.add("first", [first[one] for one, _, _ in found.pairs])
    made.add("second", [second[other] for _, other, _ in found.pairs])
    made.add("equal", [int(equal) for _, _, equal in found.pairs])
    return made


def packed(data: bytes) -> str:
    """Bytes as the page unpacks them: deflated, in base64."""
    return base64.b64encode(zlib.compress(data, 6)).decode()


def packed_json(data: Json) -> str:
    """JSON as the page unpacks it."""
    return packed(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode())


@dataclass(slots=True)
class ExploreData:
    """The data of one page: of a module, or of two side by side.

    Attributes:
        modules: head of each.
        pairs: which programs are compared, with their differences in words.
        blocks: packed data by name.
    """

    modules: list[Json] = field(default_factory=list[Json])
    pairs: list[Json] = field(default_factory=list[Json])
    blocks: dict[str, str] = field(default_factory=dict[str, str])

    def add(
        self,
        title: str,
        facts: Mapping[str, Json],
        columns: ModuleColumns,
        programs: Sequence[Json],
        live: Sequence[LiveMemory | None],
        buffers: Json = None,
    ) -> None:
        """Add a module.

        Args:
            title: of the file.
            facts: name, level, mesh and so on, as ``inspect --json`` prints them.
            columns: its ops and values.
            programs: the overview of each program that the columns begin with, and its arguments.
            live: the live memory of each of these; ``None`` with unbound symbols.
            buffers: memory by XLA's schedule; ``None`` where the module states none.
        """
        side, made = len(self.modules), columns.columns()
        self.blocks[f"tables-{side}"] = packed_json(columns.tables())
        self.blocks[f"columns-{side}"] = packed(bytes(made.data))
        memory: list[Json] = []
        for at, item in enumerate(live):
            if item is None or not item.ops:
                memory.append(None)
                continue
            lives = live_columns(item)
            self.blocks[f"live-{side}-{at}"] = packed(bytes(lives.data))
            memory.append(lives.rows)
        if buffers is not None:
            self.blocks[f"buffers-{side}"] = packed_json(buffers)
        ops = len(columns.column["code"])
        head: dict[str, Json] = {"title": title, "module": dict(facts), "ops": ops}
        head |= {"columns": made.rows, "live": memory, "programs": [*programs]}
        times = columns.times
        if times is not None:
            said: dict[str, Json] = {"seconds": times.seconds, "alone": times.alone}
            head["measured"] = {**said, "text": times.text}
        self.modules.append({**head, "buffers": buffers is not None})

    def compare(self, programs: Sequence[ProgramDifference]) -> None:
        """Add which ops of the two modules are the same."""
        # Only here: pages of one module compare nothing.
        from graphgen.report.diff import with_runs

        for item in with_runs(programs):
            made = pair_columns(item)
            self.blocks[f"pairs-{len(self.pairs)}"] = packed(bytes(made.data))
            words: list[Json] = [*item.interface, *[change.what for change in item.changes]]
            names: list[Json] = [item.first.name, item.second.name]
            self.pairs.append({"names": names, "columns": made.rows, "changes": words[:400]})

    def head(self) -> Json:
        """The data that the page needs at once."""
        return {"modules": self.modules, "pairs": self.pairs}
