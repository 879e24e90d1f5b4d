"""Evaluation of programs whose large weights are streamed: one tile in memory at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import NATIVE, Arithmetic, Array, evaluate_op
from graphgen.exec.backend import RankArrays
from graphgen.ir import Function, Module, Op, Value
from graphgen.passes.layerwise.streamed_array import (
    MemoryMeter,
    Streamed,
    StreamedArray,
    converted,
    materialized,
)
from graphgen.passes.layerwise.streamed_rules import streamed_step

# One value on every rank.
Column = Sequence[Streamed]


@dataclass(frozen=True, slots=True)
class StreamedBackend:
    """Runs programs in NumPy, all ranks in step; products with streamed weights tile by tile.

    Attributes:
        weights: per rank, what programs read besides inputs and states, by name.
        arithmetic: element types of floats.
        meter: counts what is made and read.
        summed: outputs of which the ranks have addends; each is given their sum.
    """

    weights: Sequence[Mapping[str, Streamed]]
    arithmetic: Arithmetic = NATIVE
    meter: MemoryMeter = field(default_factory=MemoryMeter)
    summed: frozenset[str] = frozenset()

    def __call__(
        self, module: Module, function: Function, inputs: RankArrays
    ) -> list[dict[str, Array]]:
        """Evaluate ``function``, which makes no calls; see :class:`graphgen.exec.backend.Backend`.

        Raises:
            GraphgenError: GG0402 for an argument that neither side gives.
        """
        given = [{**w, **one} for w, one in zip(self.weights, inputs, strict=True)]
        made = run_streamed(function, given, self.arithmetic, self.meter, module)
        results = [
            {name: materialized(value, self.meter) for name, value in one.items()} for one in made
        ]
        for name in self.summed:
            addends = [one[name] for one in results]
            total = np.sum(np.stack(addends), 0, dtype=np.float64).astype(addends[0].dtype)
            for one in results:
                one[name] = total
        return results


def run_streamed(
    function: Function,
    inputs: Sequence[Mapping[str, Streamed]],
    arithmetic: Arithmetic,
    meter: MemoryMeter,
    module: Module | None = None,
) -> list[dict[str, Streamed]]:
    """Run a function on every rank, op by op; a value is dropped after the last op that reads it.

    Args:
        function: static shapes, no calls.
        inputs: per rank, each argument by name.
        arithmetic: in which floats to compute.
        meter: counts what is made.
        module: has the bodies of loops and branches.

    Returns:
        Per rank, the outputs by name.
    """
    ranks = len(inputs)
    env: dict[Value, Column] = {}
    for value in function.args:
        env[value] = [_argument(function, one, value, arithmetic) for one in inputs]
    last = {value: op for op in function.block for value in op.operands}
    kept = {value for _, value in function.outputs}
    for op in function.block:
        results = _step(op, [env[v] for v in op.operands], ranks, arithmetic, meter, module)
        env.update(zip(op.results, results, strict=True))
        for value in op.operands:
            if last[value] is op and value not in kept:
                env.pop(value, None)
    return [{name: env[v][rank] for name, v in function.outputs} for rank in range(ranks)]


def _argument(
    function: Function, given: Mapping[str, Streamed], value: Value, arithmetic: Arithmetic
) -> Streamed:
    name = value.name or ""
    if name not in given:
        raise GraphgenError("GG0402", f"@{function.name} needs the input %{name} {value.type.text}")
    array = given[name]
    if array.shape != value.type.dims:
        what = f"input %{name} is {list(array.shape)}, not {value.type.text}"
        raise GraphgenError("GG0402", f"@{function.name}: {what}")
    kind = arithmetic.dtype(value.dtype)
    if isinstance(array, StreamedArray):
        make = array.make

        def tile(start: int, stop: int) -> Array:
            return _held(make(start, stop), kind, arithmetic)

        return array.derived(array.shape, array.axis, tile)
    return _held(array, kind, arithmetic)


def _held(array: Array, kind: np.dtype[np.generic], arithmetic: Arithmetic) -> Array:
    """The array in the type it is held in; a wide float stays one, also as an integer's bits."""
    if arithmetic.carries(array):
        return array
    return converted(array, kind)


def _step(
    op: Op,
    operands: Sequence[Column],
    ranks: int,
    arithmetic: Arithmetic,
    meter: MemoryMeter,
    module: Module | None,
) -> list[Column]:
    """The results of one op: per result, one value a rank."""
    if any(isinstance(x, StreamedArray) for column in operands for x in column):
        rows: list[Sequence[Streamed]] = []
        for rank in range(ranks):
            with np.errstate(all="ignore"):
                made = streamed_step(op, [column[rank] for column in operands], arithmetic, meter)
            if made is None:
                break
            rows.append(made)
        if len(rows) == ranks:
            return [[results[i] for results in rows] for i in range(len(op.results))]
    dense = [[materialized(x, meter) for x in column] for column in operands]
    results = evaluate_op(op, dense, ranks, arithmetic, module)
    for column in results:
        for array in column:
            meter.made(array)
    return list(results)
