"""Cuts of a program between its layers: the one value that all of a later layer is made of.

Every op that depends on both a weight or state and on an input of the call belongs to a *stage*:
0 before the layers, 1 to N a layer each, N + 1 after them. An op's stage is the layer its scope
names, or that of what it reads where that is later; so stages only grow along the program, and
dividing it between two of them is always sound, wherever a pass has put an op. Masks, rope tables
and whatever else depends on inputs or on weights alone belong to no stage: each layer makes its
own.

Between two stages the program can be cut at a value if everything later is computed from it and
from what belongs to no stage. Mostly this is the residual stream. Where there is no such value, as
after a fusion across layers, the two stages stay together and are compared as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from graphgen.analysis.layers import scope_of
from graphgen.ir import HELD_ROLES, Function, Module, Op, Role, Value

_HELD, _GIVEN = 1, 2
_BOTH = _HELD | _GIVEN
_SOURCES = {
    **dict.fromkeys((*HELD_ROLES, Role.PARAM, Role.STATE), _HELD),
    **dict.fromkeys((Role.INPUT, Role.LAYOUT), _GIVEN),
}


@dataclass(frozen=True, slots=True, eq=False)
class ProgramCuts:
    """Stages of one program.

    Attributes:
        function: the program, without calls.
        stages: stage of each value that depends on both what is held and what is given.
        cuts: last stage before a cut -> the value cut at.
    """

    function: Function
    stages: Mapping[Value, int]
    cuts: Mapping[int, Value]


def layer_scopes(function: Function) -> list[str]:
    """The scopes of the layers of a program without calls, in order of their first op."""
    found: dict[str, None] = {}
    for op in function.block:
        scope = scope_of(op)
        if scope:
            found.setdefault(scope)
    return list(found)


def cut_program(module: Module, function: Function, scopes: Sequence[str]) -> ProgramCuts:
    """Divide a program into stages, and find the values to cut it at.

    Args:
        module: its interface says which arguments are weights, states and inputs.
        function: a program without calls.
        scopes: of the layers, in order.
    """
    sources = _sources(module, function)
    stages = _stages(function, sources, {scope: i + 1 for i, scope in enumerate(scopes)})
    cuts: dict[int, Value] = {}
    for stage, crossing in _crossings(stages, len(scopes)).items():
        for value in crossing:
            if all(_derived(other, value, sources) for other in crossing):
                cuts[stage] = value
                break
    return ProgramCuts(function, stages, cuts)


def _sources(module: Module, function: Function) -> dict[Value, int]:
    """Dependence of each value: on weights and states, inputs, both, or neither."""
    found: dict[Value, int] = {}
    for value in function.args:
        row = module.interface.get(value.name or "")
        found[value] = _SOURCES.get(row.role, 0) if row is not None else 0
    for op in function.block:
        kind = 0
        for value in op.operands:
            kind |= found[value]
        for result in op.results:
            found[result] = kind
    return found


def _stages(
    function: Function, sources: Mapping[Value, int], numbers: Mapping[str, int]
) -> dict[Value, int]:
    final = len(numbers)
    inner = _before_end(function, {scope for scope, n in numbers.items() if n == final})
    found: dict[Value, int] = {}
    for op in function.block:
        if sources[op.results[0]] != _BOTH:
            continue
        own = numbers.get(scope_of(op), 0)
        stage = max([own, *[found.get(value, 0) for value in op.operands]])
        if stage == final and not own and op not in inner:
            stage = final + 1
        for result in op.results:
            found[result] = stage
    return found


def _before_end(function: Function, last: set[str]) -> set[Op]:
    """Ops of the last layer, their producers, and the updates of states."""
    found: set[Op] = set()
    ends = {value for _, value in function.outputs}
    for op in reversed(function.block):
        read = [user for result in op.results for user in result.users]
        # A state is stored by ops that name no layer where a pass has changed how it is held.
        stored = not op.loc.scope and any(result in ends for result in op.results)
        if scope_of(op) in last or stored or any(user in found for user in read):
            found.add(op)
    return found


def _crossings(stages: Mapping[Value, int], layers: int) -> dict[int, list[Value]]:
    """Last stage before each possible cut -> the values made up to it and read after it."""
    found: dict[int, list[Value]] = {stage: [] for stage in range(layers + 1)}
    for value, stage in stages.items():
        read = [stages[user.results[0]] for user in value.users if user.results[0] in stages]
        for between in range(stage, max(read, default=stage)):
            found[between].append(value)
    return found


def _derived(value: Value, cut: Value, sources: Mapping[Value, int]) -> bool:
    """True if ``value`` can be made from ``cut`` and inputs, without a weight or a state."""
    work = [value]
    while work:
        item = work.pop()
        if item is cut or not sources[item] & _HELD:
            continue
        if item.op is None or sources[item] != _BOTH:
            return False
        work.extend(item.op.operands)
    return True


def needed(wanted: Iterable[Value], begin: Value | None) -> tuple[set[Op], set[Value]]:
    """The ops and values that some values are computed from, no further than ``begin``."""
    ops: set[Op] = set()
    seen: set[Value] = set()
    work = list(wanted)
    while work:
        value = work.pop()
        if value in seen:
            continue
        seen.add(value)
        if value is not begin and value.op is not None and value.op not in ops:
            ops.add(value.op)
            work.extend(value.op.operands)
    return ops, seen
