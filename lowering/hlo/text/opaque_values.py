"""Values of HLO attributes that no op of the IR has: each is kept as its own text."""

from __future__ import annotations

import re
from collections.abc import Callable

from graphgen.lowering.hlo.proto import wire
from graphgen.lowering.hlo.proto.fields import (
    AliasField,
    ConvolutionField,
    InstructionField,
    MapField,
    MetadataField,
)
from graphgen.lowering.hlo.proto.wire import Message
from graphgen.lowering.hlo.text.attribute_values import (
    BadAttributeError,
    ValueKind,
    braces,
    numbers,
    quoted,
    unquoted,
)

F = InstructionField


def _as_text(parse: Callable[[str], bytes], show: Callable[[Message], str]) -> ValueKind[str]:
    """A value kept as its text; ``parse`` and ``show`` work on the whole field."""
    return ValueKind(str, str, lambda _, text: parse(text), lambda i, _: show(i))


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
MAP: ValueKind[str] = ValueKind(
    str,
    str,
    lambda number, text: wire.delimited(number, parse_map(text)),
    lambda i, number: show_map(i.message(number)),
)
# A string, or JSON as it stands.
CONFIG = ValueKind(
    unquoted, quoted, wire.text, lambda i, number: i.data(number).decode("utf-8", "replace")
)

_SHARDINGS = {"replicated": 0, "maximal": 1, "devices": 3, "manual": 4, "unknown": 5}


def _parse_sharding(text: str) -> int:
    word = next(iter(re.findall(r"[a-z]+", text)), "")
    return 2 if text.startswith("{{") else _SHARDINGS.get(word, 5)


def _show_sharding(value: int) -> str:
    return {0: "{replicated}", 4: "{manual}"}.get(value, "")


# The kind of a sharding: a tuple, or its first word. Tile assignments are not kept.
SHARDING = ValueKind(_parse_sharding, _show_sharding, wire.integer, Message.integer)


# A path into a tuple: ``{1}``, ``{}``.
_INDEX = r"\{([\d,\s]*)\}"


def _parse_aliasing(text: str) -> bytes:
    out: list[bytes] = []
    for target, operand, index in re.findall(rf"{_INDEX}:\s*\((\d+),\s*{_INDEX}", text):
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


def _table(parse: Callable[[str], list[bytes]], show: Callable[[Message], str]) -> ValueKind[str]:
    """A message of entries, which ``parse`` and ``show`` handle; kept as its text."""

    def encode(number: int, text: str) -> bytes:
        entries = [wire.delimited(AliasField.ENTRIES, inner) for inner in parse(text)]
        return wire.delimited(number, b"".join(entries)) if entries else b""

    def decode(message: Message, number: int) -> str:
        table = message.message(number)
        parts = [show(item) for item in (table.messages(AliasField.ENTRIES) if table else [])]
        return "{ " + ", ".join(parts) + " }" if parts else ""

    return ValueKind(str, str, encode, decode)


_MAY_ALIAS = 1


def _parse_aliases(text: str) -> list[bytes]:
    pattern = rf"{_INDEX}:\s*(?:\((\d+),\s*{_INDEX}(?:,\s*([\w\-]+))?\)|(\d+))"
    return [
        wire.integers(AliasField.OUTPUT_INDEX, numbers(output))
        + wire.integer(AliasField.PARAMETER, int(number or plain))
        + wire.integers(AliasField.PARAMETER_INDEX, numbers(index))
        + wire.integer(
            AliasField.KIND, _MAY_ALIAS if kind == "may-alias" else AliasField.MUST_ALIAS
        )
        for output, number, index, kind, plain in re.findall(pattern, text[1:-1])
    ]


def _show_alias(item: Message) -> str:
    kind = "may-alias" if item.integer(AliasField.KIND) == _MAY_ALIAS else "must-alias"
    output = braces(item.integers(AliasField.OUTPUT_INDEX))
    index = braces(item.integers(AliasField.PARAMETER_INDEX))
    return f"{output}: ({item.integer(AliasField.PARAMETER)}, {index}, {kind})"


# ``{ {1}: (3, {}, must-alias), {}: 2 }``: output index, parameter and parameter index per alias.
MODULE_ALIASES = _table(_parse_aliases, _show_alias)


def _parse_donors(text: str) -> list[bytes]:
    return [
        wire.integer(AliasField.DONOR_PARAMETER, int(number))
        + wire.integers(AliasField.DONOR_INDEX, numbers(index))
        for number, index in re.findall(rf"\((\d+),\s*{_INDEX}\)", text)
    ]


def _show_donor(item: Message) -> str:
    index = braces(item.integers(AliasField.DONOR_INDEX))
    return f"({item.integer(AliasField.DONOR_PARAMETER)}, {index})"


# ``{ (0, {}), (2, {1}) }``: parameter and parameter index of each donor.
BUFFER_DONORS = _table(_parse_donors, _show_donor)
