"""Parser of shapes in HLO text: ``f32[2,<=3]{1,0}``, ``(s32[], (f32[2]{0}, token[]))``."""

from __future__ import annotations

import re

from graphgen.errors import GraphgenError
from graphgen.limits import DIMS
from graphgen.lowering.hlo_proto.fields import ELEMENT_TYPES
from graphgen.lowering.hlo_proto.layout_rest import parse_layout_rest
from graphgen.lowering.hlo_proto.shape import MOST_NESTING, UNBOUNDED, HloShape
from graphgen.numbers import whole_number

_ARRAY = re.compile(r"\s*([a-z]\w*)\[([^\]]*)\](?:\s*\{([0-9,\s]*)(?::([^{}]*))?\})?\s*")
_SPACE = re.compile(r"(?:\s|/\*.*?\*/)*")
_NOTHING = re.compile(r"(?:[\s,]|/\*.*?\*/)*")
_SIZE = re.compile(r"(?:<=)?(?:[0-9]+|\?)")


def parse_shape(text: str) -> HloShape:
    """Parse a shape (GG0101 for an unknown element type, GG0201 for other text)."""
    shape, end = _parse(text, 0, MOST_NESTING)
    if text[end:].strip():
        raise GraphgenError("GG0201", f"'{text}' is not a shape")
    return shape


def take_shape(text: str) -> int:
    """The end of the shape that a text begins with (GG0201 for none)."""
    return _parse(text, 0, MOST_NESTING)[1]


def _parse(text: str, at: int, depth: int) -> tuple[HloShape, int]:
    """Parse the shape that begins at a place; the shape, and the place after it."""
    found = _SPACE.match(text, at)
    at = found.end() if found else at
    if at < len(text) and text[at] == "(":
        if depth == 0:
            raise GraphgenError("GG0201", f"tuples are nested deeper than {MOST_NESTING}")
        return _tuple(text, at + 1, depth - 1)
    match = _ARRAY.match(text, at)
    if not match:
        raise GraphgenError("GG0201", f"'{text[at : at + 40]}' is not a shape")
    return _array(match), match.end()


def _tuple(text: str, at: int, depth: int) -> tuple[HloShape, int]:
    members: list[HloShape] = []
    while True:
        found = _NOTHING.match(text, at)
        at = found.end() if found else at
        if at >= len(text):
            raise GraphgenError("GG0201", f"'{text[:40]}' is not closed")
        if text[at] == ")":
            return HloShape("tuple", members=tuple(members)), at + 1
        member, at = _parse(text, at, depth)
        members.append(member)


def _array(match: re.Match[str]) -> HloShape:
    element, sizes, order, rest = match.groups()
    if element not in ELEMENT_TYPES or element == "tuple":
        raise GraphgenError("GG0101", f"HLO element type '{element}' is unknown")
    items = [item.strip() for item in sizes.split(",")] if sizes.strip() else []
    if not all(map(_SIZE.fullmatch, items)):
        raise GraphgenError("GG0201", f"'[{sizes}]' are not sizes")
    if len(items) > DIMS.most:
        raise GraphgenError("GG0201", f"a shape of {len(items)} dims; {DIMS} are read")
    bounds = [item.removeprefix("<=") for item in items]
    dims = tuple([UNBOUNDED if item == "?" else whole_number(item) for item in bounds])
    dynamic = tuple([not item.isdecimal() for item in items])
    layout = tuple(map(whole_number, re.findall(r"[0-9]+", order))) if order else None
    if layout is not None and sorted(layout) != list(range(len(dims))):
        raise GraphgenError("GG0201", f"layout {{{order}}} of {len(dims)} dimensions")
    more = parse_layout_rest(rest) if rest else b""
    if element in ("token", "opaque"):
        return HloShape(element)
    return HloShape(element, dims, (), layout, dynamic if any(dynamic) else (), more)
