"""Kinds of HLO attribute values, each in text and in the protobuf: numbers, windows, groups."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import (
    InstructionField,
    PaddingField,
    SliceField,
    WindowField,
)
from graphgen.lowering.hlo_proto.replica_groups import (
    IotaGroups,
    MeshGroups,
    ReplicaGroups,
    check_mesh,
    read_pairs,
    stated_groups,
    write_groups,
    write_pairs,
)
from graphgen.lowering.hlo_proto.shape import read_shape, write_shape
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.hlo_text.hlo_shapes import parse_shape
from graphgen.lowering.hlo_text.text_values import (
    BadAttributeError,
    quoted,
    quoted_bytes,
    unquoted,
    unquoted_bytes,
)
from graphgen.numbers import MOST_SIZE, signed_number, whole_number

F = InstructionField
T = TypeVar("T")
Integers = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ValueKind(Generic[T]):
    """The values of some attributes.

    Attributes:
        parse: the value of its text.
        show: the text of a value.
        encode: field number and value -> the field.
        decode: message and field number -> the value.
    """

    parse: Callable[[str], T]
    show: Callable[[T], str]
    encode: Callable[[int, T], bytes]
    decode: Callable[[Message, int], T]


def numbers(text: str) -> Integers:
    """The integers in a text, in order."""
    return tuple([signed_number(item, _WIDEST) for item in re.findall(r"-?[0-9]+", text)])


def braces(values: Sequence[int]) -> str:
    """``{0,1}``."""
    return "{" + ",".join(map(str, values)) + "}"


def _integer(text: str) -> int:
    try:
        return signed_number(text, _WIDEST)
    except ValueError as error:
        raise BadAttributeError(f"'{text[:40]}' is not an integer") from error


def _boolean(text: str) -> int:
    if text not in ("true", "false"):
        raise BadAttributeError(f"'{text}' is neither true nor false")
    return int(text == "true")


# Numbers of protobuf, signed or not.
_WIDEST = 2 * MOST_SIZE + 1

INTEGER: ValueKind[int] = ValueKind(_integer, str, wire.integer, Message.integer)
INTEGERS: ValueKind[Integers] = ValueKind(numbers, braces, wire.integers, Message.integers)
BOOLEAN: ValueKind[int] = ValueKind(
    _boolean, lambda value: "true" if value else "", wire.integer, Message.integer
)
WORD: ValueKind[str] = ValueKind(str, str, wire.text, Message.text)
STRING: ValueKind[str] = ValueKind(unquoted, quoted, wire.text, Message.text)
# Any bytes, as a string.
BYTES: ValueKind[bytes] = ValueKind(unquoted_bytes, quoted_bytes, wire.delimited, Message.data)
# A repeated integer field with one element.
SINGLE: ValueKind[int] = ValueKind(
    _integer,
    str,
    lambda number, value: wire.integers(number, [value]),
    lambda i, number: next(iter(i.integers(number)), 0),
)


def _show_float(value: float) -> str:
    short = f"{value:.6g}"
    (single,) = struct.unpack("<f", struct.pack("<f", float(short)))
    return short if single == value else repr(value)


def _read_float(message: Message, number: int) -> float:
    return struct.unpack("<f", message.data(number))[0] if message.has(number) else 0.0


FLOAT: ValueKind[float] = ValueKind(
    float,
    _show_float,
    lambda number, value: wire.fixed32(number, struct.pack("<f", value)),
    _read_float,
)
# Of one or several truth values.
BOOLEANS: ValueKind[Integers] = ValueKind(
    lambda text: tuple([_boolean(word) for word in re.findall(r"\w+", text)]),
    lambda values: "{" + ",".join(["true" if value else "false" for value in values]) + "}",
    wire.integers,
    Message.integers,
)


SHAPE: ValueKind[str] = ValueKind(
    str,
    str,
    lambda number, text: wire.delimited(number, write_shape(parse_shape(text))),
    lambda i, number: read_shape(i.data(number)).text if i.has(number) else "",
)
# Set also where it is 0.
EXPLICIT: ValueKind[int] = ValueKind(
    _integer,
    str,
    lambda number, value: wire.varint(number << 3) + wire.varint(value),
    Message.integer,
)
# Not printed for 1, which is what an unset field means.
ABOVE_ONE: ValueKind[int] = ValueKind(
    _integer, lambda value: str(value) if value > 1 else "", wire.integer, Message.integer
)
# Printed also where it is false.
TRUTH: ValueKind[int] = ValueKind(
    _boolean, lambda value: "true" if value else "false", wire.integer, Message.integer
)


def choice(words: Mapping[str, int], *, strict: bool = False) -> ValueKind[int]:
    """An enumeration; a number without a word is shown as it is, or not at all if ``strict``."""
    names = {value: word for word, value in words.items()}

    def parse(text: str) -> int:
        if text not in words:
            raise BadAttributeError(f"'{text}' is none of {', '.join(words)}")
        return words[text]

    def show(value: int) -> str:
        return names.get(value, "" if strict else str(value))

    return ValueKind(parse, show, wire.integer, Message.integer)


def _rows(
    keys: Mapping[int, int],
    parse: Callable[[str], Sequence[Integers]],
    show: Callable[[Sequence[Integers]], str],
) -> ValueKind[Sequence[Integers]]:
    """A repeated message of integers; ``keys`` are its fields and their values where unset."""

    def encode(number: int, value: Sequence[Integers]) -> bytes:
        inner = [b"".join(map(wire.integer, keys, row)) for row in value]
        return b"".join([wire.delimited(number, row) for row in inner])

    def decode(i: Message, number: int) -> Sequence[Integers]:
        return [tuple([item.integer(*key) for key in keys.items()]) for item in i.messages(number)]

    return ValueKind(parse, show, encode, decode)


def _parse_slices(text: str) -> list[Integers]:
    out: list[Integers] = []
    for part in re.findall(r"\[([^\]]*)\]", text):
        bounds = numbers(part)
        if len(bounds) not in (2, 3):
            raise BadAttributeError(f"'[{part}]' is not start:limit or start:limit:stride")
        out.append((*bounds, 1)[:3])
    return out


def _show_slices(value: Sequence[Integers]) -> str:
    parts = [
        f"[{start}:{limit}:{stride}]" if stride != 1 else f"[{start}:{limit}]"
        for start, limit, stride in value
    ]
    return "{" + ", ".join(parts) + "}"


# ``{[0:1], [0:8:2]}``: start, limit and stride per dimension.
SLICES = _rows(
    {SliceField.START: 0, SliceField.LIMIT: 0, SliceField.STRIDE: 1}, _parse_slices, _show_slices
)


def _parse_padding(text: str) -> list[Integers]:
    out: list[Integers] = []
    for part in text.split("x") if text else []:
        edges = [_integer(item) for item in part.split("_")]
        if len(edges) not in (2, 3):
            raise BadAttributeError(f"'{part}' is not low_high or low_high_interior")
        out.append((*edges, 0)[:3])
    return out


def _show_padding(value: Sequence[Integers]) -> str:
    return "x".join(["_".join(map(str, row if row[2] else row[:2])) for row in value])


# ``0_1x2_0_1``: low, high and interior padding per dimension.
PADDING = _rows(
    {PaddingField.LOW: 0, PaddingField.HIGH: 0, PaddingField.INTERIOR: 0},
    _parse_padding,
    _show_padding,
)

# HLO text's name of each part of a window, its field, and the value that is not written.
_WINDOW: dict[str, tuple[int, int]] = {
    "size": (WindowField.SIZE, -1),
    "stride": (WindowField.STRIDE, 1),
    "lhs_dilate": (WindowField.BASE_DILATION, 1),
    "rhs_dilate": (WindowField.WINDOW_DILATION, 1),
    "rhs_reversal": (WindowField.REVERSAL, 0),
}


def _parse_window(text: str) -> list[Integers]:
    parts = {
        key: value.split("x") for key, value in re.findall(r"(\w+)=([\dx_\-]+)", text.strip("{}"))
    }
    count = len(parts.get("size", ()))
    for key, items in parts.items():
        if len(items) != count and key != "rhs_reversal":
            raise BadAttributeError(f"{key} has {len(items)} numbers, size has {count}")
    # XLA takes any number of them: the others of its list are not reversed.
    turned = parts.get("rhs_reversal", [])
    parts["rhs_reversal"] = [*turned, *["0"] * count][:count]
    out: list[Integers] = []
    for index in range(count):
        row = [
            _integer(parts[key][index]) if key in parts else default
            for key, (_, default) in _WINDOW.items()
        ]
        row[-1] = int(row[-1] == 1)
        edges = parts.get("pad", ["0_0"] * count)[index].split("_")
        out.append((*row, _integer(edges[0]), _integer(edges[-1])))
    return out


def _show_window(value: Sequence[Integers]) -> str:
    if not value:
        return ""
    *columns, low, high = zip(*value, strict=True)
    parts = [
        f"{key}={'x'.join(map(str, column))}"
        for (key, (_, default)), column in zip(_WINDOW.items(), columns, strict=True)
        if any(item != default for item in column)
    ]
    if any(low) or any(high):
        pads = zip(low, high, strict=True)
        parts.insert(1, "pad=" + "x".join([f"{before}_{after}" for before, after in pads]))
    return "{" + " ".join(parts) + "}"


# ``{size=3x3 pad=1_1x1_1}``: the parts of ``_WINDOW``, then low and high padding, per dimension.
WINDOW = _rows(
    dict.fromkeys(
        [
            *[number for number, _ in _WINDOW.values()],
            *(WindowField.PADDING_LOW, WindowField.PADDING_HIGH),
        ],
        0,
    ),
    _parse_window,
    _show_window,
)


_IOTA_GROUPS = re.compile(r"\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")


# ``mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)) {'x','y':(1)2}``.
_MESH = re.compile(
    r"mesh\[([^\]]*)\](?:,device_ids=\((?:(\[[\d,]*\])(?:T\(([\d,]*)\))?|([\d,]*))\))?\{([^}]*)\}"
)
_MESH_AXIS = re.compile(r"'?([^'=,]+)'?=(\d+)")
_CHOSEN = re.compile(r"'?([^',:]+)'?(?::\((\d+)\)(\d+))?")


def _parse_mesh(text: str) -> MeshGroups:
    match = _MESH.fullmatch("".join(text.split()))
    if match is None:
        raise BadAttributeError(f"'{text}' is not a mesh and its axes")
    inner, sizes, order, listed, names = match.groups(default="")
    axes = tuple([(name, whole_number(size)) for name, size in _MESH_AXIS.findall(inner)])
    places = {name: number for number, (name, _) in enumerate(axes)}
    chosen: list[tuple[int, int, int]] = []
    for name, before, size in _CHOSEN.findall(names):
        if name not in places and not name.isdecimal():
            raise BadAttributeError(f"'{name}' is none of the mesh's axes {', '.join(places)}")
        axis = places.get(name) if name in places else whole_number(name)
        chosen.append((axis or 0, whole_number(before or "0"), whole_number(size or "0")))
    dims = numbers(sizes)
    moved = numbers(order) or tuple(range(len(dims)))
    found = MeshGroups(axes, numbers(listed), (dims, moved), tuple(chosen))
    check_mesh(found)
    return found


def _show_mesh(value: MeshGroups) -> str:
    axes = ",".join([f"'{name}'={size}" for name, size in value.axes])
    listed = ",".join(map(str, value.devices))
    sizes, moved = value.order
    if sizes:
        listed = f"[{','.join(map(str, sizes))}]"
        listed += f"T({','.join(map(str, moved))})" if list(moved) != sorted(moved) else ""
    devices = f", device_ids=({listed})" if listed else ""
    chosen = ",".join(
        [
            f"'{value.axes[axis][0]}'" + (f":({before}){size}" if size else "")
            for axis, before, size in value.chosen
        ]
    )
    return f"mesh[{axes}]{devices} {{{chosen}}}"


def _parse_groups(text: str) -> ReplicaGroups | IotaGroups | MeshGroups:
    if text.startswith("mesh["):
        return _parse_mesh(text)
    if text.startswith("{"):
        return tuple([numbers(group) for group in re.findall(r"\{([\d,\s]*)\}", text[1:-1])])
    match = _IOTA_GROUPS.fullmatch(text.replace(" ", ""))
    if not match:
        raise BadAttributeError(f"'{text}' is not a list of replica groups")
    dims = numbers(match[3])
    order = numbers(match[4]) if match[4] else tuple(range(len(dims)))
    return IotaGroups(int(match[1]), int(match[2]), dims, order)


def _parse_pairs(text: str) -> ReplicaGroups:
    pairs = tuple([numbers(pair) for pair in re.findall(r"\{([\d,\s]*)\}", text[1:-1])])
    if any(len(pair) != 2 for pair in pairs):
        raise BadAttributeError(f"'{text}' is not a list of pairs")
    return pairs


def _show_groups(value: ReplicaGroups | IotaGroups | MeshGroups) -> str:
    if isinstance(value, MeshGroups):
        return _show_mesh(value)
    if not isinstance(value, IotaGroups):
        return "{" + ",".join(map(braces, value)) + "}"
    shown = f"[{value.count},{value.size}]<=[{','.join(map(str, value.dims))}]"
    moved = value.order if list(value.order) != sorted(value.order) else ()
    return shown + (f"T({','.join(map(str, moved))})" if moved else "")


# ``{{0,1},{2,3}}``, or the formula ``[2,2]<=[4]``, which is kept as one.
GROUPS = ValueKind(
    _parse_groups,
    lambda value: _show_groups(value) if value else "",
    lambda _, value: write_groups(value),
    lambda i, _: stated_groups(i),
)
# ``{{0,1},{1,0}}``: source and target of each transfer.
PAIRS = ValueKind(
    _parse_pairs,
    _show_groups,
    lambda _, value: write_pairs(value),
    lambda i, _: read_pairs(i),
)

_PRECISIONS = {"default": 0, "high": 1, "highest": 2, "packed_nibble": 3}
_PRECISION_WORDS = {value: word for word, value in _PRECISIONS.items()}


def _parse_precision(text: str) -> Integers:
    words = re.findall(r"\w+", text.lower())
    if any(word not in _PRECISIONS for word in words):
        raise BadAttributeError(f"'{text}' is none of {', '.join(_PRECISIONS)}")
    return tuple([_PRECISIONS[word] for word in words])


def _show_precision(value: Integers) -> str:
    words = [_PRECISION_WORDS.get(item, "default") for item in value]
    return "{" + ",".join(words) + "}" if any(value) else ""


# ``{highest,default}``: one word per operand; nothing where all are the default.
PRECISION = ValueKind(_parse_precision, _show_precision, wire.integers, Message.integers)
