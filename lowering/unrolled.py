"""Unroll loops of a known trip count for proofs, which must not depend on ``unroll-loops``."""

from __future__ import annotations

from graphgen.analysis.calls import inlined
from graphgen.analysis.loops import trip_count
from graphgen.ir import Function, Module, Op, Value, attrs_of
from graphgen.ir.clone import Cloner
from graphgen.ops.control import UNKNOWN_TRIPS

# Trips of a loop, and ops that a program may have in the end.
_MOST_TRIPS, _MOST_OPS = 64, 20_000


def unrolled(module: Module, function: Function) -> Function:
    """A copy of a function in which the ops of its loops stand one after the other.

    Loops of an unknown number of trips, or of many, are kept.
    """
    made = Function(function.name, function.phase, dict(function.dims))
    copier = Cloner()
    for arg in function.args:
        copier.mapping[arg] = made.block.add_arg(arg.type, arg.name or "")
    _copied(module, function, copier, made)
    made.outputs = [(name, copier.mapping[value]) for name, value in function.outputs]
    return made


def _copied(module: Module, function: Function, copier: Cloner, made: Function) -> None:
    for op in function.block:
        trips = _trips(module, op)
        if trips is None or made.block.size > _MOST_OPS:
            copier.op(op, made.block)
            continue
        body = inlined(module, module.function(op.attrs.text("body")))
        state: list[Value] = [copier.mapping[value] for value in op.operands]
        for _ in range(trips):
            inner = Cloner(dict(zip(body.args, state, strict=True)), names=False)
            _copied(module, body, inner, made)
            state = [inner.mapping[value] for _, value in body.outputs]
        copier.mapping.update(zip(op.results, state, strict=True))


def _trips(module: Module, op: Op) -> int | None:
    if op.name != "while":
        return None
    stated = op.attrs
    # A number that the file states is not relied on.
    op.attrs = attrs_of({**stated, "trip_count": UNKNOWN_TRIPS})
    try:
        trips = trip_count(module, op, _MOST_TRIPS)
    finally:
        op.attrs = stated
    return trips if trips is not None and trips <= _MOST_TRIPS else None
