"""Syntax tree of MLIR text: ops, regions and attributes before an op has a meaning."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DenseAttr:
    """``dense<...> : type``.

    Attributes:
        items: the elements in row-major order as written, one for a splat.
        hexadecimal: the raw bytes, where the text gives those instead.
        type: the tensor type as text.
    """

    items: tuple[bool | int | float | str, ...]
    hexadecimal: str
    type: str


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
    | dict[str, "MlirAttr"]
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
    attrs: dict[str, MlirAttr] = field(default_factory=dict[str, MlirAttr])
    regions: list[MlirRegion] = field(default_factory=list[MlirRegion])
    types: list[str] = field(default_factory=list[str])
    loc: str = ""


def integers_of(value: MlirAttr | None) -> tuple[int, ...] | None:
    """Convert ``[0]``, ``array<i64: 0>`` or ``dense<0> : ...``; ``None`` for anything else."""
    if isinstance(value, DenseAttr):
        value = value.items
    if isinstance(value, tuple):
        found = tuple(item for item in value if isinstance(item, int))
        return found if len(found) == len(value) else None
    return None
