"""Stages of the IR and the ops that are legal in each: a stage is a predicate on ops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphgen.ir import Op
from graphgen.ops.opdef import OPS

# The reason why an op is illegal, or "" for a legal one.
Predicate = Callable[[Op], str]


@dataclass(frozen=True, slots=True)
class IRStage:
    """One stage of compilation.

    Attributes:
        name: the key in :data:`IR_STAGES`; ``level=`` in IR text.
        doc: the invariant that holds for a module of this stage.
        why_not: the predicate that every op of every function must satisfy.
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


IR_STAGES: dict[str, IRStage] = {
    stage.name: stage
    for stage in (
        IRStage("logical", "symbolic sizes, composites, one rank", _no_collective),
        IRStage("canonical", "normal form, after canonicalize", _no_collective),
        IRStage("sharded", "shapes of one rank, explicit collectives", _anything),
        IRStage("target", "decomposed ops on static shapes, ready for lowering", _target),
    )
}
