"""Values of a program that are computed alike: one op on the same operands, with one result."""

from __future__ import annotations

from graphgen.ir import Function, Value
from graphgen.ops import OPS
from graphgen.ops.traits import Trait


def congruent_values(function: Function) -> dict[Value, Value]:
    """The first value that is computed alike, of each later one.

    Every rank runs the same collectives, so two of one kind on one operand are alike, too.
    """
    first: dict[object, tuple[Value, ...]] = {}
    found: dict[Value, Value] = {}
    for op in function.block:
        definition = OPS[op.name]
        if not definition.has(Trait.PURE) and not definition.has(Trait.COLLECTIVE):
            continue
        operands = tuple([found.get(operand, operand) for operand in op.operands])
        results = tuple(op.results)
        types = tuple([result.type for result in results])
        earlier = first.setdefault((op.name, op.attrs, operands, types), results)
        if earlier is not results:
            found |= zip(results, earlier, strict=True)
    return found
