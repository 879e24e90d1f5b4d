"""Parse and print small tables in HLO text: statistics, accuracy, original values, domains."""

from __future__ import annotations

import re
import struct

from graphgen.lowering.hlo.proto import wire
from graphgen.lowering.hlo.proto.fields import RareField
from graphgen.lowering.hlo.proto.hlo_sharding import (
    parse_sharding,
    read_sharding,
    write_sharding,
)
from graphgen.lowering.hlo.proto.wire import Message
from graphgen.lowering.hlo.text.values.bad_attribute import BadAttributeError
from graphgen.lowering.hlo.text.values.brackets import inside, split_items
from graphgen.lowering.hlo.text.values.quoted import STRING, quoted, unquoted


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
    inner = [
        _shown_origin(leaves, (*place, number)) for number in range(max(below, default=-1) + 1)
    ]
    return "(" + ", ".join(inner) + ")"


def parse_domain(text: str) -> bytes:
    """Both shardings of ``{kind="sharding", entry={replicated}, exit={manual}}``, as fields."""
    found = _pairs(text)
    if unquoted(found.get("kind", "")) != "sharding":
        raise BadAttributeError("a domain is of kind sharding")
    return b"".join(
        [
            wire.delimited(number, write_sharding(parse_sharding(found[key])))
            for key, number in _SIDES.items()
            if key in found
        ]
    )


# Seen from the users in the text, from the operand in the protobuf.
_SIDES = {
    "entry": RareField.DOMAIN_EXIT_SHARDING,
    "exit": RareField.DOMAIN_ENTRY_SHARDING,
}


def show_domain(instruction: Message) -> str:
    """The text of both shardings, empty for none."""
    sides = {key: instruction.message(number) for key, number in _SIDES.items()}
    parts = [f"{key}={read_sharding(side).full_text}" for key, side in sides.items() if side]
    return "{" + ", ".join(['kind="sharding"', *parts]) + "}" if parts else ""
