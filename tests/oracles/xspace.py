"""Writes ``xplane.pb`` for tests, by its published schema and without a protobuf library."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(tag: int, value: int) -> bytes:
    """An integer field."""
    return _varint(tag << 3) + _varint(value)


def held(tag: int, value: bytes | str) -> bytes:
    """A text, bytes or message field."""
    data = value.encode() if isinstance(value, str) else value
    return _varint(tag << 3 | 2) + _varint(len(data)) + data


Stat = int | float | str | bytes


@dataclass
class Plane:
    """One plane under construction.

    Attributes:
        name: such as ``/host:CPU``.
        refer: texts of stats are references to names, as XLA writes them for events.
    """

    name: str
    refer: bool = True
    names: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, bytes] = field(default_factory=dict)
    lines: list[bytes] = field(default_factory=list)
    own: bytes = b""

    def _name(self, text: str) -> int:
        return self.names.setdefault(text, len(self.names) + 1)

    def stats(self, tag: int, values: Mapping[str, Stat]) -> bytes:
        """Stats as fields of a message."""
        out = b""
        for key, value in values.items():
            data = number(1, self._name(key))
            if isinstance(value, float):
                data += _varint(2 << 3 | 1) + struct.pack("<d", value)
            elif isinstance(value, int):
                data += number(4, value)
            elif isinstance(value, bytes):
                data += held(6, value)
            else:
                data += number(7, self._name(value)) if self.refer else held(5, value)
            out += held(tag, data)
        return out

    def kind(self, name: str, shown: str = "", stats: Mapping[str, Stat] | None = None) -> int:
        """The id of a kind of event."""
        if name not in self.kinds:
            at = len(self.kinds) + 1
            data = number(1, at) + held(2, name) + (held(4, shown) if shown else b"")
            self.kinds[name] = data + self.stats(5, stats or {})
        return [*self.kinds].index(name) + 1

    def line(
        self, name: str, events: Sequence[tuple[str, int, int, Mapping[str, Stat]]], start: int = 0
    ) -> None:
        """A line of events: name, start and length in picoseconds, and stats."""
        data = held(2, name) + number(3, start)
        for what, at, length, stats in events:
            event = number(1, self.kind(what)) + number(2, at) + number(3, length)
            data += held(4, event + self.stats(4, stats))
        self.lines.append(data)

    def encoded(self) -> bytes:
        """The plane."""
        data = held(2, self.name) + b"".join([held(3, line) for line in self.lines])
        for at, kind in enumerate(self.kinds.values()):
            data += held(4, number(1, at + 1) + held(2, kind))
        for text, at in self.names.items():
            data += held(5, number(1, at) + held(2, number(1, at) + held(2, text)))
        return data + self.own


def xspace(*planes: Plane) -> bytes:
    """A file of planes."""
    return b"".join([held(1, plane.encoded()) for plane in planes])
