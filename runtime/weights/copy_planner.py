"""One prepared tensor of one rank: read off its program as copies where it is no more than copies.

``@weights.rank`` with the rank bound is slices, joins and permutations of checkpoint tensors. Their
indices are computed first; then a walk back from the output says which box of which tensor goes
where. What computes with the elements of a tensor is evaluated by NumPy, which is also the oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from graphgen.eval import (
    NATIVE,
    RULES,
    Array,
    arguments_of,
    evaluate_output,
    numpy_dtype,
    rank_index,
)
from graphgen.ir import RANK, Attrs, Function, Op, Value
from graphgen.runtime.weights.copy_plan import (
    NotACopyError,
    Pieces,
    constant,
    convert,
    cut,
    join,
    permute,
    reshape,
    take_blocks,
    whole,
)

# Gives an argument of a weight program: a checkpoint tensor, or a fact about whole tensors.
Source = Callable[[str], Pieces]
# Larger values are nobody's indices.
_SMALL = 1 << 16


def plan_output(function: Function, output: str, rank: int, source: Source) -> Pieces:
    """An output of a weight program as pieces of its arguments.

    Args:
        function: ``@weights.rank`` or ``@weights.global``; static shapes.
        output: its name.
        rank: the rank the output is for.
        source: gives the arguments by name.
    """
    value = next(value for name, value in function.outputs if name == output)
    try:
        return _Planner(rank, source).pieces(value)
    except NotACopyError:
        inputs = {
            name: source(name).array() for name in arguments_of(function, output) if name != RANK
        }
        return whole(evaluate_output(function, output, {**inputs, RANK: rank_index(rank)}))


class _Planner:
    """Walks back from a value."""

    def __init__(self, rank: int, source: Source) -> None:
        self.rank = rank
        self.source = source
        self.known: dict[Value, Pieces] = {}

    def pieces(self, value: Value) -> Pieces:
        """The value as pieces; long chains are walked without recursion."""
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

    def _made(self, value: Value) -> Pieces:
        if value.op is None:
            return (
                whole(rank_index(self.rank))
                if value.name == RANK
                else self.source(value.name or "")
            )
        operands = [self.known[v] for v in value.op.operands]
        rule = _RULES.get(value.op.name)
        if rule is not None:
            return rule(value.op.attrs, operands, value)
        if any(operand.nbytes > _SMALL for operand in operands):
            raise NotACopyError
        return whole(_evaluate(value.op, [operand.array() for operand in operands]))


def _evaluate(op: Op, operands: Sequence[Array]) -> Array:
    """One small op of one result, by NumPy."""
    rule = RULES.get(op.name)
    if rule is None or len(op.results) != 1:
        raise NotACopyError
    return np.asarray(rule(NATIVE, op.attrs, list(operands)))


def _integers(value: Pieces) -> list[int]:
    return [int(number) for number in value.array().reshape(-1)]


def _slice(attrs: Attrs, operands: Sequence[Pieces], _: Value) -> Pieces:
    starts, limits = attrs.integers("start_indices"), attrs.integers("limit_indices")
    if any(stride != 1 for stride in attrs.integers("strides")):
        raise NotACopyError
    return cut(operands[0], starts, [b - a for a, b in zip(starts, limits, strict=True)])


def _dynamic_slice(attrs: Attrs, operands: Sequence[Pieces], value: Value) -> Pieces:
    """The start is clamped so that the slice lies inside, as in HLO."""
    sizes = value.type.dims
    starts = [
        min(max(_integers(start)[0], 0), whole_size - size)
        for start, whole_size, size in zip(operands[1:], operands[0].shape, sizes, strict=True)
    ]
    return cut(operands[0], starts, sizes)


def _take(attrs: Attrs, operands: Sequence[Pieces], _: Value) -> Pieces:
    dimension, block = attrs.integer("dimension"), attrs.integer("block")
    blocks = operands[0].shape[dimension] // block
    indices = [at if 0 <= at < blocks else -1 for at in _integers(operands[1])]
    return take_blocks(operands[0], dimension, block, indices)


def _pad(attrs: Attrs, operands: Sequence[Pieces], value: Value) -> Pieces:
    low, high = attrs.integers("low"), attrs.integers("high")
    number = operands[1].array().reshape(-1)[0]
    made = operands[0]
    for dimension, (before, after) in enumerate(zip(low, high, strict=True)):
        around: list[Pieces] = []
        for count in (before, after):
            if count < 0:
                raise NotACopyError
            shape = list(made.shape)
            shape[dimension] = count
            around.append(constant(number, tuple(shape), made.dtype))
        made = join([around[0], made, around[1]], dimension)
    if made.shape != value.type.dims:
        # Something between the elements as well.
        raise NotACopyError
    return made


def _broadcast(attrs: Attrs, operands: Sequence[Pieces], value: Value) -> Pieces:
    operand = operands[0]
    if len(operand.parts) != 1:
        raise NotACopyError
    shape = value.type.dims
    source = operand.parts[0].source
    spread = [1] * len(shape)
    for size, target in zip(source.shape, attrs.integers("dimensions"), strict=True):
        spread[target] = size
    try:
        view = source.reshape(spread, copy=False)
    except ValueError as error:
        raise NotACopyError from error
    return whole(np.broadcast_to(view, shape), operand.dtype)


def _convert(attrs: Attrs, operands: Sequence[Pieces], value: Value) -> Pieces:
    assert value.op is not None
    if value.op.operands[0].dtype.is_float and not value.dtype.is_float:
        # What does not fit goes to the end of the range; a copy would wrap around.
        raise NotACopyError
    return convert(operands[0], numpy_dtype(value.dtype))


_Rule = Callable[[Attrs, Sequence[Pieces], Value], Pieces]
_RULES: Mapping[str, _Rule] = {
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "take": _take,
    "pad": _pad,
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda attrs, operands, _: join(operands, attrs.integer("dimension")),
    "transpose": lambda attrs, operands, _: permute(operands[0], attrs.integers("permutation")),
    "reshape": lambda _, operands, value: reshape(operands[0], value.type.dims),
    "convert": _convert,
}
