"""Legalization: nothing but simple ops on static shapes, in the forms the target likes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.passes.core import Pass, Rewriter, register
from graphgen.passes.core.options import choice
from graphgen.passes.legalize.cpu import padded_rows, wide_dot
from graphgen.passes.legalize.cpu_kernels import kernel_by_ops
from graphgen.passes.legalize.inline import Inliner
from graphgen.passes.legalize.neuron import RULES
from graphgen.passes.legalize.neuron_sort import sorts_by_kernel
from graphgen.passes.legalize.neuron_top_k import top_k_by_kernel, top_k_without_sort
from graphgen.passes.legalize.rank_input import exchange_of_two, rank_as_input

TARGETS = ("cpu", "inf2", "trn1", "trn2", "trn3")
# Their compiler refuses to sort (NCC_EVRF029).
NO_SORT = ("trn2", "trn3")
# What needs to know the rank, which trn2 joins from two cores by default (LNC 2).
BY_RANK = {
    **dict.fromkeys(("inf2", "trn1", "trn3"), (rank_as_input,)),
    "trn2": (rank_as_input, exchange_of_two),
}


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
    takes: ClassVar[tuple[str, ...]] = ("logical", "canonical", "sharded")
    gives: ClassVar[str] = "target"
    requires: ClassVar[tuple[str, ...]] = ("specialized", "partitioned")
    # Sums are taken in another order than the reference's, and 16-bit floats round differently.
    rounding: ClassVar[float] = 2e-2
    target: str = choice("cpu", TARGETS)
    min_rows: int = 8

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Inline, and rewrite what the target wants otherwise."""
        if self.target not in TARGETS:
            raise GraphgenError(
                "GG0302",
                f"legalize: unknown target '{self.target}'",
                help=f"targets: {', '.join(TARGETS)}",
            )
        for_cpu = (wide_dot, padded_rows(self.min_rows), kernel_by_ops)
        rules = for_cpu if self.target == "cpu" else RULES[self.target]
        largest = top_k_without_sort if self.target in NO_SORT else top_k_by_kernel
        forms = {} if self.target == "cpu" else {"top_k": largest}
        inliner = Inliner(rewriter, forms, rules)
        for function in module.functions.values():
            if self.target != "cpu":
                rewriter.apply_rules(function, BY_RANK[self.target])
            if self.target in NO_SORT:
                sorts_by_kernel(function, rewriter)
            inliner.run(function)
