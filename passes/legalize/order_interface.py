"""Arguments and outputs of the programs in the order AWS's own libraries have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphgen.ir import RANK, Function, Module, Role, Value
from graphgen.passes.core import Pass, Rewriter, register

# Where an argument of each role stands; the rank is an input without a row.
_PLACES = {
    Role.INPUT: 0,
    Role.LAYOUT: 0,
    Role.STATE: 2,
    Role.WEIGHT: 3,
    Role.PARAM: 3,
    Role.SLOTTED: 3,
}
_RANK_PLACE = 1


@register
@dataclass(frozen=True)
class OrderInterface(Pass):
    """Order arguments (inputs, the rank, states, weights) and outputs (the user's, then states).

    transformers-neuronx hands its programs inputs, caches and weights in this order; NxD Inference
    returns the caches after the user's outputs, in the order of the arguments.

    Given:
        module @m level=canonical {
          input %x : f32[4]
          weight %w : f32[4]
          state %k : f32[4]
          output %y : f32[4]
        }

        func @f phase=decode {
          arg %w : f32[4]
          arg %k : f32[4]
          arg %x : f32[4]
          %c = add(%k, %x) : f32[4]
          %y = multiply(%c, %w) : f32[4]
          return k = %c
          return y = %y
        }

    Result:
        module @m level=canonical {
          input %x : f32[4]
          weight %w : f32[4]
          state %k : f32[4]
          output %y : f32[4]
        }

        func @f phase=decode {
          arg %x : f32[4]
          arg %k : f32[4]
          arg %w : f32[4]
          %c = add(%k, %x) : f32[4]
          %y = multiply(%c, %w) : f32[4]
          return y = %y
          return k = %c
        }
    """

    name: ClassVar[str] = "order-interface"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Program by program."""
        for function in module.programs():
            if rewriter.exhausted:
                return
            _order(module, function, rewriter)


def _order(module: Module, function: Function, rewriter: Rewriter) -> None:
    rows = module.interface

    def place(value: Value) -> int:
        row = rows.get(value.name or "")
        return _RANK_PLACE if row is None or row.name == RANK else _PLACES[row.role]

    arguments = sorted(function.args, key=place)
    at = {value.name: index for index, value in enumerate(arguments)}
    # The user's outputs keep their order; a state has the place of its argument.
    outputs = sorted(function.outputs, key=lambda pair: at.get(pair[0], -1))
    if (arguments, outputs) != (list(function.args), list(function.outputs)):
        function.block.keep_args(arguments)
        function.outputs = outputs
        rewriter.note(function, "inputs, states, weights; outputs, states")
