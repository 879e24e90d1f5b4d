"""A limit on the tokens of each expert of a mixture, from a capacity factor."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import ClassVar

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import Module, Op, Value
from graphgen.passes.core import NoMatch, Pass, Rewriter, Rule, no_match, register, rule
from graphgen.passes.experts.expert_choices import fixed

# Entry of ``Module.meta``: by program, the tokens that an expert computes; 0 for all.
CAPACITIES = "expert_capacities"


@register
@dataclass(frozen=True)
class LimitExpertCapacity(Pass):
    """Limit experts to their first ``C = min(T, ceil(T K factor / E))`` tokens; drop the others.

    T tokens of a program have K of E experts each. A factor of E / K or more drops nothing. It is
    the model that changes: a token loses the experts that are full, wherever it stands in the
    batch, padding included (arXiv 2006.16668). All forms of ``dispatch-experts`` drop the same.

    Options:
        factor: room for that many times the tokens of an expert if all have as many; 0 for no
            limit.

    Given:
        module @m level=canonical {
          input %x : f32[4,2]
          input %i : s32[4,1]
          input %w : f32[4,1]
          weight %gate : f32[2,2,2]
          weight %up : f32[2,2,2]
          weight %down : f32[2,2,2]
          output %y : f32[4,2]
        }

        func @f phase=decode {
          arg %x : f32[4,2]
          arg %i : s32[4,1]
          arg %w : f32[4,1]
          arg %gate : f32[2,2,2]
          arg %up : f32[2,2,2]
          arg %down : f32[2,2,2]
          %y = experts(%x, %i, %w, %gate, %up, %down) dtype=f32 : f32[4,2]
          return y = %y
        }

    Result (``limit-expert-capacity{factor=1.25}``):
        module @m level=canonical {
          meta expert_capacities = "{\\"f\\": 3}"
          input %x : f32[4,2]
          input %i : s32[4,1]
          input %w : f32[4,1]
          weight %gate : f32[2,2,2]
          weight %up : f32[2,2,2]
          weight %down : f32[2,2,2]
          output %y : f32[4,2]
        }

        func @f phase=decode {
          arg %x : f32[4,2]
          arg %i : s32[4,1]
          arg %w : f32[4,1]
          arg %gate : f32[2,2,2]
          arg %up : f32[2,2,2]
          arg %down : f32[2,2,2]
          %y = experts(%x, %i, %w, %gate, %up, %down) capacity=3 dtype=f32 : f32[4,2]
          return y = %y
        }
    """

    name: ClassVar[str] = "limit-expert-capacity"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    requires: ClassVar[tuple[str, ...]] = ("specialized",)
    approximation: ClassVar[str] = "tokens are dropped that an expert has no place for"
    approximates: ClassVar[tuple[str, ...]] = ("experts",)
    factor: float = 0.0

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """The mixtures of every program, before experts are divided over ranks."""
        if self.factor < 0:
            raise GraphgenError(
                "GG0302",
                f"limit-expert-capacity: a factor of {self.factor}",
                help="give a number above 0, such as 1.25; 0 is without a limit",
            )
        for function in module.programs():
            rewriter.apply_rules(function, (_limited(self.factor, function.name, rewriter),))
        limits = {
            function.name: op.attrs.integer("capacity")
            for function in module.programs()
            for op in function.block
            if op.name == "experts"
        }
        if limits:
            module.meta[CAPACITIES] = json.dumps(limits)


def capacity(tokens: int, chosen: int, experts: int, factor: float) -> int:
    """C, tokens that an expert computes; 0 for all, where none would be dropped."""
    found = min(tokens, ceil(tokens * chosen * factor / experts))
    return found if 0 < found < tokens else 0


def _limited(factor: float, program: str, rewriter: Rewriter) -> Rule:
    @rule("experts")
    def limit_capacity(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """``experts`` with a capacity."""
        tokens = prod(op.operands[0].type.dims[:-1])
        chosen, experts = op.operands[1].type.dims[-1], fixed(op.operands[3].shape[0])
        found, given = capacity(tokens, chosen, experts, factor), op.attrs.integer("capacity")
        if not found:
            return no_match(f"{tokens} tokens have places in every expert", op.result)
        if 0 < given <= found:
            return no_match(f"its capacity is {given} already", op.result, depth=2)
        most = tokens * chosen - min(tokens * chosen, chosen * found)
        rewriter.remark(
            f"@{program}: {tokens} tokens, {chosen} of {experts} experts: each expert computes "
            f"{found}, at most {most} of {tokens * chosen} choices are dropped"
        )
        return [b.emit("experts", op.operands, {**op.attrs, "capacity": found}).result]

    return limit_capacity
