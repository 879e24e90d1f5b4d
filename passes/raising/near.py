"""What is close to an idea and was not raised, with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from graphgen.ir import Function, Module
from graphgen.ir.clone import clone_module
from graphgen.ops import OPS
from graphgen.passes.inspect.explain import ExplainQuery, FailureReason, explain
from graphgen.passes.raising.raise_composites import RaiseComposites


def found_in(function: Function) -> dict[str, int]:
    """How many of each composite a program has."""
    return dict(Counter(op.name for op in function.ops if OPS[op.name].composite))


def near_misses(module: Module) -> Sequence[FailureReason]:
    """Why the rules of ``raise-composites`` left alone what looked like an idea.

    A rule that gives up before anything of its idea is seen has nothing to say here.
    """
    raising = RaiseComposites()
    found = explain(clone_module(module), [raising], raising.name, ExplainQuery())
    return [reason for reason in found.reasons if reason.depth and reason.rule.startswith("raise")]
