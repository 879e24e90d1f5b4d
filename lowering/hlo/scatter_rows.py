"""Rows of gather and scatter: by a named op, or by any function and of several operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphgen.ir import AttrValue, Op, Value
from graphgen.lowering.decompose import with_positions
from graphgen.lowering.hlo.instruction_template import Callee, InstructionTemplate
from graphgen.lowering.hlo.op_builder import Tree
from graphgen.lowering.hlo.op_row import (
    HloInstruction,
    HloRow,
    attribute,
    read_attrs,
    row,
    write_fields,
)
from graphgen.lowering.hlo.unmodelled import UnmodelledError, kept_if_unlike

_GATHER = ("offset_dims", "collapsed_slice_dims", "start_index_map", "index_vector_dim")
_SCATTER = (
    *("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims"),
    "index_vector_dim",
)
_NUMBERS = row("", *_SCATTER, name="scatter")


def _batched(
    i: HloInstruction, attrs: dict[str, AttrValue], place: int, names: Sequence[str]
) -> list[Value]:
    """The operands, and in ``attrs`` the dimension numbers, without batching dimensions.

    Args:
        i: the instruction.
        attrs: its attributes.
        place: of the index vectors among its operands.
        names: of its batching dimensions in the operand and in the vectors, of the dimensions
            that are collapsed, and of those that are indexed.
    """
    x = i.values
    batch, dims = (_integers(attribute(name).decode(i.message)) for name in names[:2])
    if not batch:
        return x
    collapsed, indexed = (_integers(attrs[name]) for name in names[2:])
    attrs[names[2]] = tuple(sorted((*collapsed, *batch)))
    attrs[names[3]] = (*batch, *indexed)
    vector = attrs["index_vector_dim"]
    assert isinstance(vector, int)
    made = 0

    def emit(name: str, operands: Sequence[Value], **more: AttrValue) -> Value:
        nonlocal made
        i.to.part(f"{name}{made}")
        made += 1
        return i.to.emit(name, operands, **more)

    return [*x[:place], with_positions(emit, x[place], vector, dims), *x[place + 1 :]]


def _integers(value: AttrValue) -> tuple[int, ...]:
    return (
        tuple([item for item in value if isinstance(item, int)]) if isinstance(value, tuple) else ()
    )


def _read_gather(row: HloRow, i: HloInstruction) -> Tree:
    attrs = read_attrs(row, i)
    batching = ("operand_batching_dims", "start_indices_batching_dims")
    x = _batched(i, attrs, 1, (*batching, "collapsed_slice_dims", "start_index_map"))
    # XLA takes a collapsed dimension of which it reads nothing.
    with kept_if_unlike():
        return i.to.emit("gather", x, **attrs)


def _read_scatter(row: HloRow, i: HloInstruction) -> Tree:
    attrs = read_attrs(_NUMBERS, i)
    batching = ("input_batching_dims", "scatter_indices_batching_dims")
    named = ("inserted_window_dims", "scatter_dims_to_operand_dims")
    x = _batched(i, attrs, len(i.operands) // 2, (*batching, *named))
    kind = _named(row, i) if len(x) == 3 else ""
    if kind:
        return i.to.emit("scatter", x, **attrs, kind=kind)
    return i.applied("scatter_by", x, **attrs)


def _named(row: HloRow, i: HloInstruction) -> str:
    """The op that combines an element and its update; empty where a function does."""
    try:
        return str(read_attrs(row, i)["kind"])
    except UnmodelledError:
        if len(i.called) != 1:
            raise
        return ""


def _write_scatter_by(row: HloRow, op: Op) -> InstructionTemplate:
    return write_fields(_NUMBERS, op, calls=(Callee(op.attrs.text("to_apply")),))


def _read_map(row: HloRow, i: HloInstruction) -> Tree:
    return i.applied("map", i.values, dtype=i.shape.type.dtype)


def _write_map(row: HloRow, op: Op) -> InstructionTemplate:
    dims = attribute("dimensions").encode(tuple(range(op.result.type.rank)))
    template = write_fields(row, op, calls=(Callee(op.attrs.text("to_apply")),))
    (step,) = template.steps
    return replace(template, steps=(replace(step, fields=dims + step.fields),))


SCATTER_ROWS: tuple[HloRow, ...] = (
    row("gather", *_GATHER, "slice_sizes", read=_read_gather),
    row("scatter", *_SCATTER, reduces=True, read=_read_scatter),
    row("scatter_by", name="", emit=_write_scatter_by),
    row("map", emit=_write_map, read=_read_map),
)
