"""Common subexpression elimination: compute equal values of a function once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphgen.analysis import is_opaque
from graphgen.ir import Attrs, Function, Module, Op, Sharding, Value
from graphgen.passes.core import Pass, Rewriter, register

# An op by what it computes, and where its results were asked to lie.
_Key = tuple[str, Attrs, tuple[Value, ...], tuple[Sharding | None, ...], Attrs]


@register
@dataclass(frozen=True)
class CommonSubexpressions(Pass):
    """Merge ops with the same name, attributes and operands into the first of them.

    An op has no effect but its results, collectives included: all ranks run the same program, so
    merging two equal all-reduces merges them on every rank. Results that were given different
    shardings are kept apart, and so are custom calls and instructions that have no op here: two
    random numbers are two.

    Given:
        module @m level=logical {
        }

        func @f {
          arg %x : f32[4]
          %a = negate(%x) : f32[4]
          %b = negate(%x) : f32[4]
          %c = exponential(%a) : f32[4]
          %d = exponential(%b) : f32[4]
          %y = add(%c, %d) : f32[4]
          return y = %y
        }

    Result:
        module @m level=logical {
        }

        func @f {
          arg %x : f32[4]
          %a = negate(%x) : f32[4]
          %c = exponential(%a) : f32[4]
          %y = add(%c, %c) : f32[4]
          return y = %y
        }
    """

    name: ClassVar[str] = "cse"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Walk each function once, in program order: operands are merged before their readers."""
        for function in module.functions.values():
            _merge(module, function, rewriter)


def _merge(module: Module, function: Function, rewriter: Rewriter) -> None:
    kept: dict[_Key, Op] = {}
    for op in function.block:
        if rewriter.exhausted:
            return
        if is_opaque(module, op):
            continue
        layouts = tuple([result.sharding for result in op.results])
        first = kept.setdefault((op.name, op.attrs, op.operands, layouts, op.annotations), op)
        if first is not op and not rewriter.declines(function, op, "cse"):
            rewriter.replace(function, op, first.results, "cse")
