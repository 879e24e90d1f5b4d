"""What a program with calls computes: the same program with each call's body in its place."""

from __future__ import annotations

from collections.abc import Mapping

from graphgen.ir import Function, Loc, Module, Op, Value, loc


def inlined(
    module: Module, function: Function, copies: dict[Value, Value] | None = None
) -> Function:
    """``function`` without calls; itself if it has none.

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
