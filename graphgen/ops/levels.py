"""Levels of the IR: which ops are legal when. A level is a specification, not a class of graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphgen.ir import Op
from graphgen.ops.opdef import OPS

# Says why an op is not legal, or "" where it is.
Predicate = Callable[[Op], str]


@dataclass(frozen=True, slots=True)
class Level:
    """One level.

    Attributes:
        name: the key in :data:`LEVELS`.
        doc: what has been settled when a module is at this level.
        why_not: the predicate every op of every function must pass.
    """

    name: str
    doc: str
    why_not: Predicate


def _no_collective(op: Op) -> str:
    return "collectives appear only after partition" if OPS[op.name].collective else ""


def _anything(op: Op) -> str:
    return ""


def _target(op: Op) -> str:
    if OPS[op.name].composite:
        return "composites must be inlined by legalize"
    for result in op.results:
        if not result.type.static:
            return f"{result.type.text} still has symbols; run specialize first"
    return ""


LEVELS: dict[str, Level] = {
    level.name: level
    for level in (
        Level("logical", "what the model computes; symbols, composites, one rank", _no_collective),
        Level("canonical", "one form for each idea, after canonicalize", _no_collective),
        Level("sharded", "shapes of one rank, explicit collectives", _anything),
        Level("target", "simple ops on static shapes, ready to be lowered", _target),
    )
}
