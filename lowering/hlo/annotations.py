"""Annotations of instructions: fields that no op models, as texts by name, and back as fields.

A field whose text in HLO encodes to the same bytes is kept under its name there, such as
``hlo.sharding``; any other one in hexadecimal, under its number. A shape is kept where it is not
the row-major array that the types say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from graphgen.analysis.annotation_diff import CONTROL
from graphgen.errors import GraphgenError
from graphgen.ir import Attrs, Value, attrs_of
from graphgen.ir.attrs import EMPTY
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import InstructionField
from graphgen.lowering.hlo_proto.instruction import (
    INPUT_NAMES,
    OUTPUT_NAMES,
    write_frontend_attributes,
)
from graphgen.lowering.hlo_proto.proto_module import read_frontend_attributes
from graphgen.lowering.hlo_proto.shape import HloShape, shape_of
from graphgen.lowering.hlo_proto.wire import Message, delimited
from graphgen.lowering.hlo_text.attributes import ATTRIBUTES, HloAttribute
from graphgen.lowering.hlo_text.hlo_shapes import parse_shape
from graphgen.lowering.hlo_text.opaque_values import parse_map, show_map

FRONTEND = "hlo.frontend_attributes"


def frontend_text(entries: Mapping[str, str]) -> str:
    """The text of a map: ``{a="1",b="2"}``."""
    whole = Message(write_frontend_attributes(dict(entries)))
    return show_map(whole.message(InstructionField.FRONTEND_ATTRIBUTES))


def frontend_map(annotations: Mapping[str, object]) -> dict[str, str]:
    """The frontend attributes among annotations; empty without any."""
    text = annotations.get(FRONTEND)
    if not text:
        return {}
    number = InstructionField.FRONTEND_ATTRIBUTES
    return read_frontend_attributes(Message(delimited(number, parse_map(str(text)))), number)


_F = InstructionField
PREFIX = "hlo."
SHAPE, OPCODE, SHARDING = "hlo.shape", "hlo.opcode", "hlo.sharding"
_BARE = "hlo.field_"

# Fields that instructions of any opcode may have, and that say nothing of the numbers.
HINTS = frozenset(
    (
        *(_F.SHARDING, _F.FRONTEND_ATTRIBUTES, _F.ORIGINAL_VALUE, _F.RESULT_ACCURACY),
        *(_F.PARAMETER_REPLICATION, _F.STATISTICS, _F.CROSS_PROGRAM_PREFETCH),
    )
)
# Fields that no attribute of an op models.
ANNOTATED = HINTS | frozenset(
    (
        *(_F.FUSION_KIND, _F.CHANNEL_ID, _F.BACKEND_CONFIG, _F.ALL_REDUCE_ID, _F.PRECISION),
        *(_F.CONSTRAIN_LAYOUT, _F.INDICES_ARE_SORTED, _F.UNIQUE_INDICES, _F.USE_GLOBAL_DEVICE_IDS),
        *(_F.OUTPUT_OPERAND_ALIASING, _F.CUSTOM_CALL_HAS_SIDE_EFFECT, _F.IS_COMPOSITE),
    )
)
# Fields that say something by being there, whatever they hold.
_PRESENT = frozenset((_F.SHARDING,))

_ROWS: dict[int, list[HloAttribute]] = {}
for _row in ATTRIBUTES:
    if _row.field in ANNOTATED and _row.name != "metadata":
        _ROWS.setdefault(_row.field, []).append(_row)
_BY_NAME = {row.name: row for rows in _ROWS.values() for row in rows}

_known: dict[bytes, Attrs] = {}


def annotations_of(i: Message, fields: Iterable[int]) -> Attrs:
    """The annotations of an instruction.

    Args:
        i: its HloInstructionProto.
        fields: numbers of the fields to keep.
    """
    wanted = [number for number in fields if number in i.fields and _says_something(i, number)]
    if not wanted:
        return EMPTY
    wanted.sort()
    data = b"".join([_field(i, number) for number in wanted])
    found = _known.get(data)
    if found is None:
        made: dict[str, str] = {}
        for number, piece in _by_number(data).items():
            made |= _texts(number, piece)
        found = _known[data] = attrs_of(made)
    return found


def _says_something(i: Message, number: int) -> bool:
    """The field holds more than a default written out."""
    value = i.fields[number][-1]
    if isinstance(value, int):
        return value != 0
    if number == _F.PRECISION:
        precision = Message(i.source, *value)
        return any(any(precision.integers(inner)) for inner in precision.fields)
    if number == _F.FRONTEND_ATTRIBUTES:
        return bool(_frontend(i))
    return number in _PRESENT or value[1] > value[0]


def _frontend(i: Message) -> dict[str, str]:
    found = read_frontend_attributes(i, _F.FRONTEND_ATTRIBUTES)
    return {key: text for key, text in found.items() if key not in (INPUT_NAMES, OUTPUT_NAMES)}


def _field(i: Message, number: int) -> bytes:
    """All occurrences of a field, encoded."""
    if number == _F.FRONTEND_ATTRIBUTES:
        return write_frontend_attributes(_frontend(i))
    return b"".join(
        [
            wire.integer(number, value)
            if isinstance(value, int)
            else wire.delimited(number, bytes(i.source[value[0] : value[1]]))
            for value in i.fields[number]
        ]
    )


def _by_number(data: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for number, piece in Message(data).pieces():
        found[number] = found.get(number, b"") + piece
    return found


def _texts(number: int, data: bytes) -> dict[str, str]:
    """A field as its attributes in HLO text, where they say all of it; else in hexadecimal."""
    i = Message(data)
    try:
        shown = {row.name: row.show(i) for row in _ROWS.get(number, ())}
        shown = {name: text for name, text in shown.items() if text}
        if shown and _encoded(number, shown) == data:
            return {f"{PREFIX}{name}": text for name, text in shown.items()}
    except (GraphgenError, ValueError, KeyError, IndexError):
        pass
    return {f"{_BARE}{number}": data.hex()}


def decoded_field(number: int, data: bytes) -> dict[str, str] | None:
    """The attributes in HLO text of a field in which defaults are written out.

    Returns:
        ``None`` for a field that has no such attributes, or that says more than they do.
    """
    i = Message(data)
    try:
        shown = {row.name: row.show(i) for row in _ROWS.get(number, ())}
        shown = {name: text for name, text in shown.items() if text}
        same = shown and _stripped(_encoded(number, shown)) == _stripped(data)
    except (GraphgenError, ValueError, KeyError, IndexError):
        return None
    return shown if same else None


def _stripped(data: bytes) -> list[tuple[int, bytes]]:
    """The fields inside of a field that hold more than zeros, in order."""
    found: list[tuple[int, bytes]] = []
    for number, values in Message(data).fields.items():
        for value in values:
            if isinstance(value, int):
                found.append((number, wire.varint(value)))
                continue
            inner = Message(data, *value)
            found += [(n, piece) for n, piece in inner.pieces() if any(inner.integers(n))]
    return sorted(found)


def _encoded(number: int, texts: Mapping[str, str]) -> bytes:
    rows = [_BY_NAME[name] for name in texts]
    parts = b"".join([row.parse(texts[row.name]) for row in rows])
    return wire.delimited(number, parts) if rows[0].inside else parts


def encode_annotations(annotations: Mapping[str, object]) -> bytes:
    """The fields of annotations, encoded; shapes, opcodes and order are for the emitter.

    Raises:
        GraphgenError: GG0401 for a name or a text that HLO does not have.
    """
    groups: dict[int, dict[str, str]] = {}
    out: list[bytes] = []
    for key, value in annotations.items():
        text = str(value)
        if key in (SHAPE, OPCODE, CONTROL) or not key.startswith(PREFIX):
            continue
        try:
            if key.startswith(_BARE):
                out.append(bytes.fromhex(text))
                continue
            row = _BY_NAME[key.removeprefix(PREFIX)]
            groups.setdefault(row.field, {})[row.name] = text
        except (KeyError, ValueError) as error:
            what = f"the annotation {key} is none that HLO has"
            raise GraphgenError("GG0401", what) from error
    out += [_encoded(number, texts) for number, texts in sorted(groups.items())]
    return b"".join(out)


def is_plain(shape: HloShape) -> bool:
    """True for row-major arrays of fixed sizes in the default memory, which types say all of."""
    if shape.is_tuple:
        return all(map(is_plain, shape.members))
    return shape.in_order and replace(shape, layout=None) == HloShape(shape.element, shape.dims)


def shape_annotation(shape: HloShape) -> dict[str, str]:
    """The annotation of a shape, none for a plain one."""
    return {} if is_plain(shape) else {SHAPE: shape.text}


def stated_shape(annotations: Mapping[str, object], shape: HloShape) -> HloShape:
    """The shape that annotations state for a value of ``shape``, itself without one.

    Raises:
        GraphgenError: GG0401 where they are of a value of another type.
    """
    text = annotations.get(SHAPE)
    if text is None:
        return shape
    found = parse_shape(str(text))
    if found.is_tuple and not shape.is_tuple and len(found.leaves) == 1:
        # The value is all there is in the tuple that its instruction gives.
        (found,) = found.leaves
    if _types(found) != _types(shape):
        what = f"the annotation hlo.shape is of {found.text}, the value is {shape.text}"
        raise GraphgenError("GG0401", what, help="a pass changed the value and kept the annotation")
    return found


def _types(shape: HloShape) -> object:
    if shape.is_tuple:
        return tuple(map(_types, shape.members))
    return shape.element, shape.dims


def element(annotations: Mapping[str, object], part: str) -> dict[str, object]:
    """The annotations of a part of an op or function: ``hlo.PART.sharding`` as ``hlo.sharding``."""
    head = f"{PREFIX}{part}."
    return {
        PREFIX + key.removeprefix(head): text
        for key, text in annotations.items()
        if key.startswith(head)
    }


def of_part(annotations: Mapping[str, object], part: str) -> dict[str, str]:
    """The annotations of a part under the names they have in the whole."""
    return {
        f"{PREFIX}{part}.{key.removeprefix(PREFIX)}": str(text) for key, text in annotations.items()
    }


def shape_of_value(value: Value) -> HloShape:
    """The shape of a value as its file stated it: the annotated one, else row-major."""
    shape = shape_of(value.type)
    op = value.op
    if op is None:
        return stated_shape(value.annotations, shape)
    if len(op.results) == 1:
        return stated_shape(op.annotations, shape) if SHAPE in op.annotations else shape
    noted = element(op.annotations, f"element{value.index}")
    whole = op.annotations.get(SHAPE)
    if SHAPE not in noted and whole is not None:
        leaves = parse_shape(str(whole)).leaves
        if len(leaves) == len(op.results) and _types(leaves[value.index]) == _types(shape):
            return leaves[value.index]
    return stated_shape(noted, shape)


def tuple_shape(annotations: Mapping[str, object], shape: HloShape) -> HloShape:
    """The shape of a tuple of arrays: as annotated as a whole, else with those of its elements."""
    if SHAPE in annotations or not shape.is_tuple or any(m.is_tuple for m in shape.members):
        return stated_shape(annotations, shape)
    members = [
        stated_shape(element(annotations, f"element{index}"), member)
        for index, member in enumerate(shape.members)
    ]
    return replace(shape, members=tuple(members))


def is_bounded(value: Value) -> bool:
    """True for a value of which some size is only bounded."""
    return bool(shape_of_value(value).dynamic)
