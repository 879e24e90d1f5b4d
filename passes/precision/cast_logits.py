"""Logits that are rounded to a narrower type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphgen.build import Builder
from graphgen.config.fields import option, words
from graphgen.config.option_words import DTYPES
from graphgen.ir import DType, Function, Module, Op, Value, dtype
from graphgen.passes.core import NoMatch, Pass, Rewriter, Rule, no_match, register, rule

_LOGITS = "logits"


@register
@dataclass(frozen=True)
class CastLogits(Pass):
    """Round the output ``logits`` to ``dtype``: transformers-neuronx's cast_logits_dtype.

    Its element type stays that of the interface, so its readers need no change. Ranks that have
    parts of the vocabulary exchange the narrow numbers: ``merge-collectives`` widens them after
    they are gathered.

    Options:
        dtype: that logits are rounded to; what is as narrow already stays.

    Given:
        module @m level=canonical {
          input %x : bf16[1,4]
          weight %w : bf16[8,4]
          output %logits : f32[1,8]
        }

        func @f phase=decode {
          arg %x : bf16[1,4]
          arg %w : bf16[8,4]
          %y = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[1,8]
          return logits = %y
        }

    Result (``cast-logits{dtype=bf16}``):
        module @m level=canonical {
          input %x : bf16[1,4]
          weight %w : bf16[8,4]
          output %logits : f32[1,8]
        }

        func @f phase=decode {
          arg %x : bf16[1,4]
          arg %w : bf16[8,4]
          %0 = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[1,8]
          %1 = convert(%0) dtype=bf16 : bf16[1,8]
          %y = convert(%1) dtype=f32 : f32[1,8]
          return logits = %y
        }
    """

    name: ClassVar[str] = "cast-logits"
    finite_math_only: ClassVar[bool] = True
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    # A number in bf16 is off by 2**-8 of itself at most.
    rounding: ClassVar[float] = 2**-8
    dtype: str = option(words(*DTYPES), "f32")

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """The logits of every program that gives some."""
        for function in module.programs():
            logits = function.outputs.get(_LOGITS)
            if logits is not None and logits.op is not None:
                root = _rounded(function, logits.op.name, dtype(self.dtype))
                rewriter.apply_rules(function, (root,))


def _rounded(function: Function, name: str, element: DType) -> Rule:
    @rule(name)
    def round_logits(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """``logits = op(...)`` is ``wide(narrow(op(...)))``."""
        if op.results[0] is not function.outputs.get(_LOGITS):
            return no_match("its result is not the logits", op.results[0])
        wide = op.result.dtype
        if wide.bits <= element.bits:
            return no_match(f"it is {wide}, no wider than {element}", op.result)
        if op.name == "convert" and op.operands[0].dtype.bits <= element.bits:
            return no_match(f"it holds numbers of {op.operands[0].dtype}", op.result, depth=2)
        made = b.emit(op.name, op.operands, dict(op.attrs)).result
        return [b.convert(b.convert(made, element), wide)]

    return round_logits
