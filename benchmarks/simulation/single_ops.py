"""Ops of a program, each timed alone: a program of many copies of one op, which read other weights.

Nothing of a model's step is timed: copies are launched without what stands before and after them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.simulation.micro_programs import median_seconds
from benchmarks.simulation.model_steps import decode_program
from benchmarks.simulation.step_simulation import op_key, runs_alone
from graphgen.build import Builder
from graphgen.ir import Function, Module, Op, Value
from graphgen.ir.clone import Cloner
from graphgen.lowering.cpu.program import compile_program

# More than any cache holds, and the most copies of a small op.
_STREAMED, _COPIES = 128 << 20, 64
# Operands of this size are each copy's own; smaller ones stay in the cache in a model, too.
_OWN = 32 << 10


def op_seconds(given: dict[str, Any]) -> Mapping[str, float]:
    """Seconds of one run of each different op of a decode step, by its key."""
    module, function = decode_program(given["dtype"], given["ranks"])
    found: dict[str, float] = {}
    for op in function.block:
        key = op_key(op)
        if runs_alone(op) and key not in found:
            found[key] = _seconds_of(module, op)
    return found


def _seconds_of(module: Module, op: Op) -> float:
    """The difference that further copies make."""
    size = sum(value.type.nbytes for value in op.operands)
    count = max(4, min(_COPIES, _STREAMED // max(size, 1)))
    return max(0.0, (_copies(module, op, 2 * count) - _copies(module, op, count)) / count)


def _copies(module: Module, op: Op, count: int) -> float:
    made = Module("m", "target")
    for name, function in module.functions.items():
        if not function.phase:
            made.functions[name] = function
    program = made.add(Function("f"))
    shared: dict[Value, Value] = {}
    total: Value | None = None
    for _ in range(count):
        operands = [_argument(program, shared, value) for value in op.operands]
        copy = Cloner(names=False).detached(op, operands)
        program.block.append(copy)
        total = _added(Builder(program), total, copy.results[0])
    assert total is not None
    program.outputs = [("y", total)]
    return median_seconds(compile_program(made, program))


def _argument(program: Function, shared: dict[Value, Value], value: Value) -> Value:
    if value.type.nbytes < _OWN and value in shared:
        return shared[value]
    made = program.block.add_arg(value.type, f"a{len(program.args)}")
    shared[value] = made
    return made


def _added(b: Builder, total: Value | None, result: Value) -> Value:
    """The sum so far and one element of a result: XLA keeps what something reads."""
    rank = len(result.shape)
    one = b.reshape(b.slice(result, [0] * rank, [1] * rank), ())
    return one if total is None else b.binary("add", total, one)
