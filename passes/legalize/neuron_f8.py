"""Quantized floats of 8 bits in the format the accelerator has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphgen.build import Builder
from graphgen.ir import Function, Module, Op, Value, tensor
from graphgen.ir.dtype import bf16, f8e4m3, f8e4m3fn, lowest
from graphgen.passes.core import NoMatch, Pass, Rewriter, no_match, register, rule

# Ops that make wide floats of the numbers, and those that choose experts of them.
_WIDEN, _CHOOSE = ("convert", "dequantize"), ("gather", "take")


@register
@dataclass(frozen=True)
class F8Formats(Pass):
    """Retype numbers quantized to ``f8e4m3fn`` as ``f8e4m3``, with maximum 240 and not 448.

    inf2, trn1 and trn2 have the second alone (NCC_EVRF051). Up to 240 the two hold the same values
    in the same bits, and that is as far as ``quantize-weights`` goes, with AWS's own limit. Numbers
    quantized to larger values keep their format.

    Given:
        module @m level=canonical {
          input %x : bf16[2,4]
          weight %w : bf16[6,4]
          output %y : f32[2,6]
        }

        func @f phase=decode {
          arg %x : bf16[2,4]
          arg %w : bf16[6,4]
          %q, %s = quantize(%w) dtype=f8e4m3fn dimensions=[1] limit=240.0 : f8e4m3fn[6,4], f32[6]
          %0 = convert(%q) dtype=bf16 : bf16[6,4]
          %1 = dot_general(%x, %0) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[2,6]
          %2 = broadcast_in_dim(%s) shape=[2,6] dimensions=[1] : f32[2,6]
          %y = multiply(%1, %2) : f32[2,6]
          return y = %y
        }

    Result:
        module @m level=canonical {
          input %x : bf16[2,4]
          weight %w : bf16[6,4]
          output %y : f32[2,6]
        }

        func @f phase=decode {
          arg %x : bf16[2,4]
          arg %w : bf16[6,4]
          %q, %s = quantize(%w) dtype=f8e4m3 dimensions=[1] limit=240.0 : f8e4m3[6,4], f32[6]
          %0 = convert(%q) dtype=bf16 : bf16[6,4]
          %1 = dot_general(%x, %0) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[2,6]
          %2 = broadcast_in_dim(%s) shape=[2,6] dimensions=[1] : f32[2,6]
          %y = multiply(%1, %2) : f32[2,6]
          return y = %y
        }
    """

    name: ClassVar[str] = "f8-formats"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical", "sharded")

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Every quantized tensor that is only widened again."""
        for function in module.functions.values():
            for op in function.block:
                if rewriter.exhausted:
                    return
                if op.name == "quantize" and _fits(function, op):
                    _retype(function, op, rewriter)


def _fits(function: Function, op: Op) -> bool:
    """True for f8e4m3fn values up to 240 whose readers all widen them."""
    values = op.results[0]
    return (
        values.dtype is f8e4m3fn
        and op.attrs.number("limit") <= -lowest(f8e4m3)
        and _only_widened(function, values)
    )


def _only_widened(function: Function, values: Value) -> bool:
    """True if all readers of the numbers widen them, directly or after a selection."""
    return not function.returns(values) and all(
        user.name in _WIDEN or (user.name in _CHOOSE and _only_widened(function, user.result))
        for user in values.users
    )


def _retype(function: Function, op: Op, rewriter: Rewriter) -> None:
    b = rewriter.before(function, op)
    made = b.emit("quantize", op.operands, {**op.attrs, "dtype": f8e4m3})
    _retype_chosen(op.results[0])
    rewriter.replace(function, op, made.results, "the format that ends at 240")


def _retype_chosen(values: Value) -> None:
    values.type = tensor(f8e4m3, values.shape)
    for user in values.users:
        if user.name in _CHOOSE:
            _retype_chosen(user.result)


@rule("dot_general")
def widened_f8_dot(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """Convert f8e4m3fn operands to bf16, which holds their values exactly (NCC_EVRF051).

    Given:
        arg %x : f8e4m3fn[2,4]
        arg %w : f8e4m3fn[3,4]
        %y = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[2,3]

    Result:
        arg %x : f8e4m3fn[2,4]
        arg %w : f8e4m3fn[3,4]
        %0 = convert(%x) dtype=bf16 : bf16[2,4]
        %1 = convert(%w) dtype=bf16 : bf16[3,4]
        %y = dot_general(%0, %1) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[2,3]
    """
    if op.operands[0].dtype is not f8e4m3fn:
        return no_match(f"the operands are {op.operands[0].dtype}", op.operands[0])
    wide = [b.convert(x, bf16) for x in op.operands]
    return [b.emit("dot_general", wide, dict(op.attrs)).result]
