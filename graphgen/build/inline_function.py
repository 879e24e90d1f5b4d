"""Inlining: the ops of a function built again on other operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphgen.build.builder import Builder
from graphgen.ir import Function, Loc, Value


def inline_function(
    b: Builder,
    body: Function,
    operands: Sequence[Value],
    place: Callable[[Loc], Loc] | None = None,
) -> list[Value]:
    """Build the ops of ``body`` on ``operands`` through ``b``.

    Args:
        b: where to build; infers the types again.
        body: the function.
        operands: one for each argument.
        place: location of an op of ``body`` -> location of its copy; by default that of ``b``.

    Returns:
        One value for each output.
    """
    mapping = dict(zip(body.args, operands, strict=True))
    outer = b.loc
    places: dict[Loc, Loc] = {}
    for op in body.block:
        if place is not None:
            b.loc = places.get(op.loc) or places.setdefault(op.loc, place(op.loc))
        made = b.emit(op.name, [mapping[value] for value in op.operands], dict(op.attrs))
        for old, new in zip(op.results, made.results, strict=True):
            mapping[old] = new
            new.name, new.sharding = old.name, old.sharding
    b.loc = outer
    return [mapping[value] for _, value in body.outputs]
