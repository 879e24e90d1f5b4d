"""Syntax tree of MLIR text: ops, regions and attributes before an op has a meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DenseAttr:
    """``dense<...> : type``.

    Attributes:
        items: the elements in row-major order as written, one for a splat.
        hexadecimal: the raw bytes, where the text gives those instead.
        type: the tensor type as text.
        missing: the name of the resource that holds the elements and that the file does not have.
    """

    items: tuple[bool | int | float | str, ...]
    hexadecimal: str
    type: str
    missing: str = ""


@dataclass(frozen=True, slots=True)
class DialectAttr:
    """``#dialect.name<...>``.

    Attributes:
        name: ``stablehlo.gather``; ``stablehlo`` where the kind is the first word inside.
        fields: the ``key = value`` pairs inside.
        words: the words inside without a key, such as ``DEFAULT``.
    """

    name: str
    fields: dict[str, MlirAttr]
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SymbolRef:
    """``@name``."""

    name: str


@dataclass(frozen=True, slots=True)
class TypeAttr:
    """A type as an attribute, as text."""

    text: str


class MlirAttrs(Mapping[str, "MlirAttr"]):
    """Attributes by name; knows the text of each, and which of them are read.

    Args:
        source: the text that they stand in.
    """

    __slots__ = ("_asked", "_spans", "_values", "source")

    def __init__(self, source: str = "") -> None:
        self.source = source
        self._values: dict[str, MlirAttr] = {}
        self._spans: dict[str, tuple[int, int]] = {}
        self._asked: set[str] = set()

    def __getitem__(self, key: str) -> MlirAttr:
        found = self._values[key]
        self._asked.add(key)
        return found

    def __setitem__(self, key: str, value: MlirAttr) -> None:
        self._values[key] = value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def place(self, key: str, value: MlirAttr, start: int, end: int) -> None:
        """Set an attribute that stands at ``start`` to ``end``."""
        self._values[key] = value
        self._spans[key] = (start, end)

    def add(self, others: MlirAttrs) -> None:
        """Take over further attributes of the same text."""
        self.source = others.source
        self._values |= others._values
        self._spans |= others._spans

    def peek(self, key: str) -> MlirAttr | None:
        """An attribute without reading it."""
        return self._values.get(key)

    def text(self, key: str) -> str:
        """The text of an attribute; empty for one without a text of its own."""
        start, end = self._spans.get(key, (0, 0))
        return " ".join(self.source[start:end].split())

    def unread(self) -> dict[str, str]:
        """The texts of the attributes that are unread."""
        return {key: self.text(key) or "unit" for key in self._spans if key not in self._asked}


MlirAttr = (
    bool
    | int
    | float
    | str
    | DenseAttr
    | DialectAttr
    | SymbolRef
    | TypeAttr
    | tuple["MlirAttr", ...]
    | MlirAttrs
)


@dataclass(slots=True)
class BlockArgument:
    """An argument of a block: its name, its type as text, its location as text."""

    name: str
    type: str
    loc: str = ""


@dataclass(slots=True)
class MlirRegion:
    """A region of one block, with its arguments; several blocks are not supported."""

    args: list[BlockArgument] = field(default_factory=list[BlockArgument])
    body: list[MlirOp] = field(default_factory=list["MlirOp"])


@dataclass(slots=True)
class MlirOp:
    """One op, with the attribute names of MLIR's generic form.

    Attributes:
        name: with its dialect, ``stablehlo.add``.
        at: its offset in the text.
        begin: the offset of its name, after those of its results.
        end: the offset after it, before its location.
        results: names of its results, ``%3#1`` for the second of several.
        operands: names of its operands.
        attrs: attributes and properties.
        regions: its regions.
        types: types of its results, as text.
        loc: its location as text, empty without one.
    """

    name: str
    at: int
    results: list[str] = field(default_factory=list[str])
    operands: list[str] = field(default_factory=list[str])
    attrs: MlirAttrs = field(default_factory=MlirAttrs)
    regions: list[MlirRegion] = field(default_factory=list[MlirRegion])
    types: list[str] = field(default_factory=list[str])
    loc: str = ""
    begin: int = 0
    end: int = 0


def word_of(value: MlirAttr | None) -> str:
    """Read ``EQ`` in ``EQ`` or ``#stablehlo<comparison_direction EQ>``; else an empty text."""
    if isinstance(value, DialectAttr):
        return value.words[-1] if value.words else ""
    return value if isinstance(value, str) else ""


def integers_of(value: MlirAttr | None) -> tuple[int, ...] | None:
    """Convert ``[0]``, ``array<i64: 0>`` or ``dense<0> : ...``; ``None`` for anything else."""
    if isinstance(value, DenseAttr):
        value = value.items
    if isinstance(value, tuple):
        found = tuple(item for item in value if isinstance(item, int))
        return found if len(found) == len(value) else None
    return None
