"""Programs that run other functions: which those are, and the same program without calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graphgen.ir import Function, Loc, Module, Op, Value, loc
from graphgen.ops.control import CONTROL, callees
from graphgen.ops.foreign import FOREIGN, has_effect


def inlined(
    module: Module, function: Function, copies: dict[Value, Value] | None = None
) -> Function:
    """``function`` without calls; itself if it has none. Bodies of loops and branches stay theirs.

    What is copied out of a body is in the scope of the call, as :func:`within` says, so layers that
    share a function are told apart again.

    Args:
        module: has the functions that are called.
        function: well formed, as the verifier leaves it; left as it is.
        copies: is told what the values of ``function`` have become.
    """
    if not any(op.name == "call" for op in function.block):
        return function
    made = Function(function.name, function.phase, dict(function.dims))
    mapping: dict[Value, Value] = {} if copies is None else copies
    for value in function.args:
        mapping[value] = made.block.add_arg(value.type, value.name or "")
        mapping[value].sharding = value.sharding
    _copy(module, function, made, mapping, None)
    made.outputs = [(name, mapping[value]) for name, value in function.outputs]
    return made


def called(module: Module, function: Function) -> list[Function]:
    """What a function runs, and what that runs, each once, in the module's order."""
    found: set[str] = set()
    work = [function]
    while work:
        for op in work.pop().block:
            for name in callees(op):
                if name not in found:
                    found.add(name)
                    work.append(module.function(name))
    return [item for name, item in module.functions.items() if name in found]


def run_by_programs(module: Module) -> set[str]:
    """What the programs call, loop over or choose from, and what that runs: names."""
    return {item.name for program in module.programs() for item in called(module, program)}


def holds_any(module: Module, op: Op, what: Callable[[Op], bool]) -> bool:
    """Whether ``what`` is true of an op, or of one in the functions that it runs."""
    if op.name not in CONTROL:
        return what(op)
    functions = [module.function(name) for name in callees(op)]
    return any(holds_any(module, inner, what) for function in functions for inner in function.block)


def acts(module: Module, op: Op) -> bool:
    """Whether an op does something beside giving its results, also in a function that it runs."""
    return holds_any(module, op, lambda inner: has_effect(inner.name, inner.attrs))


def is_foreign(module: Module, op: Op) -> bool:
    """Whether nobody here knows what an op does, or one in a function that it runs."""
    return holds_any(module, op, lambda inner: inner.name in FOREIGN)


def within(outer: Loc, inner: Loc) -> Loc:
    """The place of an op of a body, seen from a call of it: its scope is inside of the call's."""
    scope = ".".join([part for part in (outer.scope, inner.scope) if part])
    return loc(inner.file, inner.line, scope, inner.via)


def outside(outer: str, inner: Loc) -> Loc:
    """What :func:`within` undoes: the place of an op without the scope ``outer`` around it."""
    scope = inner.scope.removeprefix(outer).removeprefix(".")
    return loc(inner.file, inner.line, scope, inner.via)


def _copy(
    module: Module,
    source: Function,
    target: Function,
    mapping: dict[Value, Value],
    called: Loc | None,
) -> None:
    """Copy the ops of ``source``, whose arguments are in ``mapping`` already."""
    places: dict[Loc, Loc] = {}
    for op in source.block:
        where = op.loc
        if called is not None:
            where = places.get(op.loc) or places.setdefault(op.loc, within(called, op.loc))
        copy = _inline if op.name == "call" else _plain
        mapping.update(zip(op.results, copy(module, op, target, mapping, where), strict=True))


def _plain(
    module: Module, op: Op, target: Function, mapping: Mapping[Value, Value], where: Loc
) -> tuple[Value, ...]:
    made = Op(
        op.name,
        tuple([mapping[value] for value in op.operands]),
        [result.type for result in op.results],
        op.attrs,
        where,
        [result.name for result in op.results],
    )
    target.block.append(made)
    for old, new in zip(op.results, made.results, strict=True):
        new.sharding = old.sharding
    return made.results


def _inline(
    module: Module, op: Op, target: Function, mapping: Mapping[Value, Value], where: Loc
) -> tuple[Value, ...]:
    body = module.function(op.attrs.text("to_apply"))
    inner = dict(zip(body.args, [mapping[value] for value in op.operands], strict=True))
    _copy(module, body, target, inner, where)
    results = tuple([inner[value] for _, value in body.outputs])
    for old, new in zip(op.results, results, strict=True):
        if new.op is not None and old.name is not None:
            new.name = old.name
    return results
