"""Rows of the ops that move a window over their operand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from graphgen.ir import Attrs, AttrValue, Op, Value
from graphgen.lowering.hlo.instruction_template import (
    Callee,
    Comparator,
    InstructionTemplate,
    Reducer,
)
from graphgen.lowering.hlo.op_builder import Tree
from graphgen.lowering.hlo.op_row import (
    HloInstruction,
    HloRow,
    attribute,
    read_attrs_of_named,
    row,
    same_types,
    stated,
    write_fields,
)
from graphgen.lowering.hlo.scalar_computations import choice_of
from graphgen.lowering.hlo.unmodelled import UnmodelledError
from graphgen.lowering.hlo_proto.fields import InstructionField, WindowField
from graphgen.lowering.hlo_proto.wire import Message, delimited, integer
from graphgen.lowering.hlo_text.attribute_values import WINDOW
from graphgen.ops.convolution import windows
from graphgen.ops.opdef import InferError
from graphgen.ops.reduce_window import reduced_windows, source_windows
from graphgen.ops.window import CONVOLUTION, REDUCTION, Window, WindowNames, or_default

_F = InstructionField
_LABELS = attribute("dim_labels")
_GROUPS = {
    "feature_group_count": _F.FEATURE_GROUP_COUNT,
    "batch_group_count": _F.BATCH_GROUP_COUNT,
}


def write_window(found: Sequence[Window]) -> bytes:
    """The field of a window, also of one without dimensions."""
    rows = [
        (
            w.size if isinstance(w.size, int) else 0,
            *(w.stride, w.base_dilation, w.window_dilation, int(w.reversal), w.low, w.high),
        )
        for w in found
    ]
    return delimited(_F.WINDOW, WINDOW.encode(WindowField.DIMENSIONS, rows))


def window_attrs(i: Message, names: WindowNames) -> tuple[tuple[int, ...], dict[str, AttrValue]]:
    """The sizes of a window, and its lists by the names that the op has for them.

    Raises:
        UnmodelledError: a size, a stride or a dilation that is not written.
    """
    holder = i.message(_F.WINDOW)
    rows = WINDOW.decode(holder, WindowField.DIMENSIONS) if holder is not None else ()
    columns = tuple(zip(*rows, strict=True)) if rows else ((),) * 7
    size, stride, base, window, reversal, low, high = columns
    if not all((*size, *stride, *base, *window)):
        raise UnmodelledError("its window has a size, a stride or a dilation of 0")
    attrs: dict[str, AttrValue] = {
        names.stride: or_default(stride, 1),
        "low": or_default(low, 0),
        "high": or_default(high, 0),
        names.base_dilation: or_default(base, 1),
        names.window_dilation: or_default(window, 1),
    }
    if names.reversal:
        attrs[names.reversal] = or_default(reversal, 0)
    elif any(reversal):
        raise UnmodelledError("its window is reversed")
    return size, attrs


def _groups(attrs: Attrs) -> Mapping[int, int]:
    return {field: attrs.integer(key) for key, field in _GROUPS.items()}


def _write_convolution(row: HloRow, op: Op) -> InstructionTemplate:
    window = write_window(windows(op.operands[1].type, op.attrs))
    labels = _LABELS.encode(op.attrs["dim_labels"])
    counts = b"".join([integer(field, count) for field, count in _groups(op.attrs).items()])
    template = write_fields(row, op, counts)
    return prefixed(template, window + labels)


def prefixed(template: InstructionTemplate, fields: bytes) -> InstructionTemplate:
    """The template of one instruction with fields before its ids."""
    (first, *rest) = template.steps
    return replace(template, steps=(replace(first, fields=fields + first.fields), *rest))


def _read_convolution(row: HloRow, i: HloInstruction) -> Tree:
    sizes, attrs = window_attrs(i.message, CONVOLUTION)
    x = same_types(i)
    for key, field in _GROUPS.items():
        attrs[key] = max(i.message.integer(field), 1)
    labels = str(_LABELS.decode(i.message))
    try:
        made = i.to.emit("convolution", x, dim_labels=labels, **attrs, dtype=i.shape.type.dtype)
    except InferError as error:
        raise UnmodelledError(str(error)) from error
    assert made.op is not None
    stated = tuple([w.size for w in windows(x[1].type, made.op.attrs)])
    if stated != sizes:
        raise UnmodelledError(f"its window is {list(sizes)}, its kernel {list(stated)}")
    return made


def _write_reduce_window(row: HloRow, op: Op) -> InstructionTemplate:
    return prefixed(write_fields(row, op), write_window(reduced_windows(op.attrs)))


def _read_reduce_window(row: HloRow, i: HloInstruction) -> Tree:
    x = _of_one_type(i)
    sizes, attrs = window_attrs(i.message, REDUCTION)
    attrs["window_dimensions"] = sizes
    named = read_attrs_of_named(row, i) if len(x) == 2 else None
    if named is not None:
        wanted = i.shape.type.dtype
        if wanted is x[0].dtype or not (wanted.is_float and x[0].dtype.is_float):
            return i.to.emit("reduce_window", x, **attrs, **named)
        # XLA gives the type of the start.
        i.to.part("reduced")
        return i.to.emit("convert", [i.to.emit("reduce_window", x, **attrs, **named)], dtype=wanted)
    return i.applied("reduce_window_by", x, **attrs)


def _of_one_type(i: HloInstruction) -> list[Value]:
    """The operands; a start may be a float of another precision."""
    x = i.values
    count = len(x) // 2
    for place, (value, start) in enumerate(zip(x[:count], x[count:], strict=False)):
        if start.dtype is not value.dtype and start.dtype.is_float and value.dtype.is_float:
            i.to.part(f"start{place}")
            x[count + place] = i.to.emit("convert", [start], dtype=value.dtype)
    return x


def _write_reduce_window_by(row: HloRow, op: Op) -> InstructionTemplate:
    """The window of the reduction, and a call of the function."""
    calls = (Callee(op.attrs.text("to_apply")),)
    template = stated(op, "reduce-window", calls=calls)
    return prefixed(template, write_window(reduced_windows(op.attrs)))


def _write_select_and_scatter(row: HloRow, op: Op) -> InstructionTemplate:
    """Select first, then scatter."""
    kind = op.operands[0].dtype
    compare = Comparator(op.attrs.text("direction"), (kind,), total=False)
    calls = (compare, Reducer(op.attrs.text("kind"), kind))
    return prefixed(write_fields(row, op, calls=calls), write_window(source_windows(op.attrs)))


def _read_select_and_scatter(row: HloRow, i: HloInstruction) -> Tree:
    if len(i.called) != 2:
        raise UnmodelledError(f"it calls {len(i.called)} computations")
    sizes, attrs = window_attrs(i.message, REDUCTION)
    for key in ("base_dilations", "window_dilations"):
        if attrs.pop(key):
            raise UnmodelledError("its window is dilated")
    direction = choice_of(i.to.file.computation(i.called[0]))
    if direction not in ("GE", "GT", "LE", "LT"):
        raise UnmodelledError("it chooses by more than one comparison")
    attrs["direction"] = direction
    attrs["kind"] = i.to.file.reducer(i.called[1:])
    return i.to.emit("select_and_scatter", i.values, window_dimensions=sizes, **attrs)


WINDOW_ROWS: tuple[HloRow, ...] = (
    row("convolution", emit=_write_convolution, read=_read_convolution),
    row("reduce_window", reduces=True, emit=_write_reduce_window, read=_read_reduce_window),
    row("reduce_window_by", name="", emit=_write_reduce_window_by),
    row("select_and_scatter", emit=_write_select_and_scatter, read=_read_select_and_scatter),
)
