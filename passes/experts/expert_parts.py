"""Gather the weights of some experts from their stored form, before dequantization.

A quantized weight is widened after its part has been chosen: what is chosen are the operands of the
ops that widen it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphgen.build import Builder
from graphgen.ir import AttrValue, Op, Value

# A stored value [E,...] -> its part [n,...].
Choose = Callable[[Value], Value]
_ELEMENTWISE = ("convert", "multiply", "add", "subtract", "divide")


def stored_values(weights: Sequence[Value]) -> list[Value]:
    """The values [E,...] that weights [E,...] are widened from, each once."""
    found: dict[Value, None] = {}
    for weight in weights:
        _collect(weight, found)
    return list(found)


def part_of(b: Builder, weight: Value, count: int, choose: Choose) -> Value:
    """The part [n,...] of a weight [E,...], with its stored values chosen.

    Args:
        b: where to build.
        weight: of the program.
        count: n.
        choose: gives the part of a stored value.
    """
    op = _widening(weight)
    if op is None:
        return choose(weight)
    inner = [part_of(b, value, count, choose) for value in op.operands]
    attrs: dict[str, AttrValue] = {**op.attrs}
    if op.name == "broadcast_in_dim":
        attrs["shape"] = (count, *weight.shape[1:])
    return b.emit(op.name, inner, attrs).result


def _collect(weight: Value, found: dict[Value, None]) -> None:
    op = _widening(weight)
    if op is None:
        found[weight] = None
        return
    for value in op.operands:
        _collect(value, found)


def _widening(value: Value) -> Op | None:
    """The op that makes a value [E,...] expert by expert; ``None`` if another one does."""
    op, experts = value.op, value.shape[0]
    if op is None or any(not x.shape or x.shape[0] != experts for x in op.operands):
        return None
    if op.name in _ELEMENTWISE:
        return op
    if op.name == "dequantize":
        return op if op.attrs.integers("block")[0] == 1 else None
    broadcast = op.name == "broadcast_in_dim" and op.attrs.integers("dimensions")[:1] == (0,)
    return op if broadcast and op.operands else None
