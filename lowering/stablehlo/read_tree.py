"""What MLIR text says, as a tree, before any op has a meaning."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Dense:
    """``dense<...> : type``.

    Attributes:
        items: the elements in row-major order as written, one for a splat.
        hexadecimal: the raw bytes where those are written instead.
        type: as text.
    """

    items: tuple[bool | int | float | str, ...]
    hexadecimal: str
    type: str


@dataclass(frozen=True, slots=True)
class Custom:
    """``#dialect.name<...>``.

    Attributes:
        name: ``stablehlo.gather``; ``stablehlo`` where the kind is the first word inside.
        fields: the ``key = value`` pairs inside.
        words: what else is inside, such as ``DEFAULT``.
    """

    name: str
    fields: dict[str, Attribute]
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Symbol:
    """``@name``."""

    name: str


@dataclass(frozen=True, slots=True)
class TypeText:
    """A type as an attribute, as text."""

    text: str


Attribute = (
    bool
    | int
    | float
    | str
    | Dense
    | Custom
    | Symbol
    | TypeText
    | tuple["Attribute", ...]
    | dict[str, "Attribute"]
)


@dataclass(slots=True)
class Argument:
    """An argument of a block: its name, its type as text, its location as text."""

    name: str
    type: str
    loc: str = ""


@dataclass(slots=True)
class Region:
    """A block with its arguments; graphgen has no use for several blocks."""

    args: list[Argument] = field(default_factory=list[Argument])
    body: list[Node] = field(default_factory=list["Node"])


@dataclass(slots=True)
class Node:
    """One op as written, in the attribute names of MLIR's generic form.

    Attributes:
        name: with its dialect, ``stablehlo.add``.
        at: where in the text it begins.
        results: names of its results, ``%3#1`` for the second of several.
        operands: names of what it reads.
        attrs: attributes and properties.
        regions: its bodies.
        types: of its results, as text.
        loc: its location as text, empty where none is written.
    """

    name: str
    at: int
    results: list[str] = field(default_factory=list[str])
    operands: list[str] = field(default_factory=list[str])
    attrs: dict[str, Attribute] = field(default_factory=dict[str, Attribute])
    regions: list[Region] = field(default_factory=list[Region])
    types: list[str] = field(default_factory=list[str])
    loc: str = ""


def integers(value: Attribute | None) -> tuple[int, ...] | None:
    """A list of integers however it is written: ``[0]``, ``array<i64: 0>``, ``dense<0> : ...``."""
    if isinstance(value, Dense):
        value = value.items
    if isinstance(value, tuple):
        found = tuple(item for item in value if isinstance(item, int))
        return found if len(found) == len(value) else None
    return None
