"""Inline calls: each becomes a copy of the body of its callee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphgen.analysis import inlined, run_by_programs
from graphgen.ir import Module, Value
from graphgen.passes.core import Pass, Rewriter, register


@register
@dataclass(frozen=True)
class InlineCalls(Pass):
    """Inline every call of an entry program and drop the called functions.

    Undo outline-layers, so that other passes see every layer.

    Given:
        module @m level=target {
          input %x : f32[4]
          output %y : f32[4]
        }

        func @layers {
          arg %0 : f32[4]
          %a = negate(%0) : f32[4]
          %b = exponential(%a) : f32[4]
          return 0 = %b
        }

        func @f phase=decode {
          arg %x : f32[4]
          %b = call(%x) to_apply=layers results=[f32[4]] : f32[4]
          %y = call(%b) to_apply=layers results=[f32[4]] : f32[4]
          return y = %y
        }

    Result:
        module @m level=target {
          input %x : f32[4]
          output %y : f32[4]
        }

        func @f phase=decode {
          arg %x : f32[4]
          %a = negate(%x) : f32[4]
          %b = exponential(%a) : f32[4]
          %0 = negate(%b) : f32[4]
          %y = exponential(%0) : f32[4]
          return y = %y
        }
    """

    name: ClassVar[str] = "inline-calls"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Inline program by program, then drop functions without callers."""
        before = run_by_programs(module)
        for function in module.programs():
            if any(op.name == "call" for op in function.block) and not rewriter.exhausted:
                rewriter.note(function, "inline")
                copies: dict[Value, Value] = {}
                plain = inlined(module, function, copies)
                rewriter.copied(copies)
                function.block, function.outputs = plain.block, plain.outputs
        gone = before - run_by_programs(module)
        module.functions = {k: v for k, v in module.functions.items() if k not in gone}
