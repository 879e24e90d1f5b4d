"""The error function from arithmetic, for a compiler that has no such op (only a custom call)."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.composites.error_function import error_function
from graphgen.ir import Op, Value
from graphgen.ir.dtype import f64
from graphgen.passes.core import NoMatch, no_match, rule


@rule("erf")
def erf_by_quotients(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """Two quotients of polynomials, one for small numbers and one for the others, in f32."""
    (x,) = op.operands
    if x.dtype is f64 or not x.dtype.is_float:
        return no_match(f"the operand is {x.dtype}", x)
    return [error_function(b, x)]
