"""The softmax of attention in another type than f32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphgen.build import Builder
from graphgen.composites.attention import attention_with
from graphgen.composites.partial_attention import attention_part_with
from graphgen.config.fields import option, words
from graphgen.config.option_words import DTYPES
from graphgen.ir import DType, Module, Op, Value, dtype
from graphgen.ir.dtype import f32
from graphgen.passes.core import NoMatch, Pass, Rewriter, Rule, no_match, register, rule


@register
@dataclass(frozen=True)
class SoftmaxDtype(Pass):
    """Compute the softmax of attention in ``dtype``, where the composite has it in f32.

    Attention becomes the ops that it is made of: scores are products in f32, and are rounded before
    the largest is subtracted. It comes after all passes that know attention as one op.

    Options:
        dtype: of the softmax; f32 changes nothing.

    Given:
        module @m level=canonical {
          input %q : bf16[1,1,2,4]
          input %k : bf16[1,3,2,4]
          input %v : bf16[1,3,2,4]
          input %m : pred[1,1,3]
          output %o : bf16[1,1,2,4]
        }

        func @f phase=decode {
          arg %q : bf16[1,1,2,4]
          arg %k : bf16[1,3,2,4]
          arg %v : bf16[1,3,2,4]
          arg %m : pred[1,1,3]
          %o = attention(%q, %k, %v, %m) scale=0.5 : bf16[1,1,2,4]
          return o = %o
        }

    Result (``softmax-dtype{dtype=bf16}``):
        module @m level=canonical {
          input %q : bf16[1,1,2,4]
          input %k : bf16[1,3,2,4]
          input %v : bf16[1,3,2,4]
          input %m : pred[1,1,3]
          output %o : bf16[1,1,2,4]
        }

        func @f phase=decode {
          arg %q : bf16[1,1,2,4]
          arg %k : bf16[1,3,2,4]
          arg %v : bf16[1,3,2,4]
          arg %m : pred[1,1,3]
          %0 = reshape(%q) shape=[1,1,2,1,4] : bf16[1,1,2,1,4]
          %1 = dot_general(%0, %k) lhs_contracting_dims=[4] rhs_contracting_dims=[3] \
lhs_batch_dims=[0,2] rhs_batch_dims=[0,2] dtype=f32 : f32[1,2,1,1,3]
          %2 = constant() value=f32[](0.5) : f32[]
          %3 = broadcast_in_dim(%2) shape=[1,2,1,1,3] : f32[1,2,1,1,3]
          %4 = multiply(%1, %3) : f32[1,2,1,1,3]
          %5 = broadcast_in_dim(%m) shape=[1,2,1,1,3] dimensions=[0,2,4] : pred[1,2,1,1,3]
          %6 = convert(%4) dtype=bf16 : bf16[1,2,1,1,3]
          %7 = constant() value=bf16[](-3.38953e+38) : bf16[]
          %8 = broadcast_in_dim(%7) shape=[1,2,1,1,3] : bf16[1,2,1,1,3]
          %9 = select(%5, %6, %8) : bf16[1,2,1,1,3]
          %10 = reduce(%9) dimensions=[4] kind=maximum : bf16[1,2,1,1]
          %11 = broadcast_in_dim(%10) shape=[1,2,1,1,3] dimensions=[0,1,2,3] : bf16[1,2,1,1,3]
          %12 = subtract(%9, %11) : bf16[1,2,1,1,3]
          %13 = exponential(%12) : bf16[1,2,1,1,3]
          %14 = reduce(%13) dimensions=[4] kind=add : bf16[1,2,1,1]
          %15 = broadcast_in_dim(%14) shape=[1,2,1,1,3] dimensions=[0,1,2,3] : bf16[1,2,1,1,3]
          %16 = divide(%13, %15) : bf16[1,2,1,1,3]
          %17 = dot_general(%16, %v) lhs_contracting_dims=[4] rhs_contracting_dims=[1] \
lhs_batch_dims=[0,1] rhs_batch_dims=[0,2] dtype=bf16 : bf16[1,2,1,1,4]
          %18 = transpose(%17) permutation=[0,2,1,3,4] : bf16[1,1,2,1,4]
          %o = reshape(%18) shape=[1,1,2,4] : bf16[1,1,2,4]
          return o = %o
        }
    """

    name: ClassVar[str] = "softmax-dtype"
    finite_math_only: ClassVar[bool] = True
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical", "sharded")
    # Powers in bf16 are off by 2**-8 of themselves at most, so is their sum; 0.012 was measured.
    rounding: ClassVar[float] = 5e-2
    dtype: str = option(words(*DTYPES), "f32")

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """The attention of every program."""
        for function in module.programs():
            rewriter.apply_rules(function, _in_ops(dtype(self.dtype)))


def _in_ops(element: DType) -> tuple[Rule, ...]:
    @rule("attention")
    def softmax_in(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """Attention by ops, with the softmax in the type."""
        if element is f32:
            return no_match("the softmax of attention is f32", op.result)
        return [attention_with(b, op.operands, op.attrs, element)]

    @rule("attention_part")
    def powers_in(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """Attention of some slots by ops, with powers of the type; parts are combined in f32."""
        if element is f32:
            return no_match("the softmax of attention is f32", op.results[0])
        return attention_part_with(b, op.operands, op.attrs, element)

    return softmax_in, powers_in
