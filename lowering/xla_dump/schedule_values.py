"""Values of a scheduled HLO module, and the times between which each lives.

Times count the instructions of a module in one line: those of a loop's condition and body come
before the loop, those of branches before the conditional. This is how XLA's HloLiveRange counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from graphgen.errors import GraphgenError
from graphgen.ir.dtype import DTYPES
from graphgen.limits import OPS
from graphgen.lowering.hlo_proto.fields import (
    AliasField,
    InstructionField,
    LayoutField,
    MetadataField,
    ModuleField,
    ScheduleField,
)
from graphgen.lowering.hlo_proto.proto_module import HloComputation, HloModule, open_hlo
from graphgen.lowering.hlo_proto.shape import HloShape, read_shape
from graphgen.lowering.hlo_proto.wire import Message, Source

F = InstructionField
Path = tuple[int, ...]
# A pointer, of which a tuple has one for each of its elements.
POINTER = 8
# Ops that give what they are given.
_FORWARD = frozenset(("bitcast", "opt-barrier", "domain", "add-dependency"))
_IN_PLACE = frozenset(("dynamic-update-slice", "scatter"))
_MOST_DEPTH = 64
# Of one array; more fit into no memory.
_MOST_BYTES = 1 << 48


@dataclass(slots=True, eq=False)
class Instruction:
    """One instruction of the schedule."""

    message: Message
    name: str
    code: str
    shape: HloShape
    operands: tuple[int, ...]
    called: tuple[int, ...]
    computation: int
    is_root: bool
    time: int = -1
    span_end: int = 0
    users: list[Instruction] = field(default_factory=list["Instruction"])
    fused: dict[int, Instruction] = field(default_factory=dict[int, "Instruction"])

    @property
    def layer(self) -> str:
        """Its name in the program that was traced; empty without one."""
        metadata = self.message.message(F.METADATA)
        return metadata.text(MetadataField.OP_NAME) if metadata else ""


@dataclass(slots=True, eq=False)
class LiveValue:
    """The value at one place of an instruction's result.

    Attributes:
        made: the instruction.
        path: the place in its result.
        shape: of the array, or of the tuple.
        start: when it begins to live.
        end: the last time at which it is read.
        padding: bytes among its own that no element is in.
        lives_out: it is in the result of the program.
    """

    made: Instruction
    path: Path
    shape: HloShape
    nbytes: int
    padding: int
    start: int = 0
    end: int = 0
    lives_out: bool = False
    reads: list[Instruction] = field(default_factory=list[Instruction])
    places: list[tuple[Instruction, Path]] = field(default_factory=list[tuple[Instruction, Path]])

    @property
    def label(self) -> str:
        """``name{0}``, as XLA writes it."""
        place = f"{{{','.join(map(str, self.path))}}}" if self.path else ""
        return f"{self.made.name}{place}"


def array_bytes(shape: HloShape) -> tuple[int, int]:
    """Bytes of an array in memory, and how many of them its tiles add."""
    element = DTYPES.get(shape.element)
    if shape.is_tuple:
        return POINTER * len(shape.members), 0
    if element is None:
        return 0, 0
    layout = Message(shape.rest)
    bits = layout.integer(LayoutField.ELEMENT_BITS) or 8 * element.bytes
    dims = [max(size, 0) for size in shape.dims]
    plain = -(-math.prod(dims) * bits // 8)
    if not 0 <= plain <= _MOST_BYTES:
        raise GraphgenError("GG0801", f"{shape.text[:80]} has {plain} bytes")
    tiles = layout.messages(LayoutField.TILES)
    tile = tiles[0].integers(1) if tiles else ()
    if not tile or len(tile) > len(dims) or min(tile) < 1:
        return plain, 0
    order = shape.layout or tuple(reversed(range(len(dims))))
    sizes = [dims[place] for place in reversed(order)]
    for place, size in enumerate(tile, len(sizes) - len(tile)):
        sizes[place] = -(-sizes[place] // size) * size
    padded = -(-math.prod(sizes) * bits // 8)
    if padded > _MOST_BYTES:
        raise GraphgenError("GG0801", f"{shape.text[:80]} has {padded} bytes")
    return padded, padded - plain


class ScheduledModule:
    """A module whose instructions have times, and its values.

    Args:
        module: an HLO module; without a schedule the order of its instructions is taken for one.

    Attributes:
        scheduled: the module states its schedule.
        order: the instructions by time.
        values: the values in order of their instructions.
        groups: values that share one buffer by what the program says, by the number of the group.
        local: bytes of the values in computations of reductions and the like, one by one.
        donated: by the path of an output, the number of the parameter whose buffer it takes.
    """

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.computations = {item.id: item for item in module.computations}
        self._read: dict[int, list[Instruction]] = {}
        self._by_id: dict[int, Instruction] = {}
        self._orders = _schedules(module)
        self.scheduled = bool(self._orders)
        self.order: list[Instruction] = []
        self.values: list[LiveValue] = []
        self.local: list[LiveValue] = []
        self._flow: dict[int, dict[Path, LiveValue]] = {}
        self._same: dict[LiveValue, LiveValue] = {}
        self._shared: dict[LiveValue, LiveValue] = {}
        self._active: set[int] = set()
        self._most = max(OPS.most, 16 * sum(item.size for item in module.computations))
        self.donated = _donations(module)
        self._in_line: set[int] = set()
        self._enter(module.entry)
        self._run(module.entry)
        self._finish()

    def instructions(self, computation: HloComputation) -> list[Instruction]:
        """The instructions of a computation in the order of its schedule."""
        found = self._read.get(computation.id)
        if found is None:
            found = [_instruction(message, computation) for message in computation.instructions()]
            numbers = {item.message.integer(F.ID): item for item in found}
            self._by_id |= numbers
            stated = self._orders.get(computation.id, ())
            if stated and sorted(stated) == sorted(numbers):
                found = [numbers[number] for number in stated]
            for item in found:
                for number in item.operands:
                    if number in numbers:
                        numbers[number].users.append(item)
            self._read[computation.id] = found
        return found

    def root(self, computation: HloComputation) -> Instruction:
        """The instruction whose value is the result (GG0801)."""
        for item in self.instructions(computation):
            if item.is_root:
                return item
        raise GraphgenError("GG0801", f"%{computation.name} has no root")

    def callee(self, item: Instruction, place: int = 0) -> HloComputation:
        """A computation that an instruction calls (GG0801)."""
        if place >= len(item.called) or item.called[place] not in self.computations:
            raise GraphgenError("GG0801", f"{item.code} {item.name} calls nothing that is known")
        return self.computations[item.called[place]]

    def operand(self, item: Instruction, place: int) -> Instruction:
        """An operand of an instruction (GG0801)."""
        number = item.operands[place] if place < len(item.operands) else -1
        found = self._by_id.get(number)
        if found is None or number not in self._flow:
            raise GraphgenError("GG0801", f"{item.name} reads what no instruction before it gives")
        return found

    def _given(self, item: Instruction, place: int) -> dict[Path, LiveValue]:
        return self._flow[self.operand(item, place).message.integer(F.ID)]

    def _run(self, computation: HloComputation) -> Instruction:
        """Give times to the instructions of a computation, and follow their values."""
        if computation.id in self._active or len(self._active) > _MOST_DEPTH:
            raise GraphgenError("GG0801", f"%{computation.name} calls itself, or too deeply")
        self._active.add(computation.id)
        root = self.root(computation)
        for item in self.instructions(computation):
            flow = self._follow(item)
            item.time = len(self.order)
            if item.time >= self._most:
                what = f"a schedule of more than {self._most} instructions, calls included"
                raise GraphgenError("GG1102", what, help=f"--limits {OPS.name}=N raises this")
            self.order.append(item)
            self._flow[item.message.integer(F.ID)] = flow
            for path, value in flow.items():
                value.places.append((item, path))
        self._active.remove(computation.id)
        root.span_end = len(self.order)
        return root

    def _enter(self, computation: HloComputation) -> None:
        """Begin a computation: one that has run before has instructions of its own again."""
        if computation.id in self._in_line and computation.id not in self._active:
            del self._read[computation.id]
        self._in_line.add(computation.id)

    def _new(self, item: Instruction) -> dict[Path, LiveValue]:
        """Values of all places of a result."""
        return {path: self._value(item, path, shape) for path, shape in _places(item.shape)}

    def _value(self, item: Instruction, path: Path, shape: HloShape) -> LiveValue:
        nbytes, padding = array_bytes(shape)
        made = LiveValue(item, path, shape, nbytes, padding)
        self.values.append(made)
        return made

    def _follow(self, item: Instruction) -> dict[Path, LiveValue]:
        """The values that an instruction gives, by their place in its result."""
        code = item.code
        known = self._flow.get(item.message.integer(F.ID))
        if known is not None and code == "parameter":
            # A parameter of a computation whose caller has given its values.
            return known
        caller = {"while": self._while, "conditional": self._conditional, "call": self._call}.get(
            code
        )
        if caller is not None:
            return caller(item)
        self._use(item)
        if code == "tuple":
            return self._tuple(item)
        if code == "get-tuple-element":
            place = item.message.integer(F.TUPLE_INDEX)
            given = self._given(item, 0)
            return {path[1:]: v for path, v in given.items() if path[:1] == (place,)}
        if code in _FORWARD and item.operands:
            return dict(self._given(item, 0))
        flow = self._new(item)
        for path, place in self._in_place(item):
            operand = self._given(item, place).get(())
            if operand is not None and path in flow:
                self._share(flow[path], operand)
        return flow

    def _tuple(self, item: Instruction) -> dict[Path, LiveValue]:
        flow: dict[Path, LiveValue] = {(): self._value(item, (), item.shape)}
        for place in range(len(item.operands)):
            for path, value in self._given(item, place).items():
                flow[place, *path] = value
        return flow

    def _call(self, item: Instruction) -> dict[Path, LiveValue]:
        self._enter(self.callee(item))
        self._pass(item, self.callee(item), range(len(item.operands)))
        root = self._run(self.callee(item))
        self._use(item)
        return dict(self._flow[root.message.integer(F.ID)])

    def _in_place(self, item: Instruction) -> Iterator[tuple[Path, int]]:
        """Places of a result that are written into an operand, and the number of that."""
        if item.code in _IN_PLACE:
            count = len(item.operands) // 2 if item.code == "scatter" else 1
            for place in range(count):
                yield ((place,) if item.shape.is_tuple else ()), place
        elif item.code == "fusion":
            item.fused = self._parameters(self.callee(item))
            yield from self._fused_updates(item)
        for alias in item.message.messages(F.OUTPUT_OPERAND_ALIASING):
            if not alias.integers(3):
                yield alias.integers(1), alias.integer(2)

    def _fused_updates(self, item: Instruction) -> Iterator[tuple[Path, int]]:
        """Roots of a fusion that update one of its parameters in place."""
        inside = {i.message.integer(F.ID): i for i in self.instructions(self.callee(item))}
        root = self.root(self.callee(item))
        made = [inside[n] for n in root.operands if n in inside] if root.code == "tuple" else [root]
        for place, update in enumerate(made):
            update = _forwarded(update, inside)
            if update.code not in _IN_PLACE or not update.operands:
                continue
            target = _forwarded(inside[update.operands[0]], inside)
            if target.code == "parameter":
                number = target.message.integer(F.PARAMETER_NUMBER)
                yield ((place,) if root.code == "tuple" else ()), number

    def _use(self, item: Instruction) -> None:
        """Note what an instruction reads."""
        if item.code in ("tuple", "domain"):
            return
        top = item.code in ("get-tuple-element", "copy")
        for place in range(len(item.operands)):
            for path, value in self._given(item, place).items():
                if not top or not path:
                    value.reads.append(item)

    def _parameters(self, computation: HloComputation) -> dict[int, Instruction]:
        return {
            item.message.integer(F.PARAMETER_NUMBER): item
            for item in self.instructions(computation)
            if item.code == "parameter"
        }

    def _pass(self, item: Instruction, callee: HloComputation, places: Sequence[int]) -> None:
        """Give operands to the parameters of a computation, as they are."""
        parameters = self._parameters(callee)
        for number, place in enumerate(places):
            if number in parameters:
                given = self._given(item, place)
                self._flow[parameters[number].message.integer(F.ID)] = dict(given)

    def _while(self, item: Instruction) -> dict[Path, LiveValue]:
        given = self._given(item, 0)
        # XLA keeps the body's id first.
        body, condition = self.callee(item, 0), self.callee(item, 1)
        if _is_predicate(self.root(body)):
            body, condition = condition, body
        for computation in (condition, body):
            self._enter(computation)
        heads = [self._state(computation) for computation in (condition, body)]
        flows = [self._flow[head.message.integer(F.ID)] for head in heads]
        self._run(condition)
        for value in (*given.values(), *flows[0].values()):
            value.reads.append(heads[1])
        made = self._flow[self._run(body).message.integer(F.ID)]
        out: dict[Path, LiveValue] = {}
        for path, shape in _places(item.shape):
            parts = [flow[path] for flow in (given, *flows, made) if path in flow]
            if len(parts) != 4:
                raise GraphgenError("GG0801", f"the state of the loop {item.name} has other types")
            first, tested, inside, result = parts
            if path and self.value(result) is inside:
                # The body hands it on as it is: all of these are one value.
                self._merge(tested, first)
                self._merge(inside, first)
                out[path] = first
                continue
            out[path] = self._value(item, path, shape)
            for value in (tested, inside, result, out[path]):
                self._share(value, first)
        return out

    def _state(self, computation: HloComputation) -> Instruction:
        """The parameter of a computation of a loop, with values of its own (GG0801)."""
        parameter = self._parameters(computation).get(0)
        if parameter is None:
            raise GraphgenError("GG0801", f"%{computation.name} of a loop takes no state")
        self._flow[parameter.message.integer(F.ID)] = self._new(parameter)
        return parameter

    def _conditional(self, item: Instruction) -> dict[Path, LiveValue]:
        results: list[dict[Path, LiveValue]] = []
        for place in range(len(item.called)):
            callee = self.callee(item, place)
            self._enter(callee)
            self._pass(item, callee, [place + 1] if place + 1 < len(item.operands) else [])
            results.append(self._flow[self._run(callee).message.integer(F.ID)])
        self._use(item)
        flow = self._new(item)
        for path, value in flow.items():
            for result in results:
                if path in result:
                    self._share(value, result[path])
        return flow

    def value(self, value: LiveValue) -> LiveValue:
        """The value that this one stands for."""
        while (other := self._same.get(value)) is not None:
            value = other
        return value

    def _merge(self, value: LiveValue, into: LiveValue) -> None:
        target, value = self.value(into), self.value(value)
        if value is not target:
            self._same[value] = target
            target.reads += value.reads
            target.places += value.places

    def buffer(self, value: LiveValue) -> LiveValue:
        """The value that stands for the buffer of this one."""
        value = self.value(value)
        while (other := self._shared.get(value)) is not None:
            value = self.value(other)
        return value

    def _share(self, value: LiveValue, other: LiveValue) -> None:
        one, two = self.buffer(value), self.buffer(other)
        if one is not two:
            self._shared[one] = two

    def _finish(self) -> None:
        """Donate buffers, and compute when each value begins and ends."""
        root = self.root(self.module.entry)
        outputs = self._flow[root.message.integer(F.ID)]
        parameters = self._parameters(self.module.entry)
        self.outputs = {path: self.value(value) for path, value in outputs.items()}
        taken: set[LiveValue] = set()
        for path, (number, inside) in self.donated.items():
            parameter = parameters.get(number)
            if parameter is None or path not in self.outputs:
                continue
            given = self._flow[parameter.message.integer(F.ID)].get(inside)
            if given is not None:
                taken.add(self.value(given))
                self._share(self.outputs[path], given)
        self.values = [value for value in self.values if value not in self._same]
        last = len(self.order)
        for value in self.outputs.values():
            value.lives_out = True
        for value in self.values:
            self._times(value, taken, last)
        self._part()
        self._local()

    def _times(self, value: LiveValue, taken: set[LiveValue], last: int) -> None:
        item = value.made
        value.start = item.time
        ends = [item.time, *[read.time for read in value.reads]]
        for place, _ in value.places:
            if place.is_root:
                ends.append(place.span_end)
        value.end = max(ends)
        if item.code == "parameter" and item.computation == self.module.entry.id:
            value.start = 0
            if value not in taken:
                value.end = last
        if value.lives_out:
            value.end = last

    def groups(self) -> dict[LiveValue, list[LiveValue]]:
        """The values of each buffer."""
        found: dict[LiveValue, list[LiveValue]] = {}
        for value in self.values:
            found.setdefault(self.buffer(value), []).append(value)
        return found

    def _part(self) -> None:
        """End each value of a buffer where the next one begins."""
        for group in self.groups().values():
            ordered = sorted(group, key=lambda value: (value.start, value.end))
            for one, other in pairwise(ordered):
                if one.start < other.start < one.end:
                    one.end = other.start

    def _local(self) -> None:
        """Values of the computations that are called for each element."""
        fused = {
            number
            for items in self._read.values()
            for item in items
            if item.code == "fusion"
            for number in item.called
        }
        work = [item for items in [*self._read.values()] for item in items]
        done: set[int] = set()
        while work:
            item = work.pop()
            for number in item.called:
                if number in self._in_line or number in done or number not in self.computations:
                    continue
                done.add(number)
                inside = self.instructions(self.computations[number])
                work += inside
                if number in fused or item.code == "fusion":
                    continue
                for each in inside:
                    for path, shape in _places(each.shape):
                        if each.code not in ("get-tuple-element", *_FORWARD):
                            nbytes, padding = array_bytes(shape)
                            self.local.append(LiveValue(each, path, shape, nbytes, padding))


def _forwarded(item: Instruction, inside: Mapping[int, Instruction]) -> Instruction:
    """The instruction whose value this one gives on, among those of a computation."""
    for _ in inside:
        if item.code not in _FORWARD or not item.operands:
            break
        item = inside[item.operands[0]]
    return item


def _is_predicate(item: Instruction) -> bool:
    return item.shape.element == "pred" and not item.shape.dims


def _places(shape: HloShape, path: Path = ()) -> Iterator[tuple[Path, HloShape]]:
    """Every place of a result, the tuples included."""
    yield path, shape
    for number, member in enumerate(shape.members):
        yield from _places(member, (*path, number))


def _instruction(message: Message, computation: HloComputation) -> Instruction:
    return Instruction(
        message,
        message.text(F.NAME),
        message.text(F.OPCODE),
        read_shape(message.data(F.SHAPE)),
        message.integers(F.OPERAND_IDS),
        message.integers(F.CALLED_IDS),
        computation.id,
        message.integer(F.ID) == computation.root_id,
    )


def states_schedule(source: Source) -> bool:
    """True for an HLO module that states the order of its instructions."""
    return bool(_schedules(open_hlo(source)))


def _schedules(module: HloModule) -> Mapping[int, tuple[int, ...]]:
    """The ids of instructions in order, by computation; empty without a schedule."""
    schedule = module.message.message(ModuleField.SCHEDULE)
    found: dict[int, tuple[int, ...]] = {}
    for row in schedule.messages(ScheduleField.SEQUENCES) if schedule else []:
        sequence = row.message(ScheduleField.SEQUENCE)
        ids = sequence.integers(ScheduleField.INSTRUCTION_IDS) if sequence else ()
        found[row.integer(ScheduleField.COMPUTATION)] = ids
    return found


def _donations(module: HloModule) -> dict[Path, tuple[int, Path]]:
    """The parameter whose buffer an output takes, and the place in it, by the output's place."""
    table = module.message.message(ModuleField.ALIAS)
    found: dict[Path, tuple[int, Path]] = {}
    for row in table.messages(AliasField.ENTRIES) if table else []:
        parameter = row.integer(AliasField.PARAMETER), row.integers(AliasField.PARAMETER_INDEX)
        found[row.integers(AliasField.OUTPUT_INDEX)] = parameter
    return found
