"""Constants in HLO text: parser and printer of their elements."""

from __future__ import annotations

import math
import re
import struct

from graphgen.errors import GraphgenError
from graphgen.ir import Literal
from graphgen.ir.dtype import DTYPES, DType, encode
from graphgen.lowering.hlo.proto import wire
from graphgen.lowering.hlo.proto.fields import LiteralField
from graphgen.lowering.hlo.proto.literal import read_literal, write_literal
from graphgen.lowering.hlo.proto.shape import HloShape, write_shape
from graphgen.lowering.hlo.proto.wire import Message
from graphgen.text.grammar import format_number

ELIDED = "{...}"
_ITEM = re.compile(r"\([^()]*\)|[^\s,{}()]+")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def parse_literal(text: str, shape: HloShape) -> bytes:
    """Parse a constant as a LiteralProto, without elements where those are elided.

    Raises:
        GraphgenError: GG0201 for other elements than the shape has.
    """
    if "..." in text:
        return wire.delimited(LiteralField.SHAPE, write_shape(shape))
    if shape.is_tuple:
        raise GraphgenError("GG0201", "constants that are tuples are not read")
    kind = DTYPES.get(shape.element)
    items: list[str] = _ITEM.findall(_COMMENT.sub("", text))
    if len(items) == math.prod(shape.dims) + len(shape.dims) and shape.element in items[:1]:
        items = items[len(shape.dims) :]
    if kind is None:
        return wire.delimited(LiteralField.SHAPE, write_shape(shape))
    if len(items) != math.prod(shape.dims):
        what = f"{len(items)} elements for {shape.text}"
        raise GraphgenError("GG0201", what)
    data = b"".join([_element(kind, item) for item in items])
    pieces = write_literal(Literal(kind, shape.dims, data))
    return b"".join(pieces)


def _element(kind: DType, text: str) -> bytes:
    if kind.name == "c64":
        parts = [float(part) for part in text.strip("()").split(",")]
        return struct.pack("<ff", *(parts if len(parts) == 2 else (parts[0], 0.0)))
    if kind.name == "pred" and text in ("true", "false"):
        return encode(kind, text == "true")
    if kind.is_float:
        # The payload of a NaN is not kept.
        return encode(kind, float(re.sub(r"^([+-]?nan)\(.*", r"\1", text)))
    return encode(kind, int(text))


def show_literal(message: Message | None) -> str:
    """Print the elements of a LiteralProto, ``{...}`` where there are none."""
    if message is None:
        return ELIDED
    found = read_literal(message)
    kind = DTYPES.get(found.shape.element)
    if found.data is None or kind is None:
        return ELIDED
    if kind.name == "c64":
        pairs = struct.iter_unpack("<ff", bytes(found.data))
        texts = [f"({real!r}, {imaginary!r})" for real, imaginary in pairs]
    else:
        texts = [format_number(value, kind) for value in found.literal(kind).values()]
    return _nested(texts, found.shape.dims)


def _nested(texts: list[str], dims: tuple[int, ...]) -> str:
    if not dims:
        return texts[0]
    if 0 in dims:
        return "{}" if len(dims) == 1 else "{" + ", ".join(["{}"] * dims[0]) + "}"
    for size in reversed(dims):
        texts = [
            "{" + ", ".join(texts[start : start + size]) + "}"
            for start in range(0, len(texts), size)
        ]
    return texts[0]
