"""What is asked of a module first: what goes in and out, how much work, which collectives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from graphgen.analysis.layers import layers_of
from graphgen.analysis.liveness import Peak, peak_memory
from graphgen.analysis.work import Work, size_in_bytes, total, work_of
from graphgen.ir import RANK, Dim, Function, Module, Op, Role, Value
from graphgen.ops import OPS

# Below this a foreign program's argument is taken for an input, not for a weight.
_WEIGHT_BYTES = 1 << 12
# A weight reaches the product or the lookup that reads it through these.
_CARRIES = frozenset(("convert", "reshape", "transpose", "broadcast_in_dim", "slice", "copy"))
_READS_WEIGHTS = frozenset(("dot_general", "gather", "convolution", "embedding", "multiply", "add"))


@dataclass(frozen=True, slots=True)
class Part:
    """Arguments of one kind.

    Attributes:
        kind: ``inputs``, ``weights``, ``caches``.
        values: the arguments.
        bytes: of all of them, on one rank.
        guessed: whether nothing in the file says so.
    """

    kind: str
    values: tuple[Value, ...]
    bytes: Dim
    guessed: bool = False


@dataclass(frozen=True, slots=True)
class Exchange:
    """Collectives of one kind, type and grouping.

    Attributes:
        op: the collective.
        type: of what each of them gives.
        groups: the ranks that talk to each other.
        count: how many there are.
        bytes: what one of them gives to every rank.
        algorithm: how the runtime does one of this size: ``mesh``, ``rdh`` or ``kanga-ring``.
    """

    op: str
    type: str
    groups: str
    count: int
    bytes: Dim
    algorithm: str


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers that do the same work.

    Attributes:
        first, last: their names.
        count: how many.
        ops: in one of them.
        work: of one of them.
    """

    first: str
    last: str
    count: int
    ops: int
    work: Work


@dataclass(slots=True)
class Overview:
    """One program.

    Attributes:
        function: the program.
        parts: what its arguments are.
        aliases: outputs that are kept where an argument was, as ``(output, argument)``.
        histogram: how many of each op.
        flops: by element type of the operands.
        work: of all ops.
        exchanges: collectives.
        calls: targets of custom calls, and opcodes nothing is known of, with counts.
        layers: what repeats.
        largest: the largest values, with the op that makes them or ``None`` for an argument.
        peak: memory at the worst moment; ``None`` with unbound symbols.
    """

    function: Function
    parts: list[Part]
    aliases: list[tuple[str, str]]
    histogram: dict[str, int] = field(default_factory=dict[str, int])
    flops: dict[str, Dim] = field(default_factory=dict[str, Dim])
    work: Work = field(default_factory=Work)
    exchanges: list[Exchange] = field(default_factory=list[Exchange])
    calls: dict[str, int] = field(default_factory=dict[str, int])
    layers: list[Layers] = field(default_factory=list[Layers])
    largest: list[Value] = field(default_factory=list[Value])
    peak: Peak | None = None


def overview(module: Module, function: Function, largest: int = 10) -> Overview:
    """Look at one program of a module.

    Args:
        module: for its interface.
        function: the program.
        largest: how many of the largest values to keep.
    """
    states = {row.name for row in module.entries(Role.STATE)}
    made = Overview(
        function,
        _parts(module, function),
        [(name, name) for name, _ in function.outputs if name in states],
    )
    values = [*function.args]
    for op in function.block:
        made.histogram[op.name] = made.histogram.get(op.name, 0) + 1
        _count_flops(made, op)
        _count_call(made, op)
        values += op.results
    made.work = total(function.block)
    made.exchanges = _exchanges(function.block)
    made.layers = _layers(function)
    if all(value.type.static for value in values):
        made.largest = sorted(values, key=lambda value: -value.type.nbytes)[:largest]
        made.peak = peak_memory(module, function)
    return made


def _parts(module: Module, function: Function) -> list[Part]:
    by_kind: dict[str, list[Value]] = {"inputs": [], "weights": [], "caches": []}
    guessed = False
    for value in function.args:
        kind = _kind(module, value)
        if not kind:
            kind, guessed = _guess(value), True
        by_kind[kind].append(value)
    return [
        Part(kind, tuple(values), _bytes(values), guessed and kind != "caches")
        for kind, values in by_kind.items()
    ]


def _kind(module: Module, value: Value) -> str:
    if value.name == RANK and "format" not in module.meta:
        return "inputs"
    row = module.interface.get(value.name or "")
    if row is None or "format" in module.meta:
        # A dump's interface tells what is kept from call to call, and no more.
        return "caches" if row is not None and row.role is Role.STATE else ""
    if row.role is Role.INPUT:
        return "inputs"
    return "caches" if row.role is Role.STATE else "weights"


def _guess(value: Value) -> str:
    """A large float that a product or a lookup reads as it came is a weight."""
    if not value.dtype.is_float or not value.type.static or value.type.nbytes < _WEIGHT_BYTES:
        return "inputs"
    work, seen = [value], {value}
    while work:
        for user in work.pop().users:
            if user.name in _READS_WEIGHTS:
                return "weights"
            fresh = [r for r in user.results if user.name in _CARRIES and r not in seen]
            seen.update(fresh)
            work += fresh
    return "inputs"


def _bytes(values: Iterable[Value]) -> Dim:
    together: Dim = 0
    for value in values:
        together += size_in_bytes(value.type)
    return together


def _count_flops(made: Overview, op: Op) -> None:
    flops = work_of(op).flops
    if flops != 0:
        kind = (op.operands or op.results)[0].dtype.name
        made.flops[kind] = made.flops.get(kind, 0) + flops


def _count_call(made: Overview, op: Op) -> None:
    for key in ("target", "opcode"):
        if key in op.attrs:
            name = str(op.attrs[key])
            made.calls[name] = made.calls.get(name, 0) + 1


def _exchanges(ops: Iterable[Op]) -> list[Exchange]:
    counts: dict[tuple[str, str, str, Dim], int] = {}
    for op in ops:
        if OPS[op.name].collective:
            of = "replica_groups" if "replica_groups" in op.attrs else "source_target_pairs"
            groups = ",".join(f"[{','.join(map(str, group))}]" for group in op.attrs.groups(of))
            size = _bytes(op.results)
            key = (op.name, op.results[0].type.text, f"[{groups}]", size)
            counts[key] = counts.get(key, 0) + 1
    return [
        Exchange(name, type_, groups, count, size, algorithm(size))
        for (name, type_, groups, size), count in counts.items()
    ]


def algorithm(size: Dim) -> str:
    """How the runtime does a collective of this many bytes inside an instance.

    Source: the SDK's page on collectives within a node: mesh below 1 MB, RDH up to 56 MB, then
    KangaRing.
    """
    if not isinstance(size, int):
        return ""
    if size < 1_000_000:
        return "mesh"
    return "rdh" if size <= 56_000_000 else "kanga-ring"


def _layers(function: Function) -> list[Layers]:
    """Neighboring layers of the same work, as one."""
    found: list[Layers] = []
    for name, ops in layers_of(function).items():
        work = total(ops)
        last = found[-1] if found else None
        if last is not None and (last.ops, last.work) == (len(ops), work):
            found[-1] = Layers(last.first, name, last.count + 1, last.ops, last.work)
        else:
            found.append(Layers(name, name, 1, len(ops), work))
    return found
