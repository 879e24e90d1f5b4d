"""A pass with a bug: it computes ``silu(x)`` as ``x``, but in layer 1 only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphgen.build import Builder
from graphgen.ir import Module, Op, Value
from graphgen.passes.core import NoMatch, Pass, Rewriter, no_match, register, rule


@rule("logistic")
def drop_the_gate(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """Replace ``logistic(x)`` by 1."""
    if "layers.1" not in op.loc.scope:
        return no_match("the op is not in layer 1", op.result)
    return [b.full(1.0, op.result.type)]


@register
@dataclass(frozen=True)
class Planted(Pass):
    """Drop the gates of layer 1."""

    name: ClassVar[str] = "planted"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Apply the rule to every function."""
        for function in module.functions.values():
            rewriter.apply_rules(function, [drop_the_gate])
