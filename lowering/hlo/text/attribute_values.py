"""Values of HLO attributes, each kind in text and in the protobuf: numbers, windows, groups, maps.

A :class:`Kind` is a value in both encodings. Structured values that no op of the IR has are their
own text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from graphgen.lowering.hlo.proto import wire
from graphgen.lowering.hlo.proto.fields import (
    ConvolutionField,
    InstructionField,
    MapField,
    MetadataField,
    PaddingField,
    SliceField,
    WindowField,
)
from graphgen.lowering.hlo.proto.replica_groups import (
    ReplicaGroups,
    iota_groups,
    read_groups,
    read_pairs,
    write_groups,
    write_pairs,
)
from graphgen.lowering.hlo.proto.wire import Message

F = InstructionField
T = TypeVar("T")
Integers = tuple[int, ...]


class BadAttributeError(Exception):
    """A value that an attribute cannot have."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
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
    return tuple([int(item) for item in re.findall(r"-?\d+", text)])


def braces(values: Sequence[int]) -> str:
    """``{0,1}``."""
    return "{" + ",".join(map(str, values)) + "}"


def quoted(text: str) -> str:
    """A string as HLO text writes it."""
    return json.dumps(text, ensure_ascii=False)


def unquoted(text: str) -> str:
    """The string of :func:`quoted`, or a bare word as it stands."""
    if not text.startswith('"'):
        return text
    out = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text[1:-1])
    simple = {"n": "\n", "t": "\t", "r": "\r"}
    return re.sub(r"\\(.)", lambda m: simple.get(m[1], m[1]), out, flags=re.DOTALL)


def _integer(text: str) -> int:
    if not re.fullmatch(r"-?\d+", text):
        raise BadAttributeError(f"'{text}' is not an integer")
    return int(text)


def _boolean(text: str) -> int:
    if text not in ("true", "false"):
        raise BadAttributeError(f"'{text}' is neither true nor false")
    return int(text == "true")


INTEGER: Kind[int] = Kind(_integer, str, wire.integer, Message.integer)
INTEGERS: Kind[Integers] = Kind(numbers, braces, wire.integers, Message.integers)
BOOLEAN: Kind[int] = Kind(
    _boolean, lambda value: "true" if value else "", wire.integer, Message.integer
)
WORD: Kind[str] = Kind(str, str, wire.text, Message.text)
STRING: Kind[str] = Kind(unquoted, quoted, wire.text, Message.text)
# A repeated integer field with one element.
SINGLE: Kind[int] = Kind(
    _integer,
    str,
    lambda number, value: wire.integers(number, [value]),
    lambda i, number: next(iter(i.integers(number)), 0),
)


def choice(words: Mapping[str, int], *, strict: bool = False) -> Kind[int]:
    """An enumeration; a number without a word is shown as it is, or not at all if ``strict``."""
    names = {value: word for word, value in words.items()}

    def parse(text: str) -> int:
        if text not in words:
            raise BadAttributeError(f"'{text}' is none of {', '.join(words)}")
        return words[text]

    def show(value: int) -> str:
        return names.get(value, "" if strict else str(value))

    return Kind(parse, show, wire.integer, Message.integer)


def _rows(
    keys: Mapping[int, int],
    parse: Callable[[str], Sequence[Integers]],
    show: Callable[[Sequence[Integers]], str],
) -> Kind[Sequence[Integers]]:
    """A repeated message of integers; ``keys`` are its fields and their values where unset."""

    def encode(number: int, value: Sequence[Integers]) -> bytes:
        inner = [b"".join(map(wire.integer, keys, row)) for row in value]
        return b"".join([wire.delimited(number, row) for row in inner])

    def decode(i: Message, number: int) -> Sequence[Integers]:
        return [tuple([item.integer(*key) for key in keys.items()]) for item in i.messages(number)]

    return Kind(parse, show, encode, decode)


def _as_text(parse: Callable[[str], bytes], show: Callable[[Message], str]) -> Kind[str]:
    """A value kept as its text; ``parse`` and ``show`` work on the whole field."""
    return Kind(str, str, lambda _, text: parse(text), lambda i, _: show(i))


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
    out: list[Integers] = []
    for index in range(count):
        row = [
            _integer(parts[key][index]) if key in parts else default
            for key, (_, default) in _WINDOW.items()
        ]
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

_SIDES = (
    ("b", "f", ConvolutionField.INPUT_BATCH, ConvolutionField.INPUT_FEATURE,
     ConvolutionField.INPUT_SPATIAL),
    ("i", "o", ConvolutionField.KERNEL_INPUT_FEATURE, ConvolutionField.KERNEL_OUTPUT_FEATURE,
     ConvolutionField.KERNEL_SPATIAL),
    ("b", "f", ConvolutionField.OUTPUT_BATCH, ConvolutionField.OUTPUT_FEATURE,
     ConvolutionField.OUTPUT_SPATIAL),
)  # fmt: skip


def _parse_dim_labels(text: str) -> bytes:
    match = re.fullmatch(r"(\w+?)_(\w+)->(\w+)", text)
    if not match:
        raise BadAttributeError(f"'{text}' is not like b01f_01io->b01f")
    out = b""
    for given, (first, second, a, b, spatial) in zip(match.groups(), _SIDES, strict=True):
        digits = sorted(c for c in given if c.isdigit())
        if sorted(given) != sorted([first, second, *digits]):
            raise BadAttributeError(f"'{given}' does not have {first}, {second} and digits once")
        out += wire.integer(a, given.index(first)) + wire.integer(b, given.index(second))
        out += wire.integers(spatial, [given.index(digit) for digit in digits])
    return wire.delimited(F.CONVOLUTION, out)


def _show_dim_labels(i: Message) -> str:
    numbers_ = i.message(F.CONVOLUTION)
    if numbers_ is None:
        return ""
    shown: list[str] = []
    for first, second, a, b, spatial in _SIDES:
        places = {numbers_.integer(a): first, numbers_.integer(b): second}
        places |= {dim: str(n) for n, dim in enumerate(numbers_.integers(spatial))}
        shown.append("".join(places[place] for place in sorted(places)))
    return f"{shown[0]}_{shown[1]}->{shown[2]}"


# ``b01f_01io->b01f``.
DIM_LABELS = _as_text(_parse_dim_labels, _show_dim_labels)


def _parse_groups(text: str) -> ReplicaGroups:
    if text.startswith("{"):
        return tuple([numbers(group) for group in re.findall(r"\{([\d,\s]*)\}", text[1:-1])])
    match = re.fullmatch(r"\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text.replace(" ", ""))
    if not match:
        raise BadAttributeError(f"'{text}' is no list of replica groups")
    return iota_groups(int(match[1]), int(match[2]), numbers(match[3]), numbers(match[4] or ""))


def _parse_pairs(text: str) -> ReplicaGroups:
    pairs = tuple([numbers(pair) for pair in re.findall(r"\{([\d,\s]*)\}", text[1:-1])])
    if any(len(pair) != 2 for pair in pairs):
        raise BadAttributeError(f"'{text}' is no list of pairs")
    return pairs


def _show_groups(value: ReplicaGroups) -> str:
    return "{" + ",".join(map(braces, value)) + "}"


# ``{{0,1},{2,3}}``, also read as ``[2,2]<=[4]``.
GROUPS = Kind(
    _parse_groups,
    lambda value: _show_groups(value) if value else "",
    lambda _, value: write_groups(value),
    lambda i, _: read_groups(i),
)
# ``{{0,1},{1,0}}``: source and target of each transfer.
PAIRS = Kind(
    _parse_pairs,
    _show_groups,
    lambda _, value: write_pairs(value),
    lambda i, _: read_pairs(i),
)

_PRECISIONS = {"default": 0, "high": 1, "highest": 2, "packed_nibble": 3}
_PRECISION_WORDS = {value: word for word, value in _PRECISIONS.items()}


def _parse_precision(text: str) -> Integers:
    words = re.findall(r"\w+", text)
    if any(word not in _PRECISIONS for word in words):
        raise BadAttributeError(f"'{text}' is none of {', '.join(_PRECISIONS)}")
    return tuple([_PRECISIONS[word] for word in words])


def _show_precision(value: Integers) -> str:
    words = [_PRECISION_WORDS.get(item, "default") for item in value]
    return "{" + ",".join(words) + "}" if any(value) else ""


# ``{highest,default}``: one word per operand; nothing where all are the default.
PRECISION = Kind(_parse_precision, _show_precision, wire.integers, Message.integers)

_TEXT = r'"((?:[^"\\]|\\.)*)"'
_METADATA = {
    "op_type": MetadataField.OP_TYPE,
    "op_name": MetadataField.OP_NAME,
    "source_file": MetadataField.SOURCE_FILE,
}
_METADATA_NUMBERS = {
    "source_line": MetadataField.SOURCE_LINE,
    "stack_frame_id": MetadataField.STACK_FRAME_ID,
}


def _parse_metadata(text: str) -> bytes:
    out = b""
    for key, value in re.findall(rf"(\w+)={_TEXT}", text, re.DOTALL):
        if key in _METADATA:
            out += wire.text(_METADATA[key], unquoted(f'"{value}"'))
    for key, value in re.findall(r"(\w+)=(\d+)", re.sub(_TEXT, '""', text, flags=re.DOTALL)):
        if key in _METADATA_NUMBERS:
            out += wire.integer(_METADATA_NUMBERS[key], int(value))
    return wire.delimited(F.METADATA, out)


def _show_metadata(i: Message) -> str:
    found = i.message(F.METADATA)
    if found is None:
        return ""
    parts = [f"{k}={quoted(found.text(n))}" for k, n in _METADATA.items() if found.has(n)]
    parts += [f"{k}={found.integer(n)}" for k, n in _METADATA_NUMBERS.items() if found.has(n)]
    return "{" + " ".join(parts) + "}" if parts else ""


# ``{op_name="f" source_line=3}``.
METADATA = _as_text(_parse_metadata, _show_metadata)


def parse_map(text: str) -> bytes:
    """The entries of ``{a="1",b="2"}``."""
    pairs = re.findall(rf"([\w.\-]+)=(?:{_TEXT}|([^,{{}}]+))", text[1:-1], re.DOTALL)
    return b"".join(
        wire.delimited(
            MapField.ENTRIES,
            wire.text(MapField.KEY, key)
            + wire.text(MapField.VALUE, word or unquoted(f'"{string}"')),
        )
        for key, string, word in pairs
    )


def show_map(found: Message | None) -> str:
    """``{a="1",b="2"}``, empty for none."""
    entries = found.messages(MapField.ENTRIES) if found else []
    pairs = [f"{e.text(MapField.KEY)}={quoted(e.text(MapField.VALUE))}" for e in entries]
    return "{" + ",".join(pairs) + "}" if pairs else ""


# ``{a="1",b="2"}``.
FRONTEND_ATTRIBUTES = _as_text(
    lambda text: wire.delimited(F.FRONTEND_ATTRIBUTES, parse_map(text)),
    lambda i: show_map(i.message(F.FRONTEND_ATTRIBUTES)),
)
# A string, or JSON as it stands.
CONFIG = Kind(
    unquoted, quoted, wire.text, lambda i, number: i.data(number).decode("utf-8", "replace")
)

_SHARDINGS = {"replicated": 0, "maximal": 1, "devices": 3, "manual": 4, "unknown": 5}


def _parse_sharding(text: str) -> int:
    word = next(iter(re.findall(r"[a-z]+", text)), "")
    return 2 if text.startswith("{{") else _SHARDINGS.get(word, 5)


def _show_sharding(value: int) -> str:
    return {0: "{replicated}", 4: "{manual}"}.get(value, "")


# The kind of a sharding: a tuple, or its first word. Tile assignments are not kept.
SHARDING = Kind(_parse_sharding, _show_sharding, wire.integer, Message.integer)


def _parse_aliasing(text: str) -> bytes:
    out: list[bytes] = []
    for target, operand, index in re.findall(r"\{([\d,\s]*)\}:\s*\((\d+),\s*\{([\d,\s]*)\}", text):
        inner = wire.integers(1, numbers(target)) + wire.integer(2, int(operand))
        inner += wire.integers(3, numbers(index))
        out.append(wire.delimited(F.OUTPUT_OPERAND_ALIASING, inner))
    return b"".join(out)


def _show_aliasing(i: Message) -> str:
    parts = [
        f"{braces(item.integers(1))}: ({item.integer(2)}, {braces(item.integers(3))})"
        for item in i.messages(F.OUTPUT_OPERAND_ALIASING)
    ]
    return "{" + ", ".join(parts) + "}" if parts else ""


# ``{{}: (0, {})}``: result index, operand and operand index of each alias.
ALIASING = _as_text(_parse_aliasing, _show_aliasing)
