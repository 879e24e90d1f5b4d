"""Overview of a program: arguments, outputs, work, collectives, layers, peak memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.analysis.calls import called, inlined
from graphgen.analysis.layers import layers_of
from graphgen.analysis.liveness import Peak, peak_memory
from graphgen.analysis.loops import ops_run, trip_count
from graphgen.analysis.work import Work, run_work, size_in_bytes, work_of
from graphgen.ir import RANK, Dim, Function, Loc, Module, Op, Role, Value
from graphgen.ir.loc import UNKNOWN
from graphgen.ops import OPS, Trait, has_trait
from graphgen.ops.control import callees
from graphgen.ops.custom_calls import CustomCall, calls_of

# An argument of an imported program below this size is classified as an input, not a weight.
_WEIGHT_BYTES = 1 << 12
# Ops that read weights: products, lookups, scales and biases.
_READS_WEIGHTS = frozenset(("dot_general", "gather", "embedding", "multiply", "add"))


@dataclass(frozen=True, slots=True)
class ArgumentGroup:
    """The arguments of one kind.

    Attributes:
        kind: ``inputs``, ``weights``, ``caches``.
        values: the arguments.
        bytes: of all of them, on one rank.
        guessed: true if the kind is inferred, not stated in the file.
    """

    kind: str
    values: tuple[Value, ...]
    bytes: Dim
    guessed: bool = False


@dataclass(frozen=True, slots=True)
class CollectiveSummary:
    """Collectives of one kind, type and grouping.

    Attributes:
        op: the collective.
        type: of each result.
        groups: the replica groups.
        count: of collectives.
        bytes: of one result per rank.
        algorithm: of the runtime for this size: ``mesh``, ``rdh`` or ``kanga-ring``.
    """

    op: str
    type: str
    groups: str
    count: int
    bytes: Dim
    algorithm: str


@dataclass(frozen=True, slots=True)
class OutputSummary:
    """One output of the program.

    Attributes:
        index: its position among the outputs.
        name: its name.
        value: the value.
        argument: position of the argument that it aliases, ``None`` without alias.
    """

    index: int
    name: str
    value: Value
    argument: int | None


@dataclass(frozen=True, slots=True)
class ValueOrigin:
    """The layer and source location of a value.

    Attributes:
        layer: of the op that defines it, or of all its users; empty for none.
        where: the location of its definition, or of its first user.
        read: true if ``where`` is the location of a user.
    """

    layer: str
    where: Loc
    read: bool


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Consecutive layers of equal work.

    Attributes:
        first, last: their names.
        count: of layers.
        ops: in one of them.
        work: of one of them.
        weights: bytes of the weights that one of them reads first.
    """

    first: str
    last: str
    count: int
    ops: int
    work: Work
    weights: Dim = 0


@dataclass(frozen=True, slots=True)
class CalleeSummary:
    """A function that a loop or a conditional runs.

    Attributes:
        op: the control op and its role: condition, body or branch number.
        name: of the function.
        trip_count: of a loop; ``None`` if unknown, and for branches.
        histogram: number of ops by name.
    """

    op: str
    name: str
    trip_count: int | None
    histogram: dict[str, int]


@dataclass(slots=True)
class Overview:
    """One program; its work counts all iterations of loops and the largest branch of conditionals.

    Attributes:
        function: the program, without calls.
        parts: its arguments by kind.
        outputs: its outputs and their aliases.
        histogram: number of ops by name.
        flops: by element type of the operands.
        work: of all ops.
        exchanges: collectives.
        calls: custom calls, decoded.
        opaque: counts of ``hlo.opaque`` by opcode.
        bodies: functions that loops and conditionals run.
        layers: groups of repeated layers.
        largest: the largest values.
        peak: peak memory; ``None`` with unbound symbols.
        layer_of: the layer of each op that is in one.
    """

    function: Function
    parts: list[ArgumentGroup]
    outputs: list[OutputSummary]
    histogram: dict[str, int] = field(default_factory=dict[str, int])
    flops: dict[str, Dim] = field(default_factory=dict[str, Dim])
    work: Work = field(default_factory=Work)
    exchanges: list[CollectiveSummary] = field(default_factory=list[CollectiveSummary])
    calls: list[CustomCall] = field(default_factory=list[CustomCall])
    opaque: dict[str, int] = field(default_factory=dict[str, int])
    bodies: list[CalleeSummary] = field(default_factory=list["CalleeSummary"])
    layers: list[LayerGroup] = field(default_factory=list[LayerGroup])
    largest: list[Value] = field(default_factory=list[Value])
    peak: Peak | None = None
    layer_of: dict[Op, str] = field(default_factory=dict[Op, str])

    @property
    def kept(self) -> int:
        """The number of outputs that alias an argument."""
        return sum(output.argument is not None for output in self.outputs)

    @property
    def whole_histogram(self) -> dict[str, int]:
        """The number of ops by name, each loop's body and each branch counted once."""
        found = Counter(self.histogram)
        for histogram in {body.name: body.histogram for body in self.bodies}.values():
            found.update(histogram)
        return dict(found)

    def place(self, value: Value) -> ValueOrigin:
        """The layer and location of a value of the program."""
        if value.op is not None and value.op.loc is not UNKNOWN:
            return ValueOrigin(self.layer_of.get(value.op, ""), value.op.loc, read=False)
        layers = {self.layer_of.get(user, "") for user in value.users}
        where = next((user.loc for user in value.users if user.loc is not UNKNOWN), UNKNOWN)
        return ValueOrigin(layers.pop() if len(layers) == 1 else "", where, read=True)


def opaque_opcodes(module: Module) -> list[str]:
    """Opcodes of the module's instructions that have no op here, sorted."""
    return sorted(
        {
            op.attrs.text("opcode")
            for function in module.functions.values()
            for op in function.block
            if op.name == "hlo.opaque"
        }
    )


def overview(module: Module, function: Function, largest: int = 10) -> Overview:
    """Summarize one program of a module.

    Args:
        module: for its interface.
        function: the program.
        largest: the number of largest values to keep.
    """
    function = inlined(module, function, kernels=False)
    states = {row.name for row in module.entries(Role.STATE)}
    made = Overview(
        function,
        argument_groups(module, function),
        _outputs(function, states),
    )
    values = [*function.args]
    for op in function.block:
        made.histogram[op.name] = made.histogram.get(op.name, 0) + 1
        if op.name == "hlo.opaque":
            code = op.attrs.text("opcode")
            made.opaque[code] = made.opaque.get(code, 0) + 1
        values += op.results
    run = list(ops_run(module, function.block))
    for op, count in run:
        _count_flops(made, op, count)
    made.work = run_work(module, function.block)
    made.exchanges = _exchanges(run)
    made.calls = calls_of(
        [op for each in (function, *called(module, function)) for op in each.block]
    )
    made.bodies = list(_bodies(module, function))
    layers = layers_of(function)
    made.layer_of = {op: name for name, ops in layers.items() for op in ops}
    made.layers = _layers(module, layers, next(p.values for p in made.parts if p.kind == "weights"))
    if all(value.type.static for value in values):
        made.largest = sorted(values, key=lambda value: -value.type.nbytes)[:largest]
        made.peak = peak_memory(module, function)
    return made


def _outputs(function: Function, states: set[str]) -> list[OutputSummary]:
    places = {value.name: index for index, value in enumerate(function.args)}
    return [
        OutputSummary(index, name, value, places.get(name) if name in states else None)
        for index, (name, value) in enumerate(function.outputs)
    ]


def argument_groups(module: Module, function: Function) -> list[ArgumentGroup]:
    """The arguments of a program by kind: inputs, weights and caches, also where there are none."""
    by_kind: dict[str, list[Value]] = {"inputs": [], "weights": [], "caches": []}
    guessed = False
    for value in function.args:
        kind = _kind(module, value)
        if not kind:
            kind, guessed = _guess(value), True
        by_kind[kind].append(value)
    return [
        ArgumentGroup(kind, tuple(values), _bytes(values), guessed and kind != "caches")
        for kind, values in by_kind.items()
    ]


def _kind(module: Module, value: Value) -> str:
    if value.name == RANK and "format" not in module.meta:
        return "inputs"
    row = module.interface.get(value.name or "")
    if row is None or "format" in module.meta:
        # The interface of an imported dump has its states only.
        return "caches" if row is not None and row.role is Role.STATE else ""
    if row.role in (Role.INPUT, Role.LAYOUT):
        return "inputs"
    return "caches" if row.role is Role.STATE else "weights"


def _guess(value: Value) -> str:
    """Classify a large float that reaches a product or a lookup unchanged as a weight."""
    if not value.dtype.is_float or not value.type.static or value.type.nbytes < _WEIGHT_BYTES:
        return "inputs"
    work, seen = [value], {value}
    while work:
        for user in work.pop().users:
            if user.name in _READS_WEIGHTS:
                return "weights"
            relays = has_trait(user, Trait.RELAYOUT) or user.name == "slice"
            fresh = [r for r in user.results if relays and r not in seen]
            seen.update(fresh)
            work += fresh
    return "inputs"


def _bytes(values: Iterable[Value]) -> Dim:
    together: Dim = 0
    for value in values:
        together += size_in_bytes(value.type)
    return together


def _bodies(module: Module, function: Function) -> Iterator[CalleeSummary]:
    """Yield the functions that loops and conditionals run, transitively."""
    for op in (op for each in (function, *called(module, function)) for op in each.block):
        if op.name not in ("while", "conditional"):
            continue
        loop = op.name == "while"
        trips = trip_count(module, op) if loop else None
        for index, name in enumerate(callees(op)):
            part = ("condition", "body")[index] if loop else f"branch {index}"
            # Callees count at their calls.
            body = inlined(module, module.function(name))
            histogram = dict(Counter([inner.name for inner in body.block]))
            yield CalleeSummary(f"{op.name} {part}", name, trips, histogram)


def _count_flops(made: Overview, op: Op, count: int) -> None:
    flops = work_of(op).flops * count
    if flops != 0:
        kind = (op.operands or op.results)[0].dtype.name
        made.flops[kind] = made.flops.get(kind, 0) + flops


def _exchanges(ops: Iterable[tuple[Op, int]]) -> list[CollectiveSummary]:
    counts: dict[tuple[str, str, str, Dim], int] = {}
    for op, times in ops:
        if OPS[op.name].collective:
            of = "replica_groups" if "replica_groups" in op.attrs else "source_target_pairs"
            groups = ",".join(f"[{','.join(map(str, group))}]" for group in op.attrs.groups(of))
            size = _bytes(op.results)
            key = (op.name, op.results[0].type.text, f"[{groups}]", size)
            counts[key] = counts.get(key, 0) + times
    return [
        CollectiveSummary(name, type_, groups, count, size, algorithm(size))
        for (name, type_, groups, size), count in counts.items()
    ]


def algorithm(size: Dim) -> str:
    """The algorithm of the runtime for a collective of ``size`` bytes within an instance.

    Source: the SDK's page on collectives within a node: mesh below 1 MB, RDH up to 56 MB, then
    KangaRing.
    """
    if not isinstance(size, int):
        return ""
    if size < 1_000_000:
        return "mesh"
    return "rdh" if size <= 56_000_000 else "kanga-ring"


def _layers(
    module: Module, layers: Mapping[str, Sequence[Op]], weights: Sequence[Value]
) -> list[LayerGroup]:
    """Group consecutive layers of equal work."""
    found: list[LayerGroup] = []
    unread = set(weights)
    for name, ops in layers.items():
        read = {value for op in ops for value in op.operands if value in unread}
        unread -= read
        work, size = run_work(module, ops), _bytes(read)
        last = found[-1] if found else None
        if last is not None and (last.ops, last.work, last.weights) == (len(ops), work, size):
            found[-1] = LayerGroup(last.first, name, last.count + 1, last.ops, last.work, size)
        else:
            found.append(LayerGroup(name, name, 1, len(ops), work, size))
    return found
