"""Derive the copy plan of one prepared tensor of one rank from its weight program.

``@weights.rank`` with the rank bound is slices, concatenations and transposes of checkpoint
tensors. The planner computes their indices, then walks back from the output. A program that
computes with the elements of a tensor is evaluated by NumPy, part by part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from graphgen.eval import (
    NATIVE,
    RULES,
    Array,
    arguments_of,
    numpy_dtype,
    rank_index,
)
from graphgen.ir import RANK, Attrs, Function, Op, Value
from graphgen.runtime.weights.computed_plan import ComputedPlan
from graphgen.runtime.weights.copy_plan import (
    CopyPlan,
    NotACopyError,
    concatenate,
    constant,
    convert,
    from_array,
    reshape,
    slice_box,
    take_blocks,
    transpose,
)

# An argument of a weight program by name: a checkpoint tensor, or a value of @weights.global.
Source = Callable[[str], CopyPlan]
# Bytes; larger values are not indices.
_SMALL = 1 << 16


def plan_output(
    function: Function, output: str, rank: int, source: Source
) -> CopyPlan | ComputedPlan:
    """The plan of one output of a weight program: of copies if nothing is computed.

    Args:
        function: ``@weights.rank`` or ``@weights.global``; static shapes.
        output: its name.
        rank: the rank the output is for.
        source: the arguments by name.
    """
    value = next(value for name, value in function.outputs if name == output)
    try:
        return _Planner(rank, source).plan(value)
    except NotACopyError:
        wanted = set(arguments_of(function, output))
        given = {
            arg: rank_index(rank) if arg.name == RANK else source(arg.name or "").array()
            for arg in function.args
            if arg.name in wanted
        }
        return ComputedPlan(value, given)


class _Planner:
    """Walks back from a value, memoizing plans."""

    def __init__(self, rank: int, source: Source) -> None:
        self.rank = rank
        self.source = source
        self.known: dict[Value, CopyPlan] = {}

    def plan(self, value: Value) -> CopyPlan:
        """The plan of ``value``; long chains are walked without recursion."""
        work = [value]
        while work:
            current = work[-1]
            if current in self.known:
                work.pop()
                continue
            waiting = (
                []
                if current.op is None
                else [v for v in current.op.operands if v not in self.known]
            )
            if waiting:
                work += waiting
                continue
            self.known[current] = self._made(current)
            work.pop()
        return self.known[value]

    def _made(self, value: Value) -> CopyPlan:
        if value.op is None:
            return (
                from_array(rank_index(self.rank))
                if value.name == RANK
                else self.source(value.name or "")
            )
        operands = [self.known[v] for v in value.op.operands]
        rule = _RULES.get(value.op.name)
        if rule is not None:
            return rule(value.op.attrs, operands, value)
        if any(operand.nbytes > _SMALL for operand in operands):
            raise NotACopyError
        return from_array(_evaluate(value.op, [operand.array() for operand in operands]))


def _evaluate(op: Op, operands: Sequence[Array]) -> Array:
    """Evaluate one small op of one result by NumPy."""
    rule = RULES.get(op.name)
    if rule is None or len(op.results) != 1:
        raise NotACopyError
    return np.asarray(rule(NATIVE, op.attrs, list(operands)))


def _integers(value: CopyPlan) -> list[int]:
    return [int(number) for number in value.array().reshape(-1)]


def _slice(attrs: Attrs, operands: Sequence[CopyPlan], _: Value) -> CopyPlan:
    starts, limits = attrs.integers("start_indices"), attrs.integers("limit_indices")
    if any(stride != 1 for stride in attrs.integers("strides")):
        raise NotACopyError
    return slice_box(operands[0], starts, [b - a for a, b in zip(starts, limits, strict=True)])


def _dynamic_slice(attrs: Attrs, operands: Sequence[CopyPlan], value: Value) -> CopyPlan:
    """Clamp the start so that the slice is inside the operand, as in HLO."""
    sizes = value.type.dims
    starts = [
        min(max(_integers(start)[0], 0), whole_size - size)
        for start, whole_size, size in zip(operands[1:], operands[0].shape, sizes, strict=True)
    ]
    return slice_box(operands[0], starts, sizes)


def _take(attrs: Attrs, operands: Sequence[CopyPlan], _: Value) -> CopyPlan:
    dimension, block = attrs.integer("dimension"), attrs.integer("block")
    blocks = operands[0].shape[dimension] // block
    indices = [at if 0 <= at < blocks else -1 for at in _integers(operands[1])]
    return take_blocks(operands[0], dimension, block, indices)


def _pad(attrs: Attrs, operands: Sequence[CopyPlan], value: Value) -> CopyPlan:
    low, high = attrs.integers("low"), attrs.integers("high")
    number = operands[1].array().reshape(-1)[0]
    made = operands[0]
    for dimension, (before, after) in enumerate(zip(low, high, strict=True)):
        around: list[CopyPlan] = []
        for count in (before, after):
            if count < 0:
                raise NotACopyError
            shape = list(made.shape)
            shape[dimension] = count
            around.append(constant(number, tuple(shape), made.dtype))
        made = concatenate([around[0], made, around[1]], dimension)
    if made.shape != value.type.dims:
        # Interior padding.
        raise NotACopyError
    return made


def _broadcast(attrs: Attrs, operands: Sequence[CopyPlan], value: Value) -> CopyPlan:
    operand = operands[0]
    if len(operand.boxes) != 1:
        raise NotACopyError
    shape = value.type.dims
    source = operand.boxes[0].source
    spread = [1] * len(shape)
    for size, target in zip(source.shape, attrs.integers("dimensions"), strict=True):
        spread[target] = size
    try:
        view = source.reshape(spread, copy=False)
    except ValueError as error:
        raise NotACopyError from error
    return from_array(np.broadcast_to(view, shape), operand.dtype)


def _convert(attrs: Attrs, operands: Sequence[CopyPlan], value: Value) -> CopyPlan:
    assert value.op is not None
    if value.op.operands[0].dtype.is_float and not value.dtype.is_float:
        # The program saturates; a copy would wrap around.
        raise NotACopyError
    return convert(operands[0], numpy_dtype(value.dtype))


_Rule = Callable[[Attrs, Sequence[CopyPlan], Value], CopyPlan]
_RULES: Mapping[str, _Rule] = {
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "take": _take,
    "pad": _pad,
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda attrs, operands, _: concatenate(operands, attrs.integer("dimension")),
    "transpose": lambda attrs, operands, _: transpose(operands[0], attrs.integers("permutation")),
    "reshape": lambda _, operands, value: reshape(operands[0], value.type.dims),
    "convert": _convert,
}
