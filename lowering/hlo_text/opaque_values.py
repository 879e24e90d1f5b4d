"""Values of HLO attributes that no op of the IR has: each is kept as its own text."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection

from graphgen.errors import GraphgenError
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import (
    AliasField,
    ConvolutionField,
    InstructionField,
    MapField,
    RareField,
)
from graphgen.lowering.hlo_proto.shape import read_shape, write_shape
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.hlo_text.attribute_values import ValueKind, braces, numbers
from graphgen.lowering.hlo_text.constants_text import parse_stated_literal, show_stated_literal
from graphgen.lowering.hlo_text.hlo_shapes import parse_shape
from graphgen.lowering.hlo_text.hlo_sharding import (
    HloSharding,
    parse_sharding,
    read_sharding,
    write_sharding,
)
from graphgen.lowering.hlo_text.metadata import parse_metadata, show_metadata
from graphgen.lowering.hlo_text.text_values import (
    STRING,
    BadAttributeError,
    inside,
    quoted,
    quoted_bytes,
    split_items,
    unquoted,
    unquoted_bytes,
)


def _pairs(text: str) -> dict[str, str]:
    """The parts of ``{a=1,b={c}}``."""
    found: dict[str, str] = {}
    for item in split_items(inside(text)):
        key, equals, value = item.partition("=")
        if not equals:
            raise BadAttributeError(f"'{item[:40]}' is not like key=value")
        found[key.strip()] = value.strip()
    return found


def _shown(value: float) -> str:
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


# Statistics: 1 is the index of the one to look at, 2 the list of names and values.
def parse_statistics(text: str) -> bytes:
    """A StatisticsViz of ``{visualizing_index=1,a=0.5,b=2}``."""
    found = _pairs(text)
    index = int(found.pop("visualizing_index", "0"))
    rows = [
        wire.text(1, name) + wire.fixed64(2, struct.pack("<d", float(value)))
        for name, value in found.items()
    ]
    return wire.integer(1, index) + b"".join([wire.delimited(2, row) for row in rows])


def show_statistics(found: Message) -> str:
    """The text of a StatisticsViz, empty without statistics."""
    rows = found.messages(2)
    if not rows:
        return ""
    parts = [f"visualizing_index={found.integer(1)}"]
    for row in rows:
        value = struct.unpack("<d", row.data(2))[0] if row.has(2) else 0.0
        parts.append(f"{row.text(1)}={_shown(value)}")
    return "{" + ",".join(parts) + "}"


_MODES = {"default": 0, "highest": 1}
_TOLERANCES = {"atol": 1, "rtol": 2}


def parse_accuracy(text: str) -> bytes:
    """A ResultAccuracy of ``{mode=highest}`` or ``{tolerance={atol=0.1,rtol=0,ulps=3}}``."""
    found = _pairs(text)
    if "mode" in found:
        if found["mode"] not in _MODES:
            raise BadAttributeError(f"'{found['mode']}' is none of {', '.join(_MODES)}")
        return wire.integer(1, _MODES[found["mode"]])
    bounds = _pairs(found.get("tolerance", ""))
    out = b"".join(
        [
            wire.fixed64(number, struct.pack("<d", float(bounds.get(key, "0"))))
            for key, number in _TOLERANCES.items()
        ]
    )
    return wire.delimited(2, out + wire.integer(3, int(bounds.get("ulps", "0"))))


def show_accuracy(found: Message) -> str:
    """The text of a ResultAccuracy, empty for the default."""
    if found.integer(1):
        return "{mode=highest}"
    bounds = found.message(2)
    if bounds is None:
        return ""
    parts = [
        f"{key}={_shown(struct.unpack('<d', bounds.data(number))[0] if bounds.has(number) else 0)}"
        for key, number in _TOLERANCES.items()
    ]
    return f"{{tolerance={{{','.join([*parts, f'ulps={bounds.integer(3)}'])}}}}}"


# Elements of a tuple, and sizes of a convolution.
_MOST_PLACES = 1 << 16
# The value an instruction had before a transformation: arrays by their place in a tuple.
_LEAF = re.compile(rf"\{{\s*(?:{STRING}\s*(?:\{{([\d,\s]*)\}})?)?\s*\}}", re.DOTALL)


def parse_origin(text: str) -> bytes:
    """An OriginalValueProto of ``{{"v"}}`` or ``{({"a" {0}}, {"b"})}``."""
    body = inside(text)
    if body == "[synthetic_call]" or body == "synthetic_call":
        return wire.integer(2, 1)
    out: list[bytes] = []
    _origin(body, (), out)
    return b"".join(out)


def _origin(text: str, place: tuple[int, ...], out: list[bytes]) -> None:
    if text.startswith("("):
        for number, item in enumerate(split_items(inside(text))):
            _origin(item, (*place, number), out)
        return
    match = _LEAF.fullmatch(text)
    if match is None:
        raise BadAttributeError(f"'{text[:40]}' is not understood in an origin")
    element = wire.integers(1, place)
    if match[1] is not None:
        index = [int(item) for item in re.findall(r"\d+", match[2] or "")]
        array = wire.text(1, unquoted(f'"{match[1]}"')) + wire.integers(2, index)
        element += wire.delimited(2, array)
    out.append(wire.delimited(1, element))


def show_origin(found: Message) -> str:
    """The text of an OriginalValueProto, empty for an empty one."""
    if found.integer(2):
        return "{[synthetic_call]}"
    leaves = {item.integers(1): item.message(2) for item in found.messages(1)}
    return "{" + _shown_origin(leaves, ()) + "}" if leaves else ""


def _shown_origin(leaves: dict[tuple[int, ...], Message | None], place: tuple[int, ...]) -> str:
    if place in leaves:
        array = leaves[place]
        if array is None:
            return "{}"
        index = ",".join(map(str, array.integers(2)))
        return f"{{{quoted(array.text(1))}{f' {{{index}}}' if index else ''}}}"
    depth = len(place)
    below = [key[depth] for key in leaves if key[:depth] == place and len(key) > depth]
    inner = [_shown_origin(leaves, (*place, number)) for number in range(_places(below))]
    return "(" + ", ".join(inner) + ")"


def _places(given: Collection[int]) -> int:
    """The number of places up to the last one that is given (GG0801 for a damaged one)."""
    count = max(given, default=-1) + 1
    if not 0 <= min(given, default=0) <= count <= _MOST_PLACES:
        raise GraphgenError(
            "GG0801", f"place {count - 1} is out of range: at most {_MOST_PLACES} are read"
        )
    return count


def parse_domain(text: str) -> bytes:
    """Both shardings of ``{kind="sharding", entry={replicated}, exit={manual}}``, as fields."""
    found = _pairs(text)
    if unquoted(found.get("kind", "")) != "sharding":
        raise BadAttributeError("a domain is of kind sharding")
    return b"".join(
        [
            wire.delimited(number, write_sharding(parse_sharding(found[key])))
            for key, number in _DIM_FIELDS.items()
            if key in found
        ]
    )


# Seen from the users in the text, from the operand in the protobuf.
_DIM_FIELDS = {
    "entry": RareField.DOMAIN_EXIT_SHARDING,
    "exit": RareField.DOMAIN_ENTRY_SHARDING,
}


def show_domain(instruction: Message) -> str:
    """The text of both shardings, empty for none."""
    sides = {key: instruction.message(number) for key, number in _DIM_FIELDS.items()}
    parts = [f"{key}={read_sharding(side).full_text}" for key, side in sides.items() if side]
    return "{" + ", ".join(['kind="sharding"', *parts]) + "}" if parts else ""


F = InstructionField


def _as_text(parse: Callable[[str], bytes], show: Callable[[Message], str]) -> ValueKind[str]:
    """A value kept as its text; ``parse`` and ``show`` work on the whole field."""
    return ValueKind(str, str, lambda _, text: parse(text), lambda i, _: show(i))


_DIM_LABELS = (
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
    for given, (first, second, a, b, spatial) in zip(match.groups(), _DIM_LABELS, strict=True):
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
    for first, second, a, b, spatial in _DIM_LABELS:
        places = {numbers_.integer(a): first, numbers_.integer(b): second}
        places |= {dim: str(n) for n, dim in enumerate(numbers_.integers(spatial))}
        rank = _places(places)
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
