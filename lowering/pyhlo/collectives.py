"""Ops of PyHLO that speak to other ranks."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Value
from graphgen.lowering.pyhlo.given import Given
from graphgen.lowering.pyhlo.ops import Write, only, operands
from graphgen.lowering.pyhlo.regions import reducer
from graphgen.lowering.pyhlo.scribe import Trace
from graphgen.lowering.pyhlo.shapes import Result, Shape


def _all_reduce(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    (value,) = operands(a, x, 1)
    kind = reducer(t, a, "all_reduce")
    return [t.b.all_reduce(value, a.groups("replica_groups"), kind)]


def _all_gather(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    (value,) = operands(a, x, 1)
    return [t.b.all_gather(value, a.groups("replica_groups"), only(a))]


def _reduce_scatter(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    (value,) = operands(a, x, 1)
    kind = reducer(t, a, "reduce_scatter")
    return [t.b.reduce_scatter(value, a.groups("replica_groups"), only(a), kind)]


def _all_to_all(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    (value,) = operands(a, x, 1)
    dim = only(a)
    return [t.b.all_to_all(value, a.groups("replica_groups"), dim, dim)]


COLLECTIVES: dict[str, Write] = {
    "AllReduce": _all_reduce,
    "AllGather": _all_gather,
    "ReduceScatter": _reduce_scatter,
    "AllToAll": _all_to_all,
}
