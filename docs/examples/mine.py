"""Divide once for each row, then multiply: a softmax divides as many numbers as it has rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphgen.build import Builder
from graphgen.ir import Module, Op, Value
from graphgen.passes.core import NoMatch, Pass, Rewriter, no_match, register, rule


@rule("divide")
def multiply_by_reciprocal(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``x / broadcast(s)`` is ``x * broadcast(1 / s)``."""
    x, divisor = op.operands
    broadcast = divisor.producer("broadcast_in_dim")
    if broadcast is None:
        return no_match("the divisor is not a broadcast value", divisor)
    reciprocal = 1.0 / broadcast.operands[0]
    dimensions = broadcast.attrs["dimensions"]
    return [x * b.broadcast_in_dim(reciprocal, x.shape, dimensions)]


@register
@dataclass(frozen=True)
class Mine(Pass):
    """Multiply by a reciprocal where the divisor is a broadcast value."""

    name: ClassVar[str] = "mine"
    rounding: ClassVar[float] = 2e-2

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Apply the rule to every function."""
        for function in module.functions.values():
            rewriter.apply_rules(function, [multiply_by_reciprocal])
