"""Legalization: primitive ops on static shapes, in the forms that a target runs fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphgen.config.fields import option, words
from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.passes.core import Pass, Rewriter, register
from graphgen.passes.legalize.inline import Inliner
from graphgen.passes.legalize.legalization_rules import rules_of
from graphgen.targets import find_target, target_names


@register
@dataclass(frozen=True)
class Legalize(Pass):
    """Inline composites and rewrite ops into the forms the target runs fast.

    Options:
        target: what the programs will run on; for an accelerator, what its compiler refuses, casts
            or is slow on is written in another form.
        min_rows: rows a 16-bit product with a weight is padded to, on the CPU.

    Given:
        module @m level=logical {
        }

        func @f {
          arg %x : bf16[1,4]
          arg %w : bf16[8,4]
          %y = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=bf16 : \
bf16[1,8]
          return y = %y
        }

    Result (``legalize{min_rows=2}``):
        module @m level=target {
        }

        func @f {
          arg %x : bf16[1,4]
          arg %w : bf16[8,4]
          %0 = constant() value=bf16[](0.0) : bf16[]
          %1 = pad(%x, %0) low=[0,0] high=[1,0] : bf16[2,4]
          %2 = dot_general(%1, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[2,8]
          %3 = slice(%2) start_indices=[0,0] limit_indices=[1,8] : f32[1,8]
          %y = convert(%3) dtype=bf16 : bf16[1,8]
          return y = %y
        }
    """

    name: ClassVar[str] = "legalize"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical", "sharded")
    output_stage: ClassVar[str] = "target"
    requires: ClassVar[tuple[str, ...]] = ("specialized", "partitioned")
    # Sums are taken in another order than the reference's, and 16-bit floats round differently.
    rounding: ClassVar[float] = 2e-2
    target: str = option(words(target_names), "cpu")
    min_rows: int = 8

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Inline composites, and apply the rules of the target."""
        if self.target not in target_names():
            raise GraphgenError(
                "GG0302",
                f"legalize: unknown target '{self.target}'",
                help=f"targets: {', '.join(target_names())}",
            )
        rules = rules_of(find_target(self.target), self.min_rows)
        inliner = Inliner(rewriter, rules.composites, rules.inlined)
        for function in module.functions.values():
            if rules.first:
                rewriter.apply_rules(function, rules.first)
            if rules.sorts:
                rewriter.apply_rules(function, rules.sorts)
                # Slices that read them were replaced.
                rewriter.erase_unread(function, "sort")
            inliner.run(function)
