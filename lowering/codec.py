"""Codec tables of a dialect: one row per op, used for writing and for reading.

A row joins an op of the IR and an op of the dialect by the attributes that both have. A dialect
gives a row its own ``emit`` or ``read`` only where the two sides differ in more than attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

FieldT = TypeVar("FieldT")
EmitT = TypeVar("EmitT")
ReadT = TypeVar("ReadT")


@dataclass(frozen=True, slots=True)
class OpCodec(Generic[FieldT, EmitT, ReadT]):
    """One op of the IR in one dialect.

    Attributes:
        op: the IR's op; empty for an op of the dialect that reads as no single op of the IR.
        name: the dialect's op; empty for an op of the IR that is written as several.
        fields: the attributes both have, in the order in which the dialect writes them.
        emit: writes the op, instead of the dialect's writer of ``fields``.
        read: reads the dialect's op, instead of the dialect's reader of ``fields``.
    """

    op: str
    name: str
    fields: tuple[FieldT, ...] = ()
    emit: EmitT | None = None
    read: ReadT | None = None


class _Named(Protocol):
    @property
    def op(self) -> str: ...

    @property
    def name(self) -> str: ...


RowT = TypeVar("RowT", bound=_Named)


def by_op(rows: Iterable[RowT]) -> Mapping[str, RowT]:
    """Index the rows that write by the IR's op (``ValueError`` where two write the same)."""
    return _indexed([(row.op, row) for row in rows])


def by_name(rows: Iterable[RowT]) -> Mapping[str, RowT]:
    """Index the rows that read by the dialect's op (``ValueError`` where two read the same)."""
    return _indexed([(row.name, row) for row in rows])


def _indexed(pairs: Iterable[tuple[str, RowT]]) -> Mapping[str, RowT]:
    found: dict[str, RowT] = {}
    for key, row in pairs:
        if key in found:
            raise ValueError(f"two rows for '{key}'")
        if key:
            found[key] = row
    return found
