"""Trip counts of loops, and the ops that a program with loops and conditionals runs.

The trip count is the stated one, or the result of evaluating the loop counter: the part of the
state that the condition depends on, if it starts with constants, as in ``for`` loops and scans. Any
other loop counts as one iteration, and a conditional as its most expensive branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from graphgen.errors import GraphgenError
from graphgen.ir import Dim, Function, Module, Op, Value
from graphgen.ops.control import CONTROL, SCALAR, UNKNOWN_TRIPS, callees

if TYPE_CHECKING:
    from graphgen.eval import Array

# Limits on the iterations and elements of an evaluated counter.
MOST_TRIPS, MOST_ELEMENTS = 10_000, 64


def trip_count(module: Module, op: Op, most: int = MOST_TRIPS) -> int | None:
    """The trip count of a ``while``; ``None`` if unknown.

    Args:
        module: has its functions.
        op: the loop.
        most: limit on evaluated iterations.
    """
    stated = op.attrs.integer("trip_count")
    if stated != UNKNOWN_TRIPS:
        return stated
    condition, body = (module.function(name) for name in callees(op))
    counters = _counters(condition, body)
    start = [op.operands[index] for index in counters]
    if any(_large(value) for value in start):
        return None
    try:
        return _run(module, condition, body, counters, _constants(start), most)
    except GraphgenError:
        # The counter depends on an op that cannot be evaluated.
        return None


def _counters(condition: Function, body: Function) -> list[int]:
    """The indices of the state that the condition depends on, transitively."""
    found: set[int] = set()
    work = _needs(condition, condition.outputs[0][1])
    while work:
        index = work.pop()
        if index not in found:
            found.add(index)
            work |= _needs(body, body.outputs[index][1])
    return sorted(found)


def _needs(function: Function, value: Value) -> set[int]:
    """The indices of the arguments that a value depends on."""
    places = {argument: index for index, argument in enumerate(function.args)}
    seen, work = {value}, [value]
    while work:
        op = work.pop().op
        fresh = [operand for operand in (op.operands if op else ()) if operand not in seen]
        seen.update(fresh)
        work += fresh
    return {places[item] for item in seen if item in places}


def _large(value: Value) -> bool:
    elements = value.type.size
    return not isinstance(elements, int) or elements > MOST_ELEMENTS


def _constants(values: Sequence[Value]) -> list[Array]:
    """The arrays of values that depend on no argument."""
    from graphgen.eval import evaluate_values

    for value in values:
        work, seen = [value], {value}
        while work:
            item = work.pop()
            if item.op is None or _large(item):
                raise GraphgenError("GG0403", "the counter begins with what is not constant")
            fresh = [operand for operand in item.op.operands if operand not in seen]
            seen.update(fresh)
            work += fresh
    return list(evaluate_values({}, values))


def _run(
    module: Module,
    condition: Function,
    body: Function,
    counters: Sequence[int],
    start: Sequence[Array],
    most: int,
) -> int | None:
    """Turns until the condition fails."""
    from graphgen.eval import evaluate_values

    state = list(start)
    test = condition.outputs[0][1]
    after = [body.outputs[index][1] for index in counters]
    for count in range(most + 1):
        given = dict(zip([condition.args[index] for index in counters], state, strict=True))
        (goes,) = evaluate_values(given, [test], module)
        if not bool(goes):
            return count
        given = dict(zip([body.args[index] for index in counters], state, strict=True))
        state = list(evaluate_values(given, after, module))
    return None


def ops_run(module: Module, ops: Iterable[Op]) -> Iterator[tuple[Op, int]]:
    """Yield every op that runs with its run count; bodies replace the ops that run them."""
    for op in ops:
        if op.name not in CONTROL or op.name in SCALAR:
            yield op, 1
            continue
        functions = [module.function(name) for name in callees(op)]
        if op.name == "while":
            trips = trip_count(module, op)
            trips = 1 if trips is None else trips
            counts = (trips + 1, trips)
        else:
            chosen = max(range(len(functions)), key=lambda i: _weight(module, functions[i]))
            counts = tuple([int(i == chosen) for i in range(len(functions))])
        for function, count in zip(functions, counts, strict=True):
            if count:
                for inner, times in ops_run(module, function.block):
                    yield inner, times * count


def _weight(module: Module, function: Function) -> tuple[int, int]:
    from graphgen.analysis.work import total_of

    work = total_of(ops_run(module, function.block))
    return _number(work.flops), _number(work.bytes)


def _number(count: Dim) -> int:
    return count if isinstance(count, int) else 0
