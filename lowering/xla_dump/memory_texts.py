"""Read the files of XLA about memory: allocations, live ranges, totals; text and protobuf."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.lowering.hlo_proto.fields import (
    ComputationField,
    InstructionField,
    ModuleField,
    WrapperField,
)
from graphgen.lowering.hlo_proto.proto_module import is_module
from graphgen.lowering.hlo_proto.wire import Message, Source
from graphgen.numbers import whole_number

PARAMETER, OUTPUT, CONSTANT = "parameter", "output", "constant"
TEMP, THREAD_LOCAL = "temp", "thread-local"


@dataclass(frozen=True, slots=True)
class AllocatedValue:
    """A value in an allocation: its name, bytes, offset, and shape where the file states it."""

    name: str
    nbytes: int
    offset: int
    shape: str


@dataclass(frozen=True, slots=True)
class Allocation:
    """One allocation that XLA made.

    Attributes:
        number: as XLA counts them.
        nbytes: its size.
        kind: ``parameter``, ``output``, ``constant``, ``temp`` or ``thread-local``.
        parameter: number of the parameter, -1 for none.
        lives_out: the program hands it out.
        values: what is in it.
    """

    number: int
    nbytes: int
    kind: str
    parameter: int
    lives_out: bool
    values: tuple[AllocatedValue, ...]

    def to_json(self) -> dict[str, Json]:
        """The attributes by name."""
        return {
            "number": self.number,
            "bytes": self.nbytes,
            "kind": self.kind,
            "parameter": self.parameter if self.parameter >= 0 else None,
            "lives_out": self.lives_out,
            "values": [
                {"name": v.name, "bytes": v.nbytes, "offset": v.offset, "shape": v.shape}
                for v in self.values
            ],
        }


@dataclass(frozen=True, slots=True)
class XlaPeak:
    """The instant with the most live bytes, as XLA's live ranges have it.

    Attributes:
        time: number of the instruction.
        instruction: its name, empty where the file does not list it.
        nbytes: live at once.
        buffers: name and bytes of each, the largest first.
        ranges: first and last time of each value.
    """

    time: int
    instruction: str
    nbytes: int
    buffers: tuple[tuple[str, int], ...]
    ranges: tuple[tuple[str, int, int], ...]


_ALLOCATION = re.compile(r"allocation (\d+): size (\d+)(.*)")
_VALUE = re.compile(r"\s*value: <\d+ (.+?) @\d+> \(size=(\d+),offset=(\d+)\): (.*)")
_PARAMETER = re.compile(r", parameter (\d+)")
_TOTAL = re.compile(r"^Total bytes(?: used)?: (\d+)", re.MULTILINE)
_RANGE = re.compile(r"\s{4}(\S.*?):(\d+)-(\d+)")
_STEP = re.compile(r"\s{4}(\d+):(\S+)")
_LIVE = re.compile(r"\s{4}(\S.*?): (\d+) bytes")
_PEAK = re.compile(r"\s*Live ranges at (\d+) \(peak\):")


def read_allocations(text: str, name: str = "<text>") -> list[Allocation]:
    """Read the text of a buffer assignment.

    Raises:
        GraphgenError: GG0201 for a line that is neither an allocation nor a value in one.
    """
    found: list[Allocation] = []
    values: list[AllocatedValue] = []
    head: re.Match[str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        value = _VALUE.fullmatch(line)
        if value is not None and head is not None:
            label, nbytes, offset, shape = value.groups()
            sizes = _number(nbytes, name, number), _number(offset, name, number)
            values.append(AllocatedValue(label, *sizes, shape))
        elif match := _ALLOCATION.fullmatch(line):
            if head is not None:
                found.append(_allocation(head, values, name, number))
            head, values = match, []
        elif line.strip() and line.strip() != "BufferAssignment:" and not _is_rest(line):
            what = f"this is not an allocation: {line.strip()[:60]}"
            raise GraphgenError("GG0201", what, where=f"{name}:{number}")
    if head is not None:
        found.append(_allocation(head, values, name, 0))
    return found


def _is_rest(line: str) -> bool:
    """Further facts that XLA writes after the allocations."""
    return line.startswith((" ", "Total", "Used", "HloLiveRange", "Memory")) or line.endswith(":")


def _number(text: str, name: str, line: int) -> int:
    try:
        return whole_number(text)
    except ValueError as error:
        raise GraphgenError("GG0201", str(error), where=f"{name}:{line}") from error


def _allocation(
    match: re.Match[str], values: list[AllocatedValue], name: str, line: int
) -> Allocation:
    number, nbytes, rest = match.groups()
    parameter = _PARAMETER.search(rest)
    words = [word.strip(" :") for word in rest.split(",")]
    if parameter:
        kind = PARAMETER
    elif "constant" in words:
        kind = CONSTANT
    elif "thread-local" in words:
        kind = THREAD_LOCAL
    else:
        kind = OUTPUT if "maybe-live-out" in words else TEMP
    return Allocation(
        _number(number, name, line),
        _number(nbytes, name, line),
        kind,
        _number(parameter[1], name, line) if parameter else -1,
        "maybe-live-out" in words,
        tuple(values),
    )


def total_bytes(text: str) -> int | None:
    """The total that a usage report or a list of used values states; ``None`` without one.

    Raises:
        GraphgenError: GG0201 for a number that is too large.
    """
    match = _TOTAL.search(text)
    return _number(match[1], "<text>", text.count("\n", 0, match.start()) + 1) if match else None


def read_live_ranges(text: str, name: str = "<text>") -> XlaPeak:
    """Read the text of live ranges (GG0201 without a peak)."""
    steps: dict[int, str] = {}
    ranges: list[tuple[str, int, int]] = []
    buffers: list[tuple[str, int]] = []
    time = -1
    try:
        for line in text.splitlines():
            if match := _PEAK.fullmatch(line):
                time = whole_number(match[1])
            elif time >= 0 and (match := _LIVE.match(line)):
                buffers.append((_plain(match[1]), whole_number(match[2])))
            elif match := _RANGE.fullmatch(line):
                ranges.append((_plain(match[1]), whole_number(match[2]), whole_number(match[3])))
            elif match := _STEP.fullmatch(line):
                steps[whole_number(match[1])] = match[2]
            elif time >= 0 and "breakdown" in line:
                break
    except ValueError as error:
        raise GraphgenError("GG0201", str(error), where=name) from error
    if time < 0:
        raise GraphgenError("GG0201", "these live ranges state no peak", where=name)
    total = sum(nbytes for _, nbytes in buffers)
    return XlaPeak(time, steps.get(time, ""), total, tuple(buffers), tuple(ranges))


def _plain(label: str) -> str:
    """``name`` of ``name{}``."""
    return label.removesuffix("{}")


class _AssignmentField:
    """BufferAssignmentProto, its logical buffers and its allocations."""

    BUFFERS, ALLOCATIONS = 1, 3
    ID, SIZE, DEFINED = 1, 2, 3
    PATH, INSTRUCTION = 3, 4
    NUMBER, THREAD_LOCAL, IS_PARAMETER, PARAMETER, LIVES_OUT = 1, 3, 5, 6, 7
    ASSIGNED, CONSTANT = 9, 12
    BUFFER, OFFSET, ASSIGNED_SIZE = 1, 2, 3


def proto_allocations(source: Source) -> list[Allocation]:
    """The allocations beside the module of an HloProto; empty where it has none (GG0801)."""
    whole = Message(source)
    if is_module(whole):
        return []
    module, assignment = (
        whole.message(number) if number in whole.fields else None
        for number in (WrapperField.MODULE, WrapperField.BUFFER_ASSIGNMENT)
    )
    if module is None or assignment is None:
        return []
    names = {
        item.integer(InstructionField.ID): item.text(InstructionField.NAME)
        for computation in module.messages(ModuleField.COMPUTATIONS)
        for item in computation.messages(ComputationField.INSTRUCTIONS)
    }
    f = _AssignmentField
    labels: dict[int, str] = {}
    for buffer in assignment.messages(f.BUFFERS):
        place = buffer.message(f.DEFINED) or Message(b"")
        path = ",".join(map(str, place.integers(f.PATH)))
        name = names.get(place.integer(f.INSTRUCTION), "?")
        labels[buffer.integer(f.ID)] = f"{name}{{{path}}}" if path else name
    return [*_proto_allocations(assignment, labels)]


def _proto_allocations(assignment: Message, labels: dict[int, str]) -> Iterator[Allocation]:
    f = _AssignmentField
    for item in assignment.messages(f.ALLOCATIONS):
        values = tuple(
            [
                AllocatedValue(
                    labels.get(each.integer(f.BUFFER), "?"),
                    each.integer(f.ASSIGNED_SIZE),
                    each.integer(f.OFFSET),
                    "",
                )
                for each in item.messages(f.ASSIGNED)
            ]
        )
        lives_out = item.boolean(f.LIVES_OUT)
        parameter = item.integer(f.PARAMETER) if item.boolean(f.IS_PARAMETER) else -1
        kind = OUTPUT if lives_out else TEMP
        if parameter >= 0:
            kind = PARAMETER
        elif item.boolean(f.CONSTANT):
            kind = CONSTANT
        elif item.boolean(f.THREAD_LOCAL):
            kind = THREAD_LOCAL
        nbytes = max(item.integer(f.SIZE), 0)
        yield Allocation(item.integer(f.NUMBER), nbytes, kind, parameter, lives_out, values)


class _ReportField:
    """MemoryUsageReportProto: per memory space its bytes and its largest allocations."""

    SPACES = 1
    BYTES, COLOR = 1, 2


def report_bytes(source: Source) -> int:
    """The bytes that a usage report as a protobuf states, of all memory spaces (GG0801)."""
    spaces = Message(source).messages(_ReportField.SPACES)
    return sum([max(space.integer(_ReportField.BYTES), 0) for space in spaces])
