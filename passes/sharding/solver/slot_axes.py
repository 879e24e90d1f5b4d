"""Find mesh axes along the slots of caches, and the attention ops over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphgen.ir import Function, Module, Op, Role, Value
from graphgen.ir.sharding import Axes
from graphgen.passes.sharding.spec.op_factors import factors_of
from graphgen.passes.weights.derived import PreparedValues

_PRODUCTS = ("dot_general", "convolution")


def slot_axes(module: Module) -> Axes:
    """The axes that split the slots of a cache [R,M,...] which a program of the module updates."""
    found: dict[str, None] = {}
    for function in module.programs():
        for op in function.block:
            row = module.interface.get(op.operands[0].name or "") if op.operands else None
            if op.name == "kv_update" and row is not None and row.role is Role.STATE:
                found.update(dict.fromkeys(row.sharding.dims[1] if row.sharding else ()))
    return tuple(found)


def attention_of_parts(function: Function) -> set[Op]:
    """The attention whose keys and values each rank has for its own slots, without a collective.

    Their slots stay divided: it is what splitting a cache along its slots is for. Of the first
    slots of a row some ranks have none, so that these are gathered.
    """
    found: set[Op] = set()
    for op in function.block:
        if op.name == "attention":
            reads = [_read_of(value) for value in op.operands[1:3]]
            if all(read is not None and _may_split(read) for read in reads):
                found.add(op)
    return found


def _read_of(value: Value) -> Op | None:
    """The ``cache_read`` that a value is made of."""
    work, seen = [value], {value}
    while work:
        op = work.pop(0).op
        if op is not None and op.name == "cache_read":
            return op
        fresh = [v for v in (op.operands if op is not None else ()) if v not in seen]
        seen.update(fresh)
        work += fresh
    return None


def _may_split(read: Op) -> bool:
    factors = factors_of(read)
    return factors is not None and bool(factors.slots)


def ops_around_attention(prepared: Mapping[Function, PreparedValues]) -> set[Op]:
    """The ops from the products before each attention to the one after it, both included.

    Where ranks are factored into groups with key-value heads of their own and members with slots of
    their own, these ops use one of the axes, and all others both together.

    Args:
        prepared: what each program makes of weights.
    """
    found: set[Op] = set()
    for function, made in prepared.items():
        for op in function.block:
            if op.name == "attention":
                found.add(op)
                _sources(op.operands, made, found)
                _users(op.results, made, found)
    return found


def _sources(values: Sequence[Value], made: PreparedValues, found: set[Op]) -> None:
    """Add the ops that the values are made by, back to products with weights."""
    work = list(values)
    while work:
        op = work.pop().op
        if op is None or op in found or made.of_weights(op.results[0]):
            continue
        found.add(op)
        weights = [value for value in op.operands if _of_weights(value, made)]
        # Ops that widen the weight of a product belong to it.
        work += weights if op.name in _PRODUCTS and weights else op.operands


def _users(values: Sequence[Value], made: PreparedValues, found: set[Op]) -> None:
    """Add the ops that read the values, up to products with weights."""
    work = list(values)
    while work:
        for op in work.pop().users:
            if op in found:
                continue
            found.add(op)
            weights = [value for value in op.operands if _of_weights(value, made)]
            _sources(weights, made, found)
            if op.name not in _PRODUCTS or not weights:
                work += op.results


def _of_weights(value: Value, made: PreparedValues) -> bool:
    """True for a weight, and for one that an op of the program enlarges."""
    if made.of_weights(value):
        return True
    op = value.op
    return op is not None and bool(op.operands) and all(_of_weights(v, made) for v in op.operands)
