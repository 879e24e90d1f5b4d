"""Structured values of HLO text, such as windows and replica groups, and the fields behind them."""

from __future__ import annotations

import json
import re

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
    iota_groups,
    read_groups,
    read_pairs,
    write_groups,
    write_pairs,
)
from graphgen.lowering.hlo.proto.wire import Message

F = InstructionField


class BadAttributeError(Exception):
    """A value that an attribute cannot have."""


def numbers(text: str) -> list[int]:
    """The integers in a text, in order."""
    return [int(item) for item in re.findall(r"-?\d+", text)]


def braces(values: tuple[int, ...]) -> str:
    """``{0,1}``."""
    return "{" + ",".join(map(str, values)) + "}"


def quoted(text: str) -> str:
    """A string as HLO text writes it."""
    return json.dumps(text, ensure_ascii=False)


def unquoted(text: str) -> str:
    """The string behind :func:`quoted`, or a bare word as it stands."""
    if not text.startswith('"'):
        return text
    out = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text[1:-1])
    simple = {"n": "\n", "t": "\t", "r": "\r"}
    return re.sub(r"\\(.)", lambda m: simple.get(m[1], m[1]), out, flags=re.DOTALL)


def integer_of(text: str) -> int:
    """A whole number."""
    if not re.fullmatch(r"-?\d+", text):
        raise BadAttributeError(f"'{text}' is not an integer")
    return int(text)


def boolean_of(text: str) -> int:
    """1 for true, 0 for false."""
    if text not in ("true", "false"):
        raise BadAttributeError(f"'{text}' is neither true nor false")
    return int(text == "true")


def parse_slices(text: str) -> bytes:
    """The field behind ``{[0:1], [0:8:2]}``."""
    out: list[bytes] = []
    for part in re.findall(r"\[([^\]]*)\]", text):
        bounds = numbers(part)
        if len(bounds) not in (2, 3):
            raise BadAttributeError(f"'[{part}]' is not start:limit or start:limit:stride")
        start, limit, stride = (*bounds, 1)[:3]
        out.append(
            wire.delimited(
                F.SLICES,
                wire.integer(SliceField.START, start)
                + wire.integer(SliceField.LIMIT, limit)
                + wire.integer(SliceField.STRIDE, stride),
            )
        )
    return b"".join(out)


def show_slices(i: Message) -> str:
    """``{[0:1], [0:8:2]}``, or nothing."""
    parts: list[str] = []
    for item in i.messages(F.SLICES):
        stride = item.integer(SliceField.STRIDE, 1)
        text = f"{item.integer(SliceField.START)}:{item.integer(SliceField.LIMIT)}"
        parts.append(f"[{text}:{stride}]" if stride != 1 else f"[{text}]")
    return "{" + ", ".join(parts) + "}"


def parse_padding(text: str) -> bytes:
    """The field behind ``0_1x2_0_1``."""
    out: list[bytes] = []
    for part in text.split("x") if text else []:
        edges = [integer_of(item) for item in part.split("_")]
        if len(edges) not in (2, 3):
            raise BadAttributeError(f"'{part}' is not low_high or low_high_interior")
        out.append(
            wire.delimited(
                PaddingField.DIMENSIONS,
                wire.integer(PaddingField.LOW, edges[0])
                + wire.integer(PaddingField.HIGH, edges[1])
                + wire.integer(PaddingField.INTERIOR, edges[2] if len(edges) > 2 else 0),
            )
        )
    return wire.delimited(F.PADDING, b"".join(out))


def show_padding(i: Message) -> str:
    """``0_1x2_0_1``, or nothing."""
    config = i.message(F.PADDING)
    parts: list[str] = []
    for item in config.messages(PaddingField.DIMENSIONS) if config else []:
        edges = [item.integer(PaddingField.LOW), item.integer(PaddingField.HIGH)]
        inner = item.integer(PaddingField.INTERIOR)
        parts.append("_".join(map(str, [*edges, inner] if inner else edges)))
    return "x".join(parts)


# HLO text's name of each part of a window, its field, and the value that is not written.
_WINDOW: dict[str, tuple[int, int]] = {
    "size": (WindowField.SIZE, -1),
    "stride": (WindowField.STRIDE, 1),
    "lhs_dilate": (WindowField.BASE_DILATION, 1),
    "rhs_dilate": (WindowField.WINDOW_DILATION, 1),
    "rhs_reversal": (WindowField.REVERSAL, 0),
}


def parse_window(text: str) -> bytes:
    """The field behind ``{size=3x3 pad=1_1x1_1}``."""
    parts = {
        key: value.split("x") for key, value in re.findall(r"(\w+)=([\dx_\-]+)", text.strip("{}"))
    }
    count = len(parts.get("size", ()))
    dims: list[bytes] = []
    for index in range(count):
        out = b""
        for key, (number, default) in _WINDOW.items():
            given = parts.get(key)
            out += wire.integer(number, integer_of(given[index]) if given else default)
        edges = parts.get("pad", ["0_0"] * count)[index].split("_")
        out += wire.integer(WindowField.PADDING_LOW, integer_of(edges[0]))
        out += wire.integer(WindowField.PADDING_HIGH, integer_of(edges[-1]))
        dims.append(wire.delimited(WindowField.DIMENSIONS, out))
    return wire.delimited(F.WINDOW, b"".join(dims))


def show_window(i: Message) -> str:
    """``{size=3x3 pad=1_1x1_1}``, or nothing."""
    window = i.message(F.WINDOW)
    dims = window.messages(WindowField.DIMENSIONS) if window else []
    if not dims:
        return ""
    parts: list[str] = []
    for key, (number, default) in _WINDOW.items():
        values = [item.integer(number) for item in dims]
        if any(value != default for value in values):
            parts.append(f"{key}={'x'.join(map(str, values))}")
    pads = [
        (item.integer(WindowField.PADDING_LOW), item.integer(WindowField.PADDING_HIGH))
        for item in dims
    ]
    if any(low or high for low, high in pads):
        parts.insert(1, "pad=" + "x".join(f"{low}_{high}" for low, high in pads))
    return "{" + " ".join(parts) + "}"


_SIDES = (
    ("b", "f", ConvolutionField.INPUT_BATCH, ConvolutionField.INPUT_FEATURE,
     ConvolutionField.INPUT_SPATIAL),
    ("i", "o", ConvolutionField.KERNEL_INPUT_FEATURE, ConvolutionField.KERNEL_OUTPUT_FEATURE,
     ConvolutionField.KERNEL_SPATIAL),
    ("b", "f", ConvolutionField.OUTPUT_BATCH, ConvolutionField.OUTPUT_FEATURE,
     ConvolutionField.OUTPUT_SPATIAL),
)  # fmt: skip


def parse_dim_labels(text: str) -> bytes:
    """The field behind ``b01f_01io->b01f``."""
    match = re.fullmatch(r"(\w+?)_(\w+)->(\w+)", text)
    if not match:
        raise BadAttributeError(f"'{text}' is not like b01f_01io->b01f")
    out = b""
    for labels, (first, second, a, b, spatial) in zip(match.groups(), _SIDES, strict=True):
        digits = sorted(c for c in labels if c.isdigit())
        if sorted(labels) != sorted([first, second, *digits]):
            raise BadAttributeError(f"'{labels}' does not have {first}, {second} and digits once")
        out += wire.integer(a, labels.index(first)) + wire.integer(b, labels.index(second))
        out += wire.integers(spatial, [labels.index(digit) for digit in digits])
    return wire.delimited(F.CONVOLUTION, out)


def show_dim_labels(i: Message) -> str:
    """``b01f_01io->b01f``, or nothing."""
    numbers_ = i.message(F.CONVOLUTION)
    if numbers_ is None:
        return ""
    shown: list[str] = []
    for first, second, a, b, spatial in _SIDES:
        places = {numbers_.integer(a): first, numbers_.integer(b): second}
        places |= {dim: str(n) for n, dim in enumerate(numbers_.integers(spatial))}
        shown.append("".join(places[place] for place in sorted(places)))
    return f"{shown[0]}_{shown[1]}->{shown[2]}"


def parse_groups(text: str) -> bytes:
    """The field behind ``{{0,1},{2,3}}``."""
    if text.startswith("{"):
        return write_groups([numbers(group) for group in re.findall(r"\{([\d,\s]*)\}", text[1:-1])])
    match = re.fullmatch(r"\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text.replace(" ", ""))
    if not match:
        raise BadAttributeError(f"'{text}' is no list of replica groups")
    found = iota_groups(int(match[1]), int(match[2]), numbers(match[3]), numbers(match[4] or ""))
    return write_groups(found)


def show_groups(i: Message) -> str:
    """``{{0,1},{2,3}}``, or nothing."""
    groups = read_groups(i)
    return "{" + ",".join(map(braces, groups)) + "}" if groups else ""


def parse_pairs(text: str) -> bytes:
    """The field behind ``{{0,1},{1,0}}``."""
    pairs = [numbers(pair) for pair in re.findall(r"\{([\d,\s]*)\}", text[1:-1])]
    if any(len(pair) != 2 for pair in pairs):
        raise BadAttributeError(f"'{text}' is no list of pairs")
    return write_pairs(pairs)


def show_pairs(i: Message) -> str:
    """``{{0,1},{1,0}}``, or nothing."""
    return "{" + ",".join(map(braces, read_pairs(i))) + "}"


_PRECISIONS = {"default": 0, "high": 1, "highest": 2, "packed_nibble": 3}


def parse_precision(text: str) -> bytes:
    """The field behind ``{highest,default}``."""
    words = re.findall(r"\w+", text)
    if any(word not in _PRECISIONS for word in words):
        raise BadAttributeError(f"'{text}' is none of {', '.join(_PRECISIONS)}")
    return wire.delimited(F.PRECISION, wire.integers(1, [_PRECISIONS[word] for word in words]))


def show_precision(i: Message) -> str:
    """``{highest,default}``, or nothing."""
    found = i.message(F.PRECISION)
    values = found.integers(1) if found else ()
    names = {value: word for word, value in _PRECISIONS.items()}
    shown = "{" + ",".join(names.get(value, "default") for value in values) + "}"
    return shown if any(values) else ""


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


def parse_metadata(text: str) -> bytes:
    """The field behind ``{op_name="f" source_line=3}``."""
    out = b""
    for key, value in re.findall(rf"(\w+)={_TEXT}", text, re.DOTALL):
        if key in _METADATA:
            out += wire.text(_METADATA[key], unquoted(f'"{value}"'))
    for key, value in re.findall(r"(\w+)=(\d+)", re.sub(_TEXT, '""', text, flags=re.DOTALL)):
        if key in _METADATA_NUMBERS:
            out += wire.integer(_METADATA_NUMBERS[key], int(value))
    return wire.delimited(F.METADATA, out)


def show_metadata(i: Message) -> str:
    """``{op_name="f" source_line=3}``, or nothing."""
    found = i.message(F.METADATA)
    if found is None:
        return ""
    parts = [f"{k}={quoted(found.text(n))}" for k, n in _METADATA.items() if found.has(n)]
    parts += [f"{k}={found.integer(n)}" for k, n in _METADATA_NUMBERS.items() if found.has(n)]
    return "{" + " ".join(parts) + "}" if parts else ""


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


def parse_config(text: str) -> bytes:
    """A string, or JSON as it stands."""
    return wire.text(F.BACKEND_CONFIG, unquoted(text))


def show_config(i: Message) -> str:
    """A string, or JSON as it stands."""
    return (
        quoted(i.data(F.BACKEND_CONFIG).decode("utf-8", "replace"))
        if i.has(F.BACKEND_CONFIG)
        else ""
    )


_SHARDINGS = {"replicated": 0, "maximal": 1, "devices": 3, "manual": 4, "unknown": 5}


def parse_sharding(text: str) -> bytes:
    """Only what kind it is: a tuple, or the first word."""
    word = next(iter(re.findall(r"[a-z]+", text)), "")
    kind = 2 if text.startswith("{{") else _SHARDINGS.get(word, 5)
    return wire.delimited(F.SHARDING, wire.integer(1, kind))


def show_sharding(i: Message) -> str:
    """Its kind; what is split how is not kept."""
    found = i.message(F.SHARDING)
    kind = found.integer(1) if found else -1
    word = next((word for word, number in _SHARDINGS.items() if number == kind), "")
    return "{" + word + "}" if word in ("replicated", "manual") else ""


def parse_aliasing(text: str) -> bytes:
    """The field behind ``{{}: (0, {})}``."""
    out: list[bytes] = []
    for target, operand, index in re.findall(r"\{([\d,\s]*)\}:\s*\((\d+),\s*\{([\d,\s]*)\}", text):
        inner = wire.integers(1, numbers(target)) + wire.integer(2, int(operand))
        inner += wire.integers(3, numbers(index))
        out.append(wire.delimited(F.OUTPUT_OPERAND_ALIASING, inner))
    return b"".join(out)


def show_aliasing(i: Message) -> str:
    """``{{}: (0, {})}``, or nothing."""
    parts = [
        f"{braces(item.integers(1))}: ({item.integer(2)}, {braces(item.integers(3))})"
        for item in i.messages(F.OUTPUT_OPERAND_ALIASING)
    ]
    return "{" + ", ".join(parts) + "}" if parts else ""
