"""Attention in another type than the hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphgen.build import Builder
from graphgen.config.fields import option, words
from graphgen.config.option_words import DTYPES
from graphgen.ir import DType, Module, Op, Value, dtype
from graphgen.passes.core import NoMatch, Pass, Rewriter, Rule, no_match, register, rule


@register
@dataclass(frozen=True)
class AttentionDtype(Pass):
    """Convert queries, keys and values before attention, and its result back.

    NxD Inference's ``attention_dtype``. Scores and softmax are f32 as before; a mask and what is
    added to scores stay as they are, and so do caches.

    Options:
        dtype: of queries, keys and values inside attention.

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

    Result (``attention-dtype{dtype=f32}``):
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
          %0 = convert(%q) dtype=f32 : f32[1,1,2,4]
          %1 = convert(%k) dtype=f32 : f32[1,3,2,4]
          %2 = convert(%v) dtype=f32 : f32[1,3,2,4]
          %3 = attention(%0, %1, %2, %m) scale=0.5 : f32[1,1,2,4]
          %o = convert(%3) dtype=bf16 : bf16[1,1,2,4]
          return o = %o
        }
    """

    name: ClassVar[str] = "attention-dtype"
    finite_math_only: ClassVar[bool] = True
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    # Queries and keys in bf16 are off by 2**-8 of themselves at most; 0.0095 was measured.
    rounding: ClassVar[float] = 5e-2
    dtype: str = option(words(*DTYPES), "f32")

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """The attention of every program."""
        for function in module.programs():
            rewriter.apply_rules(function, (_converted(dtype(self.dtype)),))


def _converted(element: DType) -> Rule:
    @rule("attention")
    def convert_attention(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """``attention(q, k, v, ...)`` is that of converted ones, converted back."""
        if op.result.dtype is element:
            return no_match(f"it is {element} already", op.result)
        parts = [b.convert(value, element) for value in op.operands[:3]]
        made = b.emit("attention", (*parts, *op.operands[3:]), dict(op.attrs)).result
        return [b.convert(made, op.result.dtype)]

    return convert_attention
