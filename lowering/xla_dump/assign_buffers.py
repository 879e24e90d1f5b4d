"""Assign the values of a schedule to buffers, as XLA's compiler for the CPU does.

A donated parameter's buffer is used again, an elementwise op writes over an operand that dies, and
what remains is packed into one buffer: large values first, each into the smallest gap that is free
while it lives. Sources: XLA's ``BufferAssigner``, ``HloDataflowAnalysis`` and ``HeapSimulator``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from graphgen.lowering.hlo_proto.fields import InstructionField
from graphgen.lowering.xla_dump.memory_texts import (
    CONSTANT,
    OUTPUT,
    PARAMETER,
    TEMP,
    THREAD_LOCAL,
)
from graphgen.lowering.xla_dump.schedule_values import Instruction, LiveValue, ScheduledModule
from graphgen.ops import OPS, Trait

F = InstructionField
ALIGNMENT = 64


@dataclass(slots=True)
class Placed:
    """A value in an allocation, at an offset."""

    value: LiveValue
    offset: int


@dataclass(slots=True)
class AssignedBuffer:
    """One allocation.

    Attributes:
        kind: ``parameter``, ``output``, ``constant``, ``temp`` or ``thread-local``.
        nbytes: its size.
        values: what is in it.
        parameter: number of the parameter, -1 for none.
        lives_out: its last value is an output of the program.
    """

    kind: str
    nbytes: int
    values: list[Placed] = field(default_factory=list[Placed])
    parameter: int = -1
    lives_out: bool = False


def assign_buffers(module: ScheduledModule) -> list[AssignedBuffer]:
    """Assign every value of a module to an allocation."""
    groups = [group for group in module.groups().values() if group[0].nbytes or _size(group)]
    ordered = sorted(
        enumerate(groups), key=lambda item: (-_size(item[1]), not _lives_out(item[1]), item[0])
    )
    made: list[AssignedBuffer] = []
    # Those that may hold further values beside their own, the newest first.
    shared: list[tuple[AssignedBuffer, Lives]] = []
    temps: list[list[LiveValue]] = []
    for _, group in ordered:
        kind, parameter = buffer_kind(module, group)
        # Pointers of tuples do not take a place that something else had.
        if kind in (TEMP, OUTPUT) and not group[0].shape.is_tuple:
            found = next((pair for pair in reversed(shared) if _fits(*pair, group)), None)
            if found is not None:
                buffer, lives = found
                buffer.values += [Placed(value, 0) for value in group]
                buffer.lives_out = buffer.lives_out or kind == OUTPUT
                lives.add(group)
                continue
        if kind == TEMP:
            temps.append(group)
            continue
        placed = [Placed(value, 0) for value in group]
        made.append(AssignedBuffer(kind, _size(group), placed, parameter, _lives_out(group)))
        readonly = kind == CONSTANT or (kind == PARAMETER and not _lives_out(group))
        if not readonly and not group[0].shape.is_tuple:
            shared.append((made[-1], Lives(group)))
    if temps:
        made.append(_packed(temps))
    local = [v for v in module.local if v.nbytes]
    return [
        *made,
        *[
            AssignedBuffer(
                CONSTANT if v.made.code == "constant" else THREAD_LOCAL, v.nbytes, [Placed(v, 0)]
            )
            for v in local
        ],
    ]


def _size(group: Sequence[LiveValue]) -> int:
    return max([value.nbytes for value in group])


def _lives_out(group: Sequence[LiveValue]) -> bool:
    return any(value.lives_out for value in group)


def buffer_kind(module: ScheduledModule, group: Sequence[LiveValue]) -> tuple[str, int]:
    """The kind of a buffer, and the number of its parameter."""
    entry = module.module.entry.id
    for value in group:
        item = value.made
        if item.code == "parameter" and item.computation == entry:
            return PARAMETER, item.message.integer(F.PARAMETER_NUMBER)
        if item.code == "constant":
            return CONSTANT, -1
    return (OUTPUT if _lives_out(group) else TEMP), -1


class Lives:
    """Values by the times in which they live.

    A value that lives for 2**n to 2**(n+1) - 1 steps is in level n, in the bucket of 2**n times
    that holds its first one, so that a search reads few values that live at other times.
    """

    def __init__(self, values: Iterable[LiveValue] = ()) -> None:
        self._levels: dict[int, dict[int, list[LiveValue]]] = {}
        self.add(values)

    def add(self, values: Iterable[LiveValue]) -> None:
        """Add values."""
        for value in values:
            level = (value.end - value.start + 1).bit_length() - 1
            buckets = self._levels.setdefault(level, {})
            buckets.setdefault(value.start >> level, []).append(value)

    def meeting(self, other: LiveValue) -> Iterator[LiveValue]:
        """The values that live at some time at which ``other`` does."""
        for level, buckets in self._levels.items():
            # A value ends in its bucket or in one of the next two.
            numbers: Iterable[int] = range((other.start >> level) - 2, (other.end >> level) + 1)
            if other.end - other.start >> level > len(buckets):
                numbers = tuple(buckets)
            for number in numbers:
                for value in buckets.get(number, ()):
                    if value.start <= other.end and other.start <= value.end:
                        yield value


def _fits(buffer: AssignedBuffer, lives: Lives, group: Sequence[LiveValue]) -> bool:
    """A buffer may hold further values beside its own."""
    size = _size(group)
    if size > buffer.nbytes or (_lives_out(group) and size != buffer.nbytes):
        return False
    return not any(_interferes(placed, value) for value in group for placed in lives.meeting(value))


def _interferes(one: LiveValue, other: LiveValue) -> bool:
    if one.start > other.end or other.start > one.end:
        return False
    if one.end == other.start:
        return other.made.code == "copy" or not may_share(one, other)
    if other.end == one.start:
        return one.made.code == "copy" or not may_share(other, one)
    return True


def may_share(operand: LiveValue, user: LiveValue) -> bool:
    """The instruction of ``user`` may write its result over ``operand``, which dies there."""
    item = user.made
    numbers = [n for n, (i, path) in _operands(item, operand) if not path or i.shape.is_tuple]
    if not numbers or (operand.shape.element, operand.shape.dims, operand.shape.layout) != (
        user.shape.element,
        user.shape.dims,
        user.shape.layout,
    ):
        return False
    if item.code == "fusion":
        return all(_flows_elementwise(item, number) for number in numbers)
    if item.code == "sort":
        alone = {id(place) for read in operand.reads for place in (read,)} == {id(item)}
        return alone and (len(item.operands) == 1 or (*user.path,) == (numbers[0],))
    if item.code in ("dynamic-update-slice", "scatter", "triangular-solve"):
        return numbers == [0]
    return _is_elementwise(item)


def _operands(
    item: Instruction, value: LiveValue
) -> list[tuple[int, tuple[Instruction, tuple[int, ...]]]]:
    """The operands of an instruction in which a value is."""
    ids = {place.message.integer(F.ID): (place, path) for place, path in value.places}
    return [(n, ids[number]) for n, number in enumerate(item.operands) if number in ids]


_ELEMENTWISE = frozenset(
    name.replace("_", "-")
    for name, op in OPS.items()
    if Trait.ELEMENTWISE in op.traits and not op.composite
) | {
    *("abs", "copy", "convert", "clamp", "compare", "select", "complex", "real", "imag", "power"),
    *("reduce-precision", "map", "is-finite", "not", "round-nearest-afz", "round-nearest-even"),
    *("popcnt", "count-leading-zeros", "atan2", "stochastic-convert", "erf", "bitcast-convert"),
    *("exponential-minus-one", "log-plus-one", "shift-left", "shift-right-arithmetic"),
    *("shift-right-logical", "convert", "cosine", "sine", "tan"),
}


def _is_elementwise(item: Instruction) -> bool:
    return item.code in _ELEMENTWISE


def _flows_elementwise(item: Instruction, number: int) -> bool:
    """A parameter of a fusion flows into its results by elementwise ops alone."""
    fused = item.fused
    start = fused.get(number)
    if start is None:
        return False
    work, seen = [start], {id(start)}
    while work:
        for user in work.pop().users:
            if not (_is_elementwise(user) or user.code in ("tuple", "bitcast")):
                return False
            if user.code == "bitcast" and user.shape.dims != start.shape.dims:
                return False
            if user.code != "tuple" and user.shape.dims != start.shape.dims:
                return False
            if id(user) not in seen:
                seen.add(id(user))
                work.append(user)
    return True


def _packed(groups: Sequence[Sequence[LiveValue]]) -> AssignedBuffer:
    """Pack buffers into one, by size and by time of life; the smaller result."""
    joined = _joined(groups)
    by_size = sorted(joined, key=lambda g: (-_size(g), -_span(g), min(v.start for v in g)))
    by_life = sorted(joined, key=lambda g: (-_span(g), -_size(g), min(v.start for v in g)))
    found = [_placed(order) for order in (by_size, by_life)]
    nbytes, placed = min(found, key=lambda item: item[0])
    return AssignedBuffer(TEMP, nbytes, placed)


def _span(group: Sequence[LiveValue]) -> int:
    return max([value.end for value in group]) - min([value.start for value in group])


def _joined(groups: Sequence[Sequence[LiveValue]]) -> list[list[LiveValue]]:
    """Join a buffer with that of an operand that dies where it begins and may be written over."""
    lists = [[*group] for group in groups]
    whole = {id(value): group for group in lists for value in group}
    # Buffers of one size are joined.
    sizes = {id(group): _size(group) for group in lists}
    lives: dict[int, Lives] = {}
    ending: dict[int, list[LiveValue]] = {}
    for group in groups:
        for value in group:
            ending.setdefault(value.end, []).append(value)
    order = sorted([v for g in groups for v in g], key=lambda v: v.start)
    for value in order:
        if value.made.code in ("parameter", "while", "conditional", "copy"):
            continue
        mine = whole[id(value)]
        for dying in ending.get(value.start, ()):
            theirs = whole[id(dying)]
            free = mine is not theirs and len(mine) == 1 and sizes[id(mine)] == sizes[id(theirs)]
            if not free or not may_share(dying, value):
                continue
            if id(theirs) not in lives:
                lives[id(theirs)] = Lives(theirs)
            if all(other is dying for other in lives[id(theirs)].meeting(value)):
                theirs += mine
                lives[id(theirs)].add(mine)
                whole[id(value)] = theirs
                break
    return list({id(group): group for group in whole.values()}.values())


def _placed(order: Sequence[Sequence[LiveValue]]) -> tuple[int, list[Placed]]:
    """Offsets of buffers in this order, each in the smallest gap that holds it."""
    lives, offsets, limits = Lives(), dict[int, int](), dict[int, int]()
    total = 0
    placed: list[Placed] = []
    for group in order:
        size = _size(group)
        busy = {id(other) for value in group for other in lives.meeting(value)}
        offset = _gap([(offsets[key], limits[key]) for key in busy], size)
        lives.add(group)
        for value in group:
            offsets[id(value)], limits[id(value)] = offset, offset + size
            placed.append(Placed(value, offset))
        total = max(total, offset + size)
    return total, placed


def _gap(ranges: Sequence[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap of ``size`` bytes between these ranges."""
    best: tuple[int, int] | None = None
    begin = 0
    for offset, limit in sorted(ranges):
        gap = offset - begin
        if gap >= size and (best is None or gap < best[0]):
            best = gap, begin
        begin = max(begin, -(-limit // ALIGNMENT) * ALIGNMENT)
    return best[1] if best is not None else begin
