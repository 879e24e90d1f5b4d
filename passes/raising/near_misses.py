"""Near misses: candidates that raising rules rejected, with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from graphgen.ir import Function, Module
from graphgen.ir.clone import clone_module
from graphgen.ops import OPS
from graphgen.passes.inspect.explain import ExplainQuery, FailureReason, explain
from graphgen.passes.raising.raise_composites import RaiseComposites


def found_in(function: Function) -> dict[str, int]:
    """Count the composites of a program by op."""
    return dict(Counter(op.name for op in function.ops if OPS[op.name].composite))


def near_misses(module: Module) -> Sequence[FailureReason]:
    """List the reasons why rules of ``raise-composites`` rejected a candidate.

    A rule that rejects an op at its first condition is not listed.
    """
    raising = RaiseComposites()
    found = explain(clone_module(module), [raising], raising.name, ExplainQuery())
    return [reason for reason in found.reasons if reason.depth and reason.rule.startswith("raise")]
