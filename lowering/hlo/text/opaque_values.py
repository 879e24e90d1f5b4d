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
)
from graphgen.lowering.hlo.proto.hlo_sharding import (
    HloSharding,
    parse_sharding,
    read_sharding,
    write_sharding,
)
from graphgen.lowering.hlo.proto.shape import read_shape, write_shape
from graphgen.lowering.hlo.proto.wire import Message
from graphgen.lowering.hlo.text.attribute_values import ValueKind, braces, numbers
from graphgen.lowering.hlo.text.hlo_shapes import parse_shape
from graphgen.lowering.hlo.text.values.bad_attribute import BadAttributeError
from graphgen.lowering.hlo.text.values.brackets import inside, split_items
from graphgen.lowering.hlo.text.values.constants_text import (
    parse_stated_literal,
    show_stated_literal,
)
from graphgen.lowering.hlo.text.values.metadata import parse_metadata, show_metadata
from graphgen.lowering.hlo.text.values.quoted import quoted_bytes, unquoted_bytes
from graphgen.lowering.hlo.text.values.tables import (
    parse_accuracy,
    parse_domain,
    parse_origin,
    parse_statistics,
    show_accuracy,
    show_domain,
    show_origin,
    show_statistics,
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
    # A question mark stands for a dimension outside of the convolution.
    match = re.fullmatch(r"([\w?]+?)_([\w?]+)->([\w?]+)", text.replace(" ", ""))
    if not match:
        raise BadAttributeError(f"'{text}' is not like b01f_01io->b01f")
    out = b""
    for given, (first, second, a, b, spatial) in zip(match.groups(), _SIDES, strict=True):
        digits = sorted(c for c in given if c.isdigit())
        if sorted(given.replace("?", "")) != sorted([first, second, *digits]):
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
        rank = max(places, default=-1) + 1
        shown.append("".join([places.get(place, "?") for place in range(rank)]))
    return f"{shown[0]}_{shown[1]}->{shown[2]}"


# ``b01f_01io->b01f``.
DIM_LABELS = _as_text(_parse_dim_labels, _show_dim_labels)


# Prefix of an attribute of a text that has no row, kept among the frontend attributes.
UNKNOWN_ATTRIBUTE = "hlo_text."


def parse_map(text: str) -> bytes:
    """The entries of ``{a="1",b={"of": "JSON"}}``."""
    entries: list[bytes] = []
    for item in split_items(inside(text)):
        key, equals, value = item.partition("=")
        if not equals:
            raise BadAttributeError(f"'{item[:40]}' is not like key=value")
        entry = wire.text(MapField.KEY, key.strip())
        data = unquoted_bytes(value.strip())
        entries.append(entry + (wire.delimited(MapField.VALUE, data) if data else b""))
    return b"".join([wire.delimited(MapField.ENTRIES, entry) for entry in entries])


def show_map(found: Message | None) -> str:
    """``{a="1",b={"of": "JSON"}}``, empty for none; sorted by key, as in a map."""
    entries = found.messages(MapField.ENTRIES) if found else []
    pairs = {e.text(MapField.KEY): _show_value(e.data(MapField.VALUE)) for e in entries}
    shown = [f"{key}={pairs[key]}" for key in sorted(pairs) if not _is_unknown(key)]
    return "{" + ",".join(shown) + "}" if shown else ""


def _is_unknown(key: str) -> bool:
    """True for an attribute that is printed by itself, as it was."""
    return key.startswith(UNKNOWN_ATTRIBUTE)


def _show_value(data: bytes) -> str:
    return data.decode() if _is_dictionary(data) else quoted_bytes(data)


def _is_dictionary(data: bytes) -> bool:
    """True for bytes that may stand in a text without quotes: JSON in braces."""
    if not (data.startswith(b"{") and data.endswith(b"}") and data.isascii()):
        return False
    depth = 0
    for match in _PIECES.finditer(data):
        piece = match[0]
        depth += (piece == b"{") - (piece == b"}")
        if piece == b'"' or (depth == 0 and match.end() < len(data)):
            return False
    return depth == 0


_PIECES = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}"]', re.DOTALL)


# ``{a="1",b="2"}``.
MAP: ValueKind[str] = ValueKind(
    str,
    str,
    lambda number, text: wire.delimited(number, parse_map(text)),
    lambda i, number: show_map(i.message(number)),
)
# A string, or JSON as it stands; any bytes.
CONFIG: ValueKind[bytes] = ValueKind(unquoted_bytes, _show_value, wire.delimited, Message.data)


def _inner(parse: Callable[[str], bytes], show: Callable[[Message], str]) -> ValueKind[str]:
    """A message kept as its text; ``parse`` and ``show`` work on what is in the message."""
    return ValueKind(
        str,
        str,
        lambda number, text: wire.delimited(number, parse(text)),
        lambda i, number: show(i.message(number) or _NOTHING),
    )


_NOTHING = Message(b"")
# ``{op_name="f" source_line=3}``.
METADATA = _inner(parse_metadata, show_metadata)
# ``{devices=[2,1]<=[2]}``, ``{{replicated}, {manual}}``.
SHARDING: ValueKind[HloSharding] = ValueKind(
    parse_sharding,
    lambda sharding: sharding.full_text,
    lambda number, sharding: wire.delimited(number, write_sharding(sharding)),
    lambda i, number: read_sharding(i.message(number) or _NOTHING),
)
# ``{visualizing_index=0,a=1.5}``.
STATISTICS = _inner(parse_statistics, show_statistics)
# ``{mode=highest}``.
ACCURACY = _inner(parse_accuracy, show_accuracy)
# ``{{"x"}}``.
ORIGIN = _inner(parse_origin, show_origin)
# ``s32[2]{0} {1, 2}``.
LITERAL = _inner(parse_stated_literal, show_stated_literal)
# ``{kind="sharding", entry={replicated}, exit={manual}}``.
DOMAIN = _as_text(parse_domain, show_domain)


def _parse_operand_layouts(text: str) -> bytes:
    shapes = [write_shape(parse_shape(item)) for item in split_items(inside(text))]
    out = wire.integer(F.CONSTRAIN_LAYOUT, 1)
    return out + b"".join([wire.delimited(F.OPERAND_SHAPES_WITH_LAYOUT, item) for item in shapes])


def _show_operand_layouts(i: Message) -> str:
    shapes = [read_shape(item).text for item in i.datas(F.OPERAND_SHAPES_WITH_LAYOUT)]
    return f"{{{', '.join(shapes)}}}" if i.integer(F.CONSTRAIN_LAYOUT) else ""


# ``{f32[2,3]{0,1}, (s32[], f32[])}``: a custom call that insists on the layouts of its operands.
OPERAND_LAYOUTS = _as_text(_parse_operand_layouts, _show_operand_layouts)


def _parse_slice_lists(text: str) -> bytes:
    return wire.integers(F.DYNAMIC_SLICE_SIZES, numbers(text))


def _show_slice_lists(i: Message) -> str:
    """The field holds the lists in a row; each has a size per dimension of the array sent."""
    sizes = i.integers(F.DYNAMIC_SLICE_SIZES)
    if not sizes:
        return ""
    leaves = read_shape(i.data(F.SHAPE)).leaves
    rank = max(len(leaves[0].dims), 1) if leaves else 1
    lists = [braces(sizes[at : at + rank]) for at in range(0, len(sizes), rank)]
    return "{" + ",".join(lists) + "}"


# ``{{1,8,128},{1,8,128}}``: sizes of what a collective-permute sends, per transfer.
SLICE_LISTS = _as_text(_parse_slice_lists, _show_slice_lists)


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
        # Without a word, a plain parameter may be the alias, as old texts say it.
        + wire.integer(
            AliasField.KIND, AliasField.MUST_ALIAS if kind == "must-alias" else _MAY_ALIAS
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
