"""The rest of an HLO layout beside its order: tiles, memory space, sub-byte packing; as text too.

The rest is kept as encoded fields of the LayoutProto, so that what is unknown here stays in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from graphgen.errors import GraphgenError
from graphgen.lowering.hlo_proto.fields import ELEMENT_NAMES, ELEMENT_TYPES, LayoutField
from graphgen.lowering.hlo_proto.wire import Message, delimited, integer, integers

# The size of a tile dimension that takes in the whole of the next one, written ``*``.
_COMBINED = -(1 << 63)
_LEVELS = "DCSL"


def layout_rest(layout: Message) -> bytes:
    """The fields of a LayoutProto beside the order and what is the default of every layout."""
    if layout.fields.keys() <= _PLAIN and layout.integer(LayoutField.TAIL_PADDING, 1) == 1:
        return b""
    kept = [
        (number, piece)
        for number, piece in layout.pieces()
        if number != LayoutField.MINOR_TO_MAJOR
        and not (number == LayoutField.TAIL_PADDING and layout.integer(number) == 1)
    ]
    return b"".join([piece for _, piece in sorted(kept, key=lambda item: item[0])])


_PLAIN = {LayoutField.MINOR_TO_MAJOR, LayoutField.TAIL_PADDING}


def _sizes(text: str) -> list[int]:
    return [_COMBINED if item == "*" else int(item) for item in re.findall(r"-?\d+|\*", text)]


def _tiles(text: str) -> bytes:
    groups = re.findall(r"\(([^()]*)\)", text)
    return b"".join([delimited(LayoutField.TILES, integers(1, _sizes(item))) for item in groups])


def _number(field: int) -> Callable[[str], bytes]:
    return lambda text: integer(field, int(text.strip("()")))


def _levels(text: str) -> bytes:
    marks = [item.strip() for item in text.strip("()").split(",")]
    kinds = [_LEVELS.index(item[0]) for item in marks]
    out = integers(LayoutField.DIM_LEVEL_TYPES, kinds)
    out += integers(LayoutField.DIM_UNIQUE, ["+" not in item for item in marks])
    return out + integers(LayoutField.DIM_ORDERED, ["~" not in item for item in marks])


def _splits(text: str) -> bytes:
    groups = re.findall(r"\((\d+):([\d,]*)\)", text)
    return b"".join(
        [
            delimited(LayoutField.SPLITS, integer(1, int(dim)) + integers(2, _sizes(places)))
            for dim, places in groups
        ]
    )


def _type(field: int) -> Callable[[str], bytes]:
    return lambda text: integer(field, ELEMENT_TYPES[text.strip("()").lower()])


# By the letter in front: what follows it -> fields. In the order they are written.
_PARTS: dict[str, Callable[[str], bytes]] = {
    "D": _levels,
    "T": _tiles,
    "L": _number(LayoutField.TAIL_PADDING),
    "#": _type(LayoutField.INDEX_TYPE),
    "*": _type(LayoutField.POINTER_TYPE),
    "E": _number(LayoutField.ELEMENT_BITS),
    "S": _number(LayoutField.MEMORY_SPACE),
    "SC": _splits,
    "M": _number(LayoutField.METADATA_PREFIX),
}
_PART = re.compile(r"\s*(SC|[DTL#*ESM])((?:\([^()]*\))+)\s*")


def parse_layout_rest(text: str) -> bytes:
    """Parse what follows the colon of a layout, ``T(8,128)(2,1)S(1)`` (GG0201)."""
    out: dict[str, bytes] = {}
    at = 0
    while at < len(text):
        match = _PART.match(text, at)
        if not match or match[1] in out:
            raise GraphgenError("GG0201", f"':{text}' is not understood in a layout")
        try:
            out[match[1]] = _PARTS[match[1]](match[2])
        except (ValueError, KeyError, IndexError) as error:
            raise GraphgenError("GG0201", f"':{text}' is not understood in a layout") from error
        at = match.end()
    return layout_rest(Message(b"".join(out.values())))


def show_layout_rest(rest: bytes) -> str:
    """Print it as HLO text does, after a colon (GG0801 for a field without a form there)."""
    layout = Message(rest)
    unknown = layout.fields.keys() - _SHOWN
    if unknown:
        raise GraphgenError("GG0801", f"field {min(unknown)} of a layout has no form in HLO text")
    tiles = [item.integers(1) for item in layout.messages(LayoutField.TILES)]
    shown = {
        "D": _shown_levels(layout),
        "T": "".join([_shown_tile(tile) for tile in tiles]),
        "L": _shown_number(layout, LayoutField.TAIL_PADDING),
        "#": _shown_type(layout, LayoutField.INDEX_TYPE),
        "*": _shown_type(layout, LayoutField.POINTER_TYPE),
        "E": _shown_number(layout, LayoutField.ELEMENT_BITS),
        "S": _shown_number(layout, LayoutField.MEMORY_SPACE),
        "SC": "".join(
            [
                f"({item.integer(1)}:{','.join(map(str, item.integers(2)))})"
                for item in layout.messages(LayoutField.SPLITS)
            ]
        ),
        "M": _shown_number(layout, LayoutField.METADATA_PREFIX),
    }
    text = "".join([key + value for key, value in shown.items() if value])
    return f":{text}" if text else ""


_SHOWN = {
    *(LayoutField.TILES, LayoutField.TAIL_PADDING, LayoutField.INDEX_TYPE),
    *(LayoutField.POINTER_TYPE, LayoutField.ELEMENT_BITS, LayoutField.MEMORY_SPACE),
    *(LayoutField.SPLITS, LayoutField.METADATA_PREFIX, LayoutField.DIM_LEVEL_TYPES),
    *(LayoutField.DIM_UNIQUE, LayoutField.DIM_ORDERED),
}


def _shown_levels(layout: Message) -> str:
    kinds = layout.integers(LayoutField.DIM_LEVEL_TYPES)
    unique = layout.integers(LayoutField.DIM_UNIQUE) or (1,) * len(kinds)
    ordered = layout.integers(LayoutField.DIM_ORDERED) or (1,) * len(kinds)
    marks = [
        _LEVELS[kind] + ("" if one else "+") + ("" if sorted_ else "~")
        for kind, one, sorted_ in zip(kinds, unique, ordered, strict=True)
    ]
    return f"({','.join(marks)})" if marks else ""


def _shown_tile(sizes: tuple[int, ...]) -> str:
    return f"({','.join(['*' if size == _COMBINED else str(size) for size in sizes])})"


def _shown_number(layout: Message, field: int) -> str:
    value = layout.integer(field)
    return f"({value})" if value else ""


def _shown_type(layout: Message, field: int) -> str:
    value = layout.integer(field)
    return f"({ELEMENT_NAMES.get(value, value)})" if value else ""
