"""Functions as flat tuples, which is how they are pickled and copied by ``copy.deepcopy``.

Ops and values name each other in a chain as long as the program, and pickle follows such a chain by
recursion; in a flat tuple values go by number.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir.attrs import Attrs
from graphgen.ir.dims import Dim
from graphgen.ir.graph import Op, Value
from graphgen.ir.loc import Loc
from graphgen.ir.module import Function
from graphgen.ir.sharding import Sharding
from graphgen.ir.types import TensorType

FlatValue = tuple[TensorType, str | None, Sharding | None, Attrs]
FlatOp = tuple[str, tuple[int, ...], Attrs, Attrs, Loc, Sequence[FlatValue]]
FlatFunction = tuple[
    str,  # the name
    str,  # the phase
    dict[str, Dim],
    Sequence[FlatValue],  # the arguments
    Sequence[FlatOp],
    Sequence[tuple[str, int]],  # the outputs
    Attrs,  # the annotations
]


def flatten(function: Function) -> FlatFunction:
    """The function as names, numbers and what is interned."""
    numbers = {value: index for index, value in enumerate(function.args)}
    ops: list[FlatOp] = []
    for op in function.block:
        operands = tuple([numbers[value] for value in op.operands])
        for result in op.results:
            numbers[result] = len(numbers)
        results = [_flat(value) for value in op.results]
        ops.append((op.name, operands, op.attrs, op.annotations, op.loc, results))
    arguments = [_flat(value) for value in function.args]
    outputs = [(name, numbers[value]) for name, value in function.outputs]
    head = function.name, function.phase, function.dims
    return *head, arguments, ops, outputs, function.annotations


def unflatten(
    name: str,
    phase: str,
    dims: dict[str, Dim],
    arguments: Sequence[FlatValue],
    ops: Sequence[FlatOp],
    outputs: Sequence[tuple[str, int]],
    annotations: Attrs,
) -> Function:
    """The function of which :func:`flatten` gave these fields."""
    made = Function(name, phase, dims)
    made.annotations = annotations
    values: list[Value] = []
    for type_, known_as, layout, noted in arguments:
        values.append(made.block.add_arg(type_, known_as or ""))
        values[-1].sharding, values[-1].annotations = layout, noted
    for op_name, operands, attrs, noted, where, results in ops:
        types, names = [result[0] for result in results], [result[1] for result in results]
        op = Op(op_name, tuple([values[i] for i in operands]), types, attrs, where, names)
        op.annotations = noted
        for value, result in zip(op.results, results, strict=True):
            value.sharding = result[2]
        values += op.results
        made.block.append(op)
    made.outputs = [(key, values[index]) for key, index in outputs]
    return made


def _flat(value: Value) -> FlatValue:
    return value.type, value.name, value.sharding, value.annotations
