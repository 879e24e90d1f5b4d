"""Annotations of a module: fields that the IR does not model, in its ``meta``, and back.

``hlo.num_partitions`` and ``hlo.replica_count`` are numbers, ``hlo.frontend_attributes`` is text
as in HLO, ``hlo.is_scheduled`` says that the order of the ops is a schedule, ``hlo.may_alias``
names states that need not share the memory of their output, and any other field is hexadecimal.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.lowering.hlo.annotations import is_plain
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import (
    ConfigField,
    ModuleField,
    ProgramShapeField,
    ScheduleField,
)
from graphgen.lowering.hlo_proto.proto_module import HloModule
from graphgen.lowering.hlo_proto.shape import HloShape, read_shape
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.hlo_text.hlo_shapes import parse_shape
from graphgen.lowering.hlo_text.opaque_values import parse_map, show_map

_F = ModuleField
PARTITIONS, REPLICAS = "hlo.num_partitions", "hlo.replica_count"
_COUNTS = {REPLICAS: ConfigField.REPLICA_COUNT, PARTITIONS: ConfigField.NUM_PARTITIONS}
SCHEDULED, FRONTEND, MAY_ALIAS = "hlo.is_scheduled", "hlo.frontend_attributes", "hlo.may_alias"
_LAYOUT = "hlo.entry_computation_layout"
_BARE = "hlo.field_"
# Fields that a module of the IR has otherwise, or that refer to what is renumbered.
_ELSEWHERE = frozenset(
    (
        *(_F.NAME, _F.ENTRY_NAME, _F.COMPUTATIONS, _F.PROGRAM_SHAPE, _F.ID, _F.ENTRY_ID),
        *(_F.SCHEDULE, _F.ALIAS, _F.STACK_FRAMES, _F.DONORS, _F.FRONTEND_ATTRIBUTES, _F.CONFIG),
    )
)


def module_annotations(hlo: HloModule) -> dict[str, str]:
    """The annotations of a module, for its ``meta``."""
    message = hlo.message
    found: dict[str, str] = {}
    config = message.message(_F.CONFIG)
    for key, number in _COUNTS.items():
        count = config.integer(number) if config is not None else 0
        if count > 1:
            found[key] = str(count)
    attributes = show_map(message.message(_F.FRONTEND_ATTRIBUTES))
    if attributes:
        found[FRONTEND] = attributes
    if message.data(_F.SCHEDULE):
        found[SCHEDULED] = "true"
    layout = _entry_layout(message)
    if layout:
        found[_LAYOUT] = layout
    for number, piece in message.pieces(_ELSEWHERE):
        if message.is_set(number):
            key = f"{_BARE}{number}"
            found[key] = found.get(key, "") + piece.hex()
    return found


def _entry_layout(message: Message) -> str:
    """The shapes of the entry computation, where one is not row-major; else empty."""
    program = message.message(_F.PROGRAM_SHAPE)
    if program is None:
        return ""
    shapes = [read_shape(data) for data in _datas(program, ProgramShapeField.PARAMETERS)]
    result = read_shape(program.data(ProgramShapeField.RESULT))
    whole = HloShape("tuple", members=(HloShape("tuple", members=tuple(shapes)), result))
    return "" if is_plain(whole) else whole.text


def _datas(message: Message, number: int) -> list[bytes]:
    return [bytes(message.source[start:end]) for start, end in message.spans(number)]


def encode_module_annotations(module: Module) -> bytes:
    """The fields of a module's annotations, encoded, without its schedule.

    Raises:
        GraphgenError: GG0401 for a count of partitions that is not that of a module which was
            partitioned here.
    """
    meta = module.meta
    counts = {
        number: module.stated_number(key, 0) for key, number in _COUNTS.items() if key in meta
    }
    check_partitions(module)
    out = [
        bytes.fromhex(text)
        for key, text in meta.items()
        if key.startswith(_BARE) and key.removeprefix(_BARE).isdigit()
    ]
    if FRONTEND in meta:
        out.append(wire.delimited(_F.FRONTEND_ATTRIBUTES, parse_map(meta[FRONTEND])))
    if counts:
        inner = [wire.integer(number, counts[number]) for number in sorted(counts)]
        out.append(wire.delimited(_F.CONFIG, b"".join(inner)))
    return b"".join(out)


def check_partitions(module: Module) -> None:
    """Refuse a module that the file says is partitioned, and that passes here split (GG0401)."""
    stated = module.stated_number(PARTITIONS, 1)
    made = module.ranks if set(module.mesh) - {"replica"} else 1
    if made > 1 and stated > 1:
        raise GraphgenError(
            "GG0401",
            f"the file says {PARTITIONS} {stated}, and passes here split it over {made}",
            help="partition a program either here or by XLA",
        )


def entry_layout(module: Module) -> tuple[list[HloShape], HloShape] | None:
    """The shapes that the file gave its entry computation, ``None`` where they are plain."""
    text = module.meta.get(_LAYOUT)
    if text is None:
        return None
    parameters, result = parse_shape(text).members
    return list(parameters.members), result


def encode_schedule(computations: Mapping[int, list[int]]) -> bytes:
    """An HloScheduleProto: the ids of instructions in order, by the id of their computation."""
    entries = [
        wire.delimited(
            ScheduleField.SEQUENCES,
            wire.integer(ScheduleField.COMPUTATION, number)
            + wire.delimited(
                ScheduleField.SEQUENCE, wire.integers(ScheduleField.INSTRUCTION_IDS, order)
            ),
        )
        for number, order in computations.items()
    ]
    return wire.delimited(_F.SCHEDULE, b"".join(entries))
