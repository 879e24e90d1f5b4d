"""Reader of the attributes of a PyHLO call: fields of HLO's protobuf by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import index
from typing import SupportsFloat, SupportsIndex, cast

from graphgen.lowering.pyhlo.shapes import mistake


class AttrReader:
    """Reader of attributes: the op takes each once, and :meth:`finish` refuses the rest.

    Args:
        op: the op's name, for messages.
        attrs: the attributes of the call.
    """

    def __init__(self, op: str, attrs: Mapping[str, object]) -> None:
        self.op = op
        self.left = dict(attrs)

    def integer(self, key: str, default: int | None = None) -> int:
        """One integer (GG0104)."""
        value = self._take(key, default)
        found = _integer(value)
        if found is None:
            raise self._wrong(key, value, "an integer")
        return found

    def number(self, key: str) -> float:
        """One number (GG0104)."""
        value = self._take(key, None)
        if not isinstance(value, bool | str | bytes):
            try:
                return float(cast(SupportsFloat, value))
            except TypeError:
                pass
        raise self._wrong(key, value, "a number")

    def integers(self, key: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Integers: those of any iterable, of Python or of NumPy (GG0104)."""
        value = self._take(key, default)
        found = _integers(value)
        if found is None:
            raise self._wrong(key, value, "integers")
        return found

    def groups(self, key: str) -> tuple[tuple[int, ...], ...]:
        """Groups of ranks, each :meth:`integers` (GG0104)."""
        value = self._take(key, None)
        found: list[tuple[int, ...]] = []
        for item in cast(Iterable[object], value) if isinstance(value, Iterable) else [value]:
            group = _integers(item)
            if group is None:
                raise self._wrong(key, cast(object, value), "lists of ranks")
            found.append(group)
        return tuple(found)

    def text(self, key: str, default: str | None = None) -> str:
        """A string, or bytes that are one (GG0104)."""
        value = self._take(key, default)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "surrogateescape")
        if not isinstance(value, str):
            raise self._wrong(key, value, "a string")
        return value

    def message(self, key: str) -> AttrReader:
        """The fields of a message (GG0104)."""
        value = self._take(key, None)
        if not isinstance(value, Mapping):
            raise self._wrong(key, value, "a dict of fields")
        return AttrReader(f"{self.op}: {key}", cast(Mapping[str, object], value))

    def messages(self, key: str) -> list[AttrReader]:
        """The fields of each of several messages (GG0104)."""
        value = self._take(key, None)
        several = isinstance(value, Iterable) and not isinstance(value, Mapping)
        items = list(cast(Iterable[object], value)) if several else [cast(object, value)]
        out: list[AttrReader] = []
        for item in items:
            if not isinstance(item, Mapping):
                raise self._wrong(key, cast(object, value), "dicts of fields")
            out.append(AttrReader(f"{self.op}: {key}", cast(Mapping[str, object], item)))
        return out

    def function(self, key: str = "to_apply") -> Callable[..., object]:
        """A Python function of a scribe (GG0104)."""
        value = self._take(key, None)
        if not callable(value):
            raise self._wrong(key, value, "a function of a scribe")
        return value

    def functions(self, key: str) -> list[Callable[..., object]]:
        """Python functions of a scribe, one or more (GG0104)."""
        value = self._take(key, None)
        items = list(cast(Iterable[object], value)) if isinstance(value, list | tuple) else []
        found = [item for item in items if callable(item)]
        if not found or len(found) != len(items):
            raise self._wrong(key, cast(object, value), "functions of a scribe")
        return found

    def any(self, key: str) -> object:
        """Any value; ``None`` for a missing attribute."""
        return self.left.pop(key, None)

    def finish(self) -> None:
        """Refuse attributes that were not read (GG0104)."""
        for key in self.left:
            raise mistake("GG0104", f"{self.op} has no attribute '{key}' here")

    def _take(self, key: str, default: object) -> object:
        if key not in self.left:
            if default is None:
                raise mistake("GG0104", f"{self.op} needs the attribute '{key}'")
            return default
        return self.left.pop(key)

    def _wrong(self, key: str, value: object, wanted: str) -> Exception:
        return mistake("GG0104", f"{self.op}: attribute '{key}' is {value!r}, not {wanted}")


def _integer(value: object) -> int | None:
    """An integer of Python or of NumPy; a truth value is none."""
    if isinstance(value, bool):
        return None
    try:
        return index(cast(SupportsIndex, value))
    except TypeError:
        return None


def _integers(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, Iterable) or isinstance(value, str | bytes):
        return None
    found: list[int] = []
    for item in cast(Iterable[object], value):
        number = item if type(item) is int else _integer(item)
        if number is None:
            return None
        found.append(number)
    return tuple(found)
