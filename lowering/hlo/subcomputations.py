"""Computations of opaque instructions, packed in an attribute and unpacked.

Packing renumbers computations and instructions from 1, removes names and locations, and writes out
what shapes leave to a default: equal computations have equal texts, whatever their file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from graphgen.analysis.overview import Overview
from graphgen.errors import GraphgenError
from graphgen.ir.loc import UNKNOWN
from graphgen.lowering.hlo.instruction_template import Subcomputation
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import ComputationField, InstructionField, ProgramShapeField
from graphgen.lowering.hlo_proto.instruction import Chunk, metadata_of, stated_fields
from graphgen.lowering.hlo_proto.module_writer import HloModuleWriter
from graphgen.lowering.hlo_proto.proto_module import HloComputation
from graphgen.lowering.hlo_proto.shape import read_shape, write_shape
from graphgen.lowering.hlo_proto.wire import Message

# The only field of a packed subcomputation: its computations, callees first.
COMPUTATIONS = 1
_F = InstructionField
_PLUMBING = ("parameter", "tuple", "get-tuple-element")
_IDS = (_F.ID, _F.OPERAND_IDS, _F.CONTROL_PREDECESSOR_IDS, _F.CALLED_IDS)


def pack(called: int, by_id: Mapping[int, HloComputation]) -> str:
    """Pack the computation ``called`` and its callees, in hexadecimal.

    Args:
        called: its id.
        by_id: the computations of the file, callees before callers.

    Raises:
        GraphgenError: GG0202 a computation that is not there, GG0801 one that comes before what
            it calls, or an operand that is not defined.
    """
    needed = _reached(called, by_id)
    ordered = [number for number in by_id if number in needed]
    computations = {number: place for place, number in enumerate(ordered, 1)}
    count = 0
    out: list[bytes] = []
    for number in ordered:
        known = {key: value for key, value in computations.items() if value < computations[number]}
        body, count = _renumbered(by_id[number], known, count)
        out.append(wire.delimited(COMPUTATIONS, body))
    return b"".join(out).hex()


def _reached(called: int, by_id: Mapping[int, HloComputation]) -> set[int]:
    work, seen = [called], {called}
    while work:
        number = work.pop()
        if number not in by_id:
            raise GraphgenError("GG0202", f"it calls computation {number}, which is not there")
        for instruction in by_id[number].instructions():
            fresh = set(instruction.integers(_F.CALLED_IDS)) - seen
            seen |= fresh
            work += fresh
    return seen


def _renumbered(
    computation: HloComputation, computations: Mapping[int, int], count: int
) -> tuple[bytes, int]:
    """A computation without names and with new ids, and the highest id so far."""
    ids: dict[int, int] = {}
    out: list[bytes] = []
    for instruction in computation.instructions():
        count += 1
        body = _with_ids(instruction, count, ids, computations)
        ids[instruction.integer(_F.ID)] = count
        out.append(wire.delimited(ComputationField.INSTRUCTIONS, body))
    (root,) = _known([computation.root_id], ids, computation.name)
    out.append(wire.delimited(ComputationField.PROGRAM_SHAPE, _program_shape(computation)))
    out.append(wire.integer(ComputationField.ROOT_ID, root))
    return b"".join(out), count


def _program_shape(computation: HloComputation) -> bytes:
    """The ProgramShapeProto of the parameters and the root, whose layouts files may leave out."""
    parameters: dict[int, bytes] = {}
    result = b""
    for instruction in computation.instructions():
        if instruction.text(_F.OPCODE) == "parameter":
            parameters[instruction.integer(_F.PARAMETER_NUMBER)] = _shape(instruction)
        if instruction.integer(_F.ID) == computation.root_id:
            result = _shape(instruction)
    out = [wire.delimited(ProgramShapeField.PARAMETERS, parameters[n]) for n in sorted(parameters)]
    return b"".join([*out, wire.delimited(ProgramShapeField.RESULT, result)])


def _shape(instruction: Message) -> bytes:
    """The ShapeProto of an instruction, with its layout written out."""
    data = instruction.data(_F.SHAPE)
    try:
        return write_shape(read_shape(data))
    except GraphgenError:
        # An element type of a newer XLA.
        return data


def _with_ids(
    instruction: Message, number: int, ids: Mapping[int, int], computations: Mapping[int, int]
) -> bytes:
    name = instruction.text(_F.NAME)
    skipped = (*_IDS, _F.NAME, _F.METADATA, _F.SHAPE)
    kept = [
        *stated_fields(instruction, skipped),
        (_F.SHAPE, wire.delimited(_F.SHAPE, _shape(instruction))),
    ]
    kept.sort(key=lambda pair: pair[0])
    out = [data for key, data in kept if key < _F.ID]
    out.append(wire.integer(_F.ID, number))
    out += [
        wire.integers(field, _known(instruction.integers(field), ids, name))
        for field in (_F.OPERAND_IDS, _F.CONTROL_PREDECESSOR_IDS)
    ]
    calls = _known(instruction.integers(_F.CALLED_IDS), computations, name)
    out.append(wire.integers(_F.CALLED_IDS, calls))
    out += [data for key, data in kept if key > _F.ID]
    return b"".join(out)


def _known(numbers: Iterable[int], known: Mapping[int, int], name: str) -> list[int]:
    for number in numbers:
        if number not in known:
            raise GraphgenError("GG0801", f"%{name} speaks of {number} before it is defined")
    return [known[number] for number in numbers]


def opcodes(data: str) -> dict[str, int]:
    """Count the opcodes in packed computations, without parameters and tuples.

    Args:
        data: the attribute ``regions`` of an opaque op: packed computations between commas.
    """
    counts: Counter[str] = Counter()
    for part in data.split(",") if data else ():
        for item in Message(bytes.fromhex(part)).messages(COMPUTATIONS):
            for instruction in item.messages(ComputationField.INSTRUCTIONS):
                counts[instruction.text(_F.OPCODE)] += 1
    return {code: count for code, count in counts.most_common() if code not in _PLUMBING}


def in_order_of_use(region: str) -> str:
    """Packed computations with the instructions of each in one order: parameters, then as read.

    Files of one program have them in other orders. An instruction with a control predecessor stays
    as it is.

    Args:
        region: as :func:`pack` gives it.
    """
    out: list[bytes] = []
    for item in Message(bytes.fromhex(region)).messages(COMPUTATIONS):
        found = {i.integer(_F.ID): i for i in item.messages(ComputationField.INSTRUCTIONS)}
        if any(i.has(_F.CONTROL_PREDECESSOR_IDS) for i in found.values()):
            return region
        order = [n for n, i in found.items() if i.text(_F.OPCODE) == "parameter"]
        order.sort(key=lambda number: found[number].integer(_F.PARAMETER_NUMBER))
        first = min(found, default=0)
        _read_by(item.integer(ComputationField.ROOT_ID), found, order)
        ids = {number: first + place for place, number in enumerate(order)}
        fields = ComputationField.INSTRUCTIONS, ComputationField.ROOT_ID
        body = [_renamed(found[number], ids) for number in order]
        head = [data for number, data in item.pieces() if number not in fields]
        root = wire.integer(fields[1], ids[item.integer(fields[1])])
        inner = [wire.delimited(fields[0], each) for each in body]
        out.append(wire.delimited(COMPUTATIONS, b"".join([*inner, *head, root])))
    return b"".join(out).hex()


def _read_by(root: int, found: Mapping[int, Message], order: list[int]) -> None:
    """Add to ``order`` what ``root`` reads, operands before what reads them, and ``root``."""
    work, seen = [(root, False)], set(order)
    while work:
        number, ready = work.pop()
        if number in seen:
            continue
        if ready:
            seen.add(number)
            order.append(number)
            continue
        work.append((number, True))
        operands = found[number].integers(_F.OPERAND_IDS)
        work += [(operand, False) for operand in reversed(operands)]


def _renamed(instruction: Message, ids: Mapping[int, int]) -> bytes:
    """An instruction with other ids, and without a type of comparison that its operands imply."""
    kept = [
        data
        for number, data in instruction.pieces()
        if number not in (_F.ID, _F.OPERAND_IDS)
        and not (number == _F.COMPARISON_TYPE and instruction.text(number) != "TOTALORDER")
    ]
    operands = [ids[number] for number in instruction.integers(_F.OPERAND_IDS)]
    own = wire.integer(_F.ID, ids[instruction.integer(_F.ID)])
    return b"".join([*kept, own, wire.integers(_F.OPERAND_IDS, operands)])


def targets_inside(data: str) -> list[str]:
    """The targets of custom calls in packed computations.

    Args:
        data: the attribute ``regions`` of an opaque op: packed computations between commas.
    """
    return [
        instruction.text(_F.CUSTOM_CALL_TARGET)
        for part in (data.split(",") if data else ())
        for item in Message(bytes.fromhex(part)).messages(COMPUTATIONS)
        for instruction in item.messages(ComputationField.INSTRUCTIONS)
        if instruction.text(_F.OPCODE) == "custom-call"
    ]


def write_subcomputation(owner: HloModuleWriter, region: Subcomputation) -> int:
    """Unpack computations into a module; the id of the one that is called."""
    packed = Message(bytes.fromhex(region.data))
    computations: dict[int, int] = {}
    ids: dict[int, int] = {}
    written = 0
    for place, item in enumerate(packed.messages(COMPUTATIONS), 1):
        body: list[Chunk] = []
        names: list[str] = []
        for instruction in item.messages(ComputationField.INSTRUCTIONS):
            code = instruction.text(_F.OPCODE)
            ids[instruction.integer(_F.ID)] = owner.next_id(body)
            name = owner.fresh(f"{code}.{owner.last_id}")
            names += [name] if code == "parameter" else []
            head = wire.text(_F.NAME, name) + metadata_of(UNKNOWN, code, name)
            rest = _with_ids(instruction, owner.last_id, ids, computations)
            body.append(wire.delimited(ComputationField.INSTRUCTIONS, head + rest))
        shape = item.data(ComputationField.PROGRAM_SHAPE)
        shape += b"".join(wire.text(ProgramShapeField.PARAMETER_NAMES, name) for name in names)
        (root,) = _known([item.integer(ComputationField.ROOT_ID)], ids, "root")
        written = owner.finish(owner.fresh(f"region.{owner.last_id}"), body, shape, root)
        computations[place] = written
    if not written:
        raise GraphgenError("GG0104", "hlo.opaque: a region has no computation")
    return written


def opcodes_inside(item: Overview) -> dict[str, dict[str, int]]:
    """Opcodes in the computations that opaque instructions call, by the opcode of the caller."""
    found: dict[str, dict[str, int]] = {}
    for op in item.function.block:
        if op.name == "hlo.opaque" and op.attrs["regions"]:
            counts = found.setdefault(op.attrs.text("opcode"), {})
            for code, count in opcodes(op.attrs.text("regions")).items():
                counts[code] = counts.get(code, 0) + count
    return found
