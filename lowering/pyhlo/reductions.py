"""Ops of PyHLO with a computation of scalars: reductions, scatters, sorts.

The computation is traced once and recognized; it becomes an attribute of the op, so the module does
not get one computation per use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from graphgen.ir import Literal, Value
from graphgen.ir.dtype import pred, s32
from graphgen.lowering.pyhlo.attributes import AttrReader
from graphgen.lowering.pyhlo.op_row import PyHloRow, custom_row, only
from graphgen.lowering.pyhlo.shapes import mistake
from graphgen.lowering.pyhlo.trace_context import PyHloCall
from graphgen.ops import OPS
from graphgen.ops.linalg import neutral_element


def body_of(c: PyHloCall) -> tuple[str, str]:
    """Recognize a computation of scalars: the op of its first two arguments, and its direction.

    ``assign`` returns the second argument; any other computation is empty. Reshapes and broadcasts
    of one element to one element, which libraries write around comparisons, are seen through.
    """
    body = c.attrs.function()
    trace, root = c.trace.scribe.write(c.attrs.op, body)  # pyright: ignore[reportArgumentType]
    args = trace.function.args
    value = _same_element(root.value)
    if value.op is None:
        return ("assign" if len(args) == 2 and value is args[1] else ""), ""
    operands = [_same_element(operand) for operand in value.op.operands]
    if len(operands) != 2:
        return "", ""
    straight, turned = operands == args[:2], operands == args[1::-1]
    if value.op.name == "compare" and (straight or turned):
        direction = value.op.attrs.text("direction")
        return "compare", direction if straight else {"LT": "GT", "GT": "LT"}.get(direction, "")
    return (value.op.name if straight or turned else ""), ""


def _same_element(value: Value) -> Value:
    """The value whose only element this one is, before reshapes and broadcasts."""
    while value.op is not None and value.op.name in ("reshape", "broadcast_in_dim"):
        if any(size != 1 for size in value.shape):
            break
        value = value.op.operands[0]
    return value


def reducer(c: PyHloCall, op: str) -> str:
    """Recognize the ``kind`` of a reduction (GG0104 for one that ``op`` does not have)."""
    kind, _ = body_of(c)
    _check_kind(c, op, kind)
    return kind


def _check_kind(c: PyHloCall, op: str, kind: str) -> None:
    allowed = next(attr.type.choices for attr in OPS[op].attrs if attr.name == "kind")
    if kind not in allowed:
        what = f"{c.attrs.op}: a computation that is {kind or 'more than one op'}"
        raise mistake("GG0104", what, help=f"it may be {', '.join(map(str, allowed))}")


def _reduce(c: PyHloCall) -> Sequence[Value]:
    """Write a reduction; a start that is not the neutral element is combined afterwards."""
    if len(c.operands) != 2:
        raise mistake(
            "GG0105", f"Reduce takes an operand and a start, got {len(c.operands)} operands"
        )
    operand, start = (item.value for item in c.operands)
    logical = operand.dtype is pred
    kind, _ = body_of(c)
    if logical:
        operand, start = c.b.convert(operand, s32), c.b.convert(start, s32)
        kind = {"and": "minimum", "or": "maximum"}.get(kind, kind)
    _check_kind(c, "reduce", kind)
    made = c.b.reduce(operand, c.attrs.integers("dimensions"), kind)
    if not starts_from_nothing(start, kind):
        made = c.b.binary(kind, made, c.b.broadcast_in_dim(start, made.shape, ()))
    return [c.b.convert(made, pred) if logical else made]


def starts_from_nothing(start: Value, kind: str) -> bool:
    """Test whether a start is the constant neutral element of a reduction."""
    made = start.producer("constant")
    if made is None:
        return False
    found: Literal = made.attrs.literal("value")
    return found.values() == neutral_element(kind, start.dtype).values()


def _scatter(c: PyHloCall) -> Sequence[Value]:
    numbers = c.attrs.message("scatter_dimension_numbers")
    kind = reducer(c, "scatter")
    made = c.b.op(
        "scatter",
        *[item.value for item in c.operands],
        update_window_dims=numbers.integers("update_window_dims", ()),
        inserted_window_dims=numbers.integers("inserted_window_dims", ()),
        scatter_dims_to_operand_dims=numbers.integers("scatter_dims_to_operand_dims"),
        index_vector_dim=numbers.integer("index_vector_dim", 0),
        kind=kind,
    )
    numbers.finish()
    for promise in ("indices_are_sorted", "unique_indices"):
        c.attrs.any(promise)
    return [made]


def _sort(c: PyHloCall) -> Sequence[Value]:
    """Write a sort: stable, and floats in total order."""
    name, direction = body_of(c)
    if name != "compare" or direction not in ("LT", "GT"):
        what = "Sort: the computation is not one comparison, LT or GT, of the first operand"
        raise mistake("GG0104", what)
    c.attrs.any("is_stable")
    return c.b.sort([item.value for item in c.operands], only(c), descending=direction == "GT")


def _reduce_window(c: PyHloCall) -> Sequence[Value]:
    """Write a window reduction by dimension: a window of 2n elements combines two of n."""
    operand, start = (item.value for item in c.operands)
    kind = reducer(c, "reduce")
    if not starts_from_nothing(start, kind):
        raise mistake("GG0104", f"ReduceWindow: {kind} that does not start from its neutral one")
    window = c.attrs.message("window")
    for axis, dim in enumerate(window.messages("dimensions")):
        operand = _windowed(c, operand, axis, dim, kind)
    return [operand]


def _windowed(c: PyHloCall, x: Value, axis: int, dim: AttrReader, kind: str) -> Value:
    size, stride = dim.integer("size", 1), dim.integer("stride", 1) or 1
    low, high = dim.integer("padding_low", 0), dim.integer("padding_high", 0)
    step = dim.integer("window_dilation", 1) or 1
    if (dim.integer("base_dilation", 1) or 1) != 1 or dim.any("window_reversal"):
        raise mistake("GG0104", "ReduceWindow: gaps between elements, or windows turned around")
    dim.finish()
    if low or high:
        sides = [[low if i == axis else 0, high if i == axis else 0] for i in range(x.type.rank)]
        fill = c.b.op("constant", value=neutral_element(kind, x.dtype))
        x = c.b.pad(x, fill, [side[0] for side in sides], [side[1] for side in sides])
    whole = cast(int, x.shape[axis])
    count = whole - (size - 1) * step
    if size < 1 or count < 1:
        raise mistake("GG0105", f"ReduceWindow: a window of {size} in {x.type.text}")
    found: Value | None = None
    reach, power, done = 1, x, 0
    while done < size:
        if size & reach:
            part = c.b.slice_dim(power, axis, done * step, done * step + count)
            found = part if found is None else c.b.binary(kind, found, part)
            done += reach
        if done < size:
            left = cast(int, power.shape[axis]) - reach * step
            first = c.b.slice_dim(power, axis, 0, left)
            second = c.b.slice_dim(power, axis, reach * step, reach * step + left)
            power = c.b.binary(kind, first, second)
            reach *= 2
    assert found is not None
    if stride == 1:
        return found
    rank = found.type.rank
    strides = tuple(stride if i == axis else 1 for i in range(rank))
    return c.b.op(
        "slice", found, start_indices=(0,) * rank, limit_indices=found.shape, strides=strides
    )


REDUCTION_ROWS: Final[Sequence[PyHloRow]] = (
    custom_row("Reduce", _reduce),
    custom_row("Scatter", _scatter),
    custom_row("Sort", _sort),
    custom_row("ReduceWindow", _reduce_window),
)
