"""Ops of PyHLO that are given a computation: reductions, scatters, sorts.

The computation is written once to see what it does. What it comes to is an attribute of the op, so
equal ones are one computation of the module, where the original writes one for each use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from graphgen.ir import Literal, Value
from graphgen.ir.dtype import pred, s32
from graphgen.lowering.pyhlo.given import Given
from graphgen.lowering.pyhlo.ops import Write, only
from graphgen.lowering.pyhlo.scribe import Trace
from graphgen.lowering.pyhlo.shapes import Result, Shape, mistake
from graphgen.ops import OPS
from graphgen.ops.linalg import neutral_element


def body_of(t: Trace, a: Given) -> tuple[str, str]:
    """What a computation of scalars does with its first two: an op's name and its direction.

    ``assign`` gives the second; anything that is more than one op is empty.
    """
    trace, root = t.scribe.write(a.op, a.function())  # pyright: ignore[reportArgumentType]
    args = trace.function.args
    value = root.value
    if value.op is None:
        return ("assign" if len(args) == 2 and value is args[1] else ""), ""
    if trace.function.block.size != 1 or len(value.op.operands) != 2:
        return "", ""
    straight = [*value.op.operands] == args[:2]
    turned = [*value.op.operands] == args[1::-1]
    if value.op.name == "compare" and (straight or turned):
        direction = value.op.attrs.text("direction")
        return "compare", direction if straight else {"LT": "GT", "GT": "LT"}.get(direction, "")
    return (value.op.name if straight or turned else ""), ""


def reducer(t: Trace, a: Given, op: str) -> str:
    """The kind of a reduction (GG0104 for one that ``op`` does not have)."""
    kind, _ = body_of(t, a)
    allowed = next(attr.choices for attr in OPS[op].attrs if attr.name == "kind")
    if kind not in allowed:
        what = f"{a.op}: a computation that is {kind or 'more than one op'}"
        raise mistake("GG0104", what, help=f"it may be {', '.join(allowed)}")
    return kind


def _reduce(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    """What does not start from the neutral element takes its start in behind."""
    if len(x) != 2:
        raise mistake("GG0105", f"Reduce takes an operand and a start, got {len(x)} operands")
    operand, start = (item.value for item in x)
    logical = operand.dtype is pred
    kind, _ = body_of(t, a)
    if logical:
        operand, start = t.b.convert(operand, s32), t.b.convert(start, s32)
        kind = {"and": "minimum", "or": "maximum"}.get(kind, kind)
    kinds = next(attr.choices for attr in OPS["reduce"].attrs if attr.name == "kind")
    if kind not in kinds:
        what = f"Reduce: a computation that is {kind or 'more than one op'}"
        raise mistake("GG0104", what, help=f"it may be {', '.join(kinds)}")
    made = t.b.reduce(operand, a.integers("dimensions"), kind)
    if not starts_from_nothing(start, kind):
        made = t.b.binary(kind, made, t.b.broadcast_in_dim(start, made.shape, ()))
    return [t.b.convert(made, pred) if logical else made]


def starts_from_nothing(start: Value, kind: str) -> bool:
    """Whether a constant changes nothing; the least of a type does not where there is less."""
    made = start.producer("constant")
    if made is None:
        return False
    found: Literal = made.attrs.literal("value")
    return found.values() == neutral_element(kind, start.dtype).values()


def _scatter(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    numbers = a.message("scatter_dimension_numbers")
    kind = reducer(t, a, "scatter")
    made = t.b.op(
        "scatter",
        *[item.value for item in x],
        update_window_dims=numbers.integers("update_window_dims", ()),
        inserted_window_dims=numbers.integers("inserted_window_dims", ()),
        scatter_dims_to_operand_dims=numbers.integers("scatter_dims_to_operand_dims"),
        index_vector_dim=numbers.integer("index_vector_dim", 0),
        kind=kind,
    )
    numbers.finish()
    for promise in ("indices_are_sorted", "unique_indices"):
        a.any(promise)
    return [made]


def _sort(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    """Stable, which the original leaves open, and floats in total order."""
    name, direction = body_of(t, a)
    if name != "compare" or direction not in ("LT", "GT"):
        what = "Sort: the computation is not one comparison, LT or GT, of the first operand"
        raise mistake("GG0104", what)
    a.any("is_stable")
    return t.b.sort([item.value for item in x], only(a), descending=direction == "GT")


def _reduce_window(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    """A dimension at a time: windows of 1, 2, 4, ... elements are made of two of half the size."""
    operand, start = (item.value for item in x)
    kind = reducer(t, a, "reduce")
    if not starts_from_nothing(start, kind):
        raise mistake("GG0104", f"ReduceWindow: {kind} that does not start from its neutral one")
    window = a.message("window")
    for axis, dim in enumerate(window.messages("dimensions")):
        operand = _windowed(t, operand, axis, dim, kind)
    return [operand]


def _windowed(t: Trace, x: Value, axis: int, dim: Given, kind: str) -> Value:
    size, stride = dim.integer("size", 1), dim.integer("stride", 1) or 1
    low, high = dim.integer("padding_low", 0), dim.integer("padding_high", 0)
    step = dim.integer("window_dilation", 1) or 1
    if (dim.integer("base_dilation", 1) or 1) != 1 or dim.any("window_reversal"):
        raise mistake("GG0104", "ReduceWindow: gaps between elements, or windows turned around")
    dim.finish()
    if low or high:
        sides = [[low if i == axis else 0, high if i == axis else 0] for i in range(x.type.rank)]
        fill = t.b.op("constant", value=neutral_element(kind, x.dtype))
        x = t.b.pad(x, fill, [side[0] for side in sides], [side[1] for side in sides])
    whole = cast(int, x.shape[axis])
    count = whole - (size - 1) * step
    if size < 1 or count < 1:
        raise mistake("GG0105", f"ReduceWindow: a window of {size} in {x.type.text}")
    found: Value | None = None
    reach, power, done = 1, x, 0
    while done < size:
        if size & reach:
            part = t.b.slice_dim(power, axis, done * step, done * step + count)
            found = part if found is None else t.b.binary(kind, found, part)
            done += reach
        if done < size:
            left = cast(int, power.shape[axis]) - reach * step
            first = t.b.slice_dim(power, axis, 0, left)
            second = t.b.slice_dim(power, axis, reach * step, reach * step + left)
            power = t.b.binary(kind, first, second)
            reach *= 2
    assert found is not None
    if stride == 1:
        return found
    rank = found.type.rank
    strides = tuple(stride if i == axis else 1 for i in range(rank))
    return t.b.op(
        "slice", found, start_indices=(0,) * rank, limit_indices=found.shape, strides=strides
    )


REGIONS: dict[str, Write] = {
    "Reduce": _reduce,
    "Scatter": _scatter,
    "Sort": _sort,
    "ReduceWindow": _reduce_window,
}
