"""Converts LiteralProtos to literals of the IR and back.

Elements that the protobuf stores as they lie in memory stay where they are: the literal's data is
a view of the file. Integers of 32 and 64 bits are stored as varints and have to be decoded,
as have elements of less than a byte.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from graphgen.errors import GraphgenError
from graphgen.ir import DType, Literal, tensor
from graphgen.ir.dtype import DTYPES
from graphgen.lowering.hlo_proto.fields import LITERAL_FIELDS, LiteralField
from graphgen.lowering.hlo_proto.shape import HloShape, read_shape, type_bytes, write_shape
from graphgen.lowering.hlo_proto.wire import Message, Wire, delimited, head, varint, varints

_VARINT = {"pred": 1, "s32": 4, "u32": 4, "s64": 8, "u64": 8}


@dataclass(frozen=True, slots=True)
class RawLiteral:
    """A constant of a file.

    Attributes:
        shape: its shape.
        data: the elements, row-major little-endian, at least a byte each; ``None`` where the file
            leaves them out.
        message: the LiteralProto.
    """

    shape: HloShape
    data: bytes | memoryview | None
    message: Message

    def literal(self, kind: DType) -> Literal:
        """The IR's literal (GG0801 for elements that were left out)."""
        if self.data is None:
            raise GraphgenError("GG0801", f"the elements of {self.shape.text} were left out")
        return Literal(kind, self.shape.dims, self.data)


def read_literal(message: Message) -> RawLiteral:
    """Decode a LiteralProto of an array; elements stored as in memory are not copied.

    Raises:
        GraphgenError: GG0801 when there are more or fewer elements than the shape says.
    """
    shape = read_shape(message.data(LiteralField.SHAPE))
    number = LITERAL_FIELDS.get(shape.element)
    if number is None:
        return RawLiteral(shape, None, message)
    found = message.fields.get(number)
    wanted = _bytes(shape)
    if found is None:
        return RawLiteral(shape, b"" if wanted == 0 else None, message)
    data = _elements(message, found, shape.element)
    if _bits(shape.element) < 8:
        data = _unpacked(data, shape.element, wanted)
    if len(data) != wanted:
        what = f"a constant {shape.text} has {len(data)} bytes of elements instead of {wanted}"
        raise GraphgenError("GG0801", what)
    if not shape.in_order:
        data = _row_major(data, shape)
    return RawLiteral(shape, data, message)


# Element types that the IR does not have.
_OTHER_BITS = {"c128": 128, "s2": 2, "u2": 2, "s1": 1, "u1": 1, "f4e2m1fn": 4}


def _bits(element: str) -> int:
    kind = DTYPES.get(element)
    return kind.bits if kind is not None else _OTHER_BITS.get(element, 8)


def _bytes(shape: HloShape) -> int:
    return math.prod(shape.dims) * -(-_bits(shape.element) // 8)


def _unpacked(data: bytes | memoryview, element: str, count: int) -> bytes:
    """Unpack elements of less than a byte to one per byte; some files pack them."""
    bits = _bits(element)
    each, low = 8 // bits, (1 << bits) - 1
    if len(data) == -(-count // each) and each > 1 and count > 1:
        spread = [byte >> shift & low for byte in data for shift in range(0, 8, bits)]
        data = bytes(spread[:count])
    if element[0] == "s":
        sign = 1 << (bits - 1)
        return bytes([((byte & low ^ sign) - sign) & 255 for byte in data])
    return bytes(data)


def _elements(message: Message, found: list[Wire], element: str) -> bytes | memoryview:
    width = _VARINT.get(element)
    source = message.source
    if width is None:
        spans = message.spans(LITERAL_FIELDS[element])
        if len(spans) == 1:
            return memoryview(source)[spans[0][0] : spans[0][1]]
        return b"".join([source[start:end] for start, end in spans])
    parts: list[bytes | memoryview] = []
    for value in found:
        if isinstance(value, int):
            parts.append(_fixed([value], width))
        elif width == 1:
            parts.append(_truths(memoryview(source)[value[0] : value[1]]))
        elif value[1] - value[0] < 4096:
            parts.append(_fixed(varints(source, *value), width))
        else:
            parts.append(_decode(memoryview(source)[value[0] : value[1]], width))
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _truths(data: memoryview) -> bytes | memoryview:
    if max(data, default=0) > 1:
        raise GraphgenError("GG0801", "a pred constant holds something else than 0 and 1")
    return data


def _fixed(values: Sequence[int], width: int) -> bytes:
    mask = (1 << 8 * width) - 1
    return b"".join([(value & mask).to_bytes(width, "little") for value in values])


def _decode(data: memoryview, width: int) -> bytes:
    """Decode varints with NumPy, as unsigned numbers of ``width`` bytes."""
    import numpy as np

    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw < 128)
    if not len(ends) or ends[-1] != len(raw) - 1:
        raise GraphgenError("GG0801", "a list of numbers runs over its end")
    out = np.zeros(len(ends), np.uint64)
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if lengths.max() > 10:
        raise GraphgenError("GG0801", "a number of more than ten bytes")
    for place in range(int(lengths.max())):
        there = lengths > place
        digits = raw[starts[there] + place].astype(np.uint64) & np.uint64(127)
        out[there] |= digits << np.uint64(7 * place)
    return out.astype(f"<u{width}").tobytes()


def _row_major(data: bytes | memoryview, shape: HloShape) -> bytes:
    """Transpose elements of any layout to row-major order."""
    import numpy as np

    assert shape.layout is not None
    width = len(data) // max(math.prod(shape.dims), 1)
    order = tuple(reversed(shape.layout))
    stored = np.frombuffer(data, np.dtype((np.void, max(width, 1))))
    stored = stored.reshape([shape.dims[i] for i in order])
    return stored.transpose([order.index(i) for i in range(len(order))]).tobytes()


def encode_literal(shape: HloShape, data: bytes) -> bytes:
    """Encode elements, row-major as in memory, in the order of the shape's layout."""
    if not shape.in_order and data:
        data = _in_layout(data, shape)
    width = _VARINT.get(shape.element, 0)
    if width > 1:
        count = math.prod(shape.dims)
        values = [int.from_bytes(data[i * width : (i + 1) * width], "little") for i in range(count)]
        if shape.element[0] == "s":
            sign, whole = 1 << (8 * width - 1), 1 << 8 * width
            values = [value - whole if value & sign else value for value in values]
        data = b"".join(map(varint, values))
    return head(LITERAL_FIELDS[shape.element], len(data)) + data if data else b""


def _in_layout(data: bytes, shape: HloShape) -> bytes:
    """Transpose elements in row-major order to the order of a layout."""
    import numpy as np

    assert shape.layout is not None
    width = len(data) // math.prod(shape.dims)
    array = np.frombuffer(data, np.dtype((np.void, width))).reshape(shape.dims)
    return array.transpose(tuple(reversed(shape.layout))).tobytes()


def write_literal(literal: Literal, stated: HloShape | None = None) -> list[bytes | memoryview]:
    """Encode a LiteralProto in pieces, without a copy of its elements.

    Args:
        literal: the elements, row-major.
        stated: the shape of the constant; row-major by default.
    """
    kind = literal.dtype.name
    shape = type_bytes(tensor(literal.dtype, literal.shape))
    if stated is not None and not stated.in_order:
        order = replace(stated, rest=b"")
        whole = encode_literal(order, bytes(literal.data))
        return [delimited(LiteralField.SHAPE, write_shape(order)), whole]
    out: list[bytes | memoryview] = [delimited(LiteralField.SHAPE, shape)]
    data: bytes | memoryview = literal.data
    width = _VARINT.get(kind, 0)
    if width > 1:
        data = b"".join([varint(int(value)) for value in literal.values()])
    if len(data):
        out += [head(LITERAL_FIELDS[kind], len(data)), data]
    return out
