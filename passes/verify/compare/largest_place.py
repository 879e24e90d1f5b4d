"""The place of the largest element, found by ops that choose nothing each by itself.

A target may not have ``top_k``; that of one element is then the first index whose element equals
the maximum (``graphgen.composites.top_k``): ``reduce minimum`` of indices. Together these ops
choose, and a comparison has to look at their choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphgen.ir import Function, Op, Value

# Ops between the comparison with the maximum and the places: at most these lie on one path.
_DEEP = 8
# The indices; folded, they are a constant.
_INDICES = ("iota", "constant")


def largest_places(function: Function) -> Mapping[Op, Op]:
    """Each ``reduce`` to the place of a largest element, with the ``reduce`` to that element."""
    found: dict[Op, Op] = {}
    for op in function.block:
        if op.name == "reduce" and op.attrs.get("kind") == "minimum":
            most = _maximum_of(op)
            if most is not None:
                found[op] = most
    return found


def _maximum_of(place: Op) -> Op | None:
    """The maximum whose place is the smallest of the selected indices; ``None`` for other ops."""
    chosen = place.operands[0].producer("select")
    last = place.operands[0].type.rank - 1
    if chosen is None or place.attrs.integers("dimensions") != (last,):
        return None
    indices = chosen.operands[1].op
    if indices is None or indices.name not in _INDICES:
        return None
    shape = place.operands[0].type.dims
    maxima = [
        op for op in _compared(chosen.operands[0], _DEEP) if op.operands[0].type.dims == shape
    ]
    floats = [op for op in maxima if op.operands[0].dtype.is_float]
    return next(iter(floats or maxima), None)


def _compared(value: Value, deep: int) -> Iterator[Op]:
    """The maxima along the last dimension that elements are compared with, on the way to a mask."""
    op = value.op
    if op is None or not deep:
        return
    if op.name == "compare" and op.attrs.get("direction") == "EQ":
        wide = op.operands[1].producer("broadcast_in_dim")
        most = wide.operands[0].producer("reduce") if wide is not None else None
        if most is not None and _is_maximum(most, op.operands[0]):
            yield most
    for operand in op.operands:
        yield from _compared(operand, deep - 1)


def _is_maximum(op: Op, x: Value) -> bool:
    last = x.type.rank - 1
    of_line = op.attrs.get("kind") == "maximum" and op.attrs.integers("dimensions") == (last,)
    return of_line and op.operands[0] is x
