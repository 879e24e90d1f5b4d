"""Rows of PyHLO's ops: the IR's op of each, its number of operands, and its attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphgen.ir import AttrValue, Value
from graphgen.lowering.codec import OpCodec
from graphgen.lowering.pyhlo.shapes import PyHloValue, mistake
from graphgen.lowering.pyhlo.trace_context import PyHloCall

# -> the values of the op, or a value as it is.
WriteCall = Callable[[PyHloCall], "Sequence[Value] | PyHloValue"]


@dataclass(frozen=True, slots=True)
class PyHloField:
    """One attribute of an op.

    Attributes:
        attr: its name in the IR.
        read: its value, from the attributes of the call (GG0104).
    """

    attr: str
    read: Callable[[PyHloCall], AttrValue]


@dataclass(frozen=True, slots=True)
class PyHloRow(OpCodec[PyHloField, None, WriteCall]):
    """One op; ``op``, ``name``, ``fields`` and ``read`` as in every dialect.

    Attributes:
        operands: their number; ``None`` for any.
        inferred: attributes of the IR's op that are parts of the stated shape, ``dtype`` or
            ``shape``.
    """

    operands: int | None = None
    inferred: tuple[str, ...] = ()


def row(
    name: str,
    op: str,
    operands: int | None,
    *fields: PyHloField,
    inferred: tuple[str, ...] = (),
) -> PyHloRow:
    """Make the row of an op that is one op of the IR."""
    return PyHloRow(op, name, fields, operands=operands, inferred=inferred)


def custom_row(name: str, write: WriteCall) -> PyHloRow:
    """Make the row of an op with a function of its own."""
    return PyHloRow("", name, read=write)


def integers(attr: str, key: str = "dimensions") -> PyHloField:
    """A list of integers."""
    return PyHloField(attr, lambda c: c.attrs.integers(key))


def one_dimension(attr: str) -> PyHloField:
    """The only dimension of ``dimensions``."""
    return PyHloField(attr, only)


def text(attr: str, key: str) -> PyHloField:
    """A word."""
    return PyHloField(attr, lambda c: c.attrs.text(key))


def groups() -> PyHloField:
    """Groups of ranks."""
    return PyHloField("replica_groups", lambda c: c.attrs.groups("replica_groups"))


def write_row(found: PyHloRow, c: PyHloCall) -> Sequence[Value] | PyHloValue:
    """Write an op by its row.

    Raises:
        GraphgenError: GG0104 attributes, GG0105 operands, and those of the builder.
    """
    if found.read is not None:
        return found.read(c)
    values = [x.value for x in c.operands] if found.operands is None else c.values(found.operands)
    attrs: dict[str, AttrValue] = {field.attr: field.read(c) for field in found.fields}
    if "dtype" in found.inferred:
        attrs["dtype"] = c.stated.dtype.element
    if "shape" in found.inferred:
        attrs["shape"] = c.stated.sizes
    return c.b.emit(found.op, values, attrs).results


def only(c: PyHloCall) -> int:
    """Return the one dimension of ``dimensions`` (GG0104)."""
    found = c.attrs.integers("dimensions")
    if len(found) != 1:
        raise mistake("GG0104", f"{c.attrs.op}: dimensions {list(found)} are not one")
    return found[0]
