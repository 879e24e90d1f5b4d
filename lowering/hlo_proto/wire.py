"""Protocol buffer wire format: fields decoded in place, and encoded in order.

A message is decoded one level at a time: the contents of a field stay bytes of the file until they
are read, so that a walk over a file with gigabytes of constants copies none of them. (The protobuf
library copies every field, and refuses a message of 2 GiB.) Unknown fields stay in the message.
Source: https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from mmap import mmap

from graphgen.errors import GraphgenError

# Both index to an int and slice to bytes.
Source = bytes | mmap
# An int for a varint, (start, end) in the source for anything else.
Wire = int | tuple[int, int]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_SIGN = 1 << 63
_WRAP = 1 << 64


def damaged(what: str, at: int) -> GraphgenError:
    """The error of a damaged file (GG0801): ``what`` at byte ``at``."""
    return GraphgenError("GG0801", f"this is not an HLO protobuf: {what} at byte {at}")


class Message:
    """The fields of one message.

    Attributes:
        source: the bytes of the whole file.
        fields: per field number its values in order: an int, or a range of ``source``.
        span: its range of ``source``.
    """

    __slots__ = ("fields", "source", "span")

    def __init__(self, source: Source, start: int = 0, end: int | None = None) -> None:
        self.source = source
        self.span = (start, len(source) if end is None else end)
        try:
            self.fields = _scan(source, *self.span)
        except IndexError as error:
            raise damaged("it ends too early", len(source)) from error

    def pieces(self, without: Container[int] = ()) -> Iterator[tuple[int, bytes]]:
        """Iterate over the fields in file order: number, and bytes with the key in front.

        Args:
            without: numbers of fields to leave out, of which no byte is copied.
        """
        at, end = self.span
        while at < end:
            ((number, values),) = _scan(self.source, at, end, most=1).items()
            value = values[0]
            behind = _behind(self.source, at) if isinstance(value, int) else value[1]
            if number not in without:
                yield number, self.source[at:behind]
            at = behind

    def is_set(self, number: int) -> bool:
        """True if a field that is there holds more than the default written out."""
        value = self.fields[number][-1]
        return value != 0 if isinstance(value, int) else value[1] > value[0]

    def has(self, number: int) -> bool:
        """True for a field that occurs, also with a default value."""
        return number in self.fields

    def spans(self, number: int) -> list[tuple[int, int]]:
        """The ranges of a length-delimited or fixed field (GG0801 for a varint)."""
        found = self.fields.get(number)
        if found is None:
            return []
        for value in found:
            if isinstance(value, int):
                raise damaged(f"field {number} is a number, not a text or a message", 0)
        return found  # pyright: ignore[reportReturnType]

    def data(self, number: int) -> bytes:
        """A bytes field, empty where it is not set."""
        spans = self.spans(number)
        return self.source[slice(*spans[-1])] if spans else b""

    def datas(self, number: int) -> list[bytes]:
        """A repeated bytes or message field."""
        return [self.source[start:end] for start, end in self.spans(number)]

    def text(self, number: int) -> str:
        """A string field, empty where it is not set."""
        return self._decode(self.spans(number)[-1]) if number in self.fields else ""

    def texts(self, number: int) -> list[str]:
        """A repeated string field."""
        return [self._decode(span) for span in self.spans(number)]

    def _decode(self, span: tuple[int, int]) -> str:
        data = self.source[span[0] : span[1]]
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise damaged("a name is not UTF-8", span[0] + error.start) from error

    def integer(self, number: int, default: int = 0) -> int:
        """A signed integer or enumeration field."""
        found = self.fields.get(number)
        if found is None:
            return default
        value = found[-1]
        if not isinstance(value, int):
            raise damaged(f"field {number} is not a number", value[0])
        return value - _WRAP if value >= _SIGN else value

    def boolean(self, number: int) -> bool:
        """A bool field."""
        return self.integer(number) != 0

    def integers(self, number: int) -> tuple[int, ...]:
        """A repeated integer field, packed or not."""
        found = self.fields.get(number)
        if found is None:
            return ()
        out: list[int] = []
        for value in found:
            if isinstance(value, int):
                out.append(value)
            else:
                out.extend(varints(self.source, *value))
        return tuple([value - _WRAP if value >= _SIGN else value for value in out])

    def message(self, number: int) -> Message | None:
        """A message field; several parts are concatenated, as protobuf merges them."""
        spans = self.spans(number)
        if len(spans) == 1:
            return Message(self.source, *spans[0])
        if not spans:
            return None
        return Message(b"".join([self.source[start:end] for start, end in spans]))

    def messages(self, number: int) -> list[Message]:
        """A repeated message field."""
        return [Message(self.source, *span) for span in self.spans(number)]


def _behind(data: Source, at: int) -> int:
    """The place after a key and the varint that follows it."""
    for _ in range(2):
        while data[at] >= 128:
            at += 1
        at += 1
    return at


def _scan(data: Source, at: int, end: int, most: int = 0) -> dict[int, list[Wire]]:
    """Scan the fields between two places; the hot loop of reading a file.

    Args:
        data: the file.
        at: the first byte.
        end: the byte after the last.
        most: number of different fields to stop after; 0 for all.
    """
    out: dict[int, list[Wire]] = {}
    while at < end and (not most or len(out) < most):
        begin = at
        key = data[at]
        at += 1
        if key >= 128:
            key, at = _long(data, at, key)
        kind = key & 7
        value: Wire
        if kind == BYTES:
            size = data[at]
            at += 1
            if size >= 128:
                size, at = _long(data, at, size)
            value = (at, at + size)
            at += size
        elif kind == VARINT:
            value = data[at]
            at += 1
            if value >= 128:
                value, at = _long(data, at, value)
        elif kind in (FIXED32, FIXED64):
            value = (at, at + (4 if kind == FIXED32 else 8))
            at = value[1]
        else:
            raise damaged(f"wire type {kind}", begin)
        if at > end or key < 8:
            raise damaged(f"field {key >> 3} runs over the end of its message", begin)
        found = out.get(key >> 3)
        if found is None:
            out[key >> 3] = [value]
        else:
            found.append(value)
    return out


def _long(data: Source, at: int, first: int) -> tuple[int, int]:
    """Decode the rest of a varint after its first byte: value, and the place after it."""
    value, shift = first & 127, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            # Ten bytes hold 70 bits; those above 64 are cut off, as protobuf does.
            return value & (_WRAP - 1), at
        shift += 7
        if shift > 63:
            raise damaged("a number of more than ten bytes", at)


def varints(data: Source, at: int, end: int) -> list[int]:
    """Decode the varints between two places, as unsigned numbers (GG0801)."""
    out: list[int] = []
    try:
        while at < end:
            value = data[at]
            at += 1
            if value >= 128:
                value, at = _long(data, at, value)
            out.append(value)
    except IndexError as error:
        raise damaged("it ends too early", len(data)) from error
    if at != end:
        raise damaged("a list runs over its end", at)
    return out


def varint(value: int) -> bytes:
    """Encode an int64 as a varint; a negative one takes ten bytes."""
    if 0 <= value < 128:
        return _SMALL[value]
    if 0 <= value < 1 << 14:
        return bytes((value & 127 | 128, value >> 7))
    if 0 <= value < 1 << 21:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    value &= _WRAP - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL = [bytes([value]) for value in range(128)]


def integer(number: int, value: int) -> bytes:
    """Encode an integer, bool or enumeration field; empty for 0, the value of an unset field."""
    return varint(number << 3) + varint(value) if value else b""


def integers(number: int, values: Iterable[int]) -> bytes:
    """Encode a repeated integer field, packed; empty for no integers."""
    packed = b"".join([varint(value) for value in values])
    return delimited(number, packed) if packed else b""


def text(number: int, value: str) -> bytes:
    """Encode a string field; empty for an empty string."""
    return delimited(number, value.encode()) if value else b""


def fixed64(number: int, data: bytes) -> bytes:
    """Encode eight bytes; empty for zero, the value of an unset field."""
    return varint(number << 3 | FIXED64) + data if any(data) else b""


def fixed32(number: int, data: bytes) -> bytes:
    """Encode four bytes; empty for zero, the value of an unset field."""
    return varint(number << 3 | FIXED32) + data if any(data) else b""


def delimited(number: int, data: bytes) -> bytes:
    """Encode a field of bytes or a message, also an empty one."""
    return head(number, len(data)) + data


def head(number: int, size: int) -> bytes:
    """Encode the key and the length of a field of ``size`` bytes."""
    return varint(number << 3 | BYTES) + varint(size)
