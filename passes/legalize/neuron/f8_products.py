"""Products of 8-bit floats on devices without one for ``f8e4m3fn``."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import bf16, f8e4m3fn
from graphgen.passes.core import NoMatch, no_match, rule


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
