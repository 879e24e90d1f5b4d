"""Dead code elimination."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphgen.analysis import has_effects
from graphgen.ir import Module
from graphgen.passes.core import Pass, Rewriter, register


@register
@dataclass(frozen=True)
class DeadCodeElimination(Pass):
    """Remove ops without readers. Arguments stay: they are the program's interface.

    Given:
        module @m level=logical {
        }

        func @f {
          arg %x : f32[4]
          %a = negate(%x) : f32[4]
          %b = negate(%a) : f32[4]
          return y = %x
        }

    Result:
        module @m level=logical {
        }

        func @f {
          arg %x : f32[4]
          return y = %x
        }
    """

    name: ClassVar[str] = "dce"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Walk backward once: an op is dead when none of its results is read or returned."""
        for function in module.functions.values():
            for op in reversed(function.block):
                if rewriter.exhausted:
                    return
                if function.uses(op) or has_effects(module, op):
                    continue
                if not rewriter.declines(function, op, "erase"):
                    rewriter.erase(function, op)
