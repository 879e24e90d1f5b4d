"""Comparison of integers that programs make of floats.

In float64 a float converted to a number of 8 bits keeps its fraction, as if it were quantized, and
a float whose bits are read is rounded, while one that is computed with is not. So two programs that
are right may differ there. Where a pass declares that it keeps every bit, and every sample has the
same bits on both sides, such a difference is not a fault if both sides agree in float64 with these
integers rounded as the program says: to :data:`MEANING_BUDGET`, or where bits of floats are read to
what rounding these floats explains.

A quantization rounds to the nearest number, and a conversion alone truncates. Where a program
quantizes, the fractions show a wrong scale or another rounding, which few samples have in their
bits: nothing is excused there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from graphgen.eval.float_bits import computes_with_bits
from graphgen.ir import Op
from graphgen.passes.equiv.deviation import MEANING_BUDGET
from graphgen.passes.validate.narrow_rounding import unit_of

# Roundings on a path.
_ROUNDINGS: Final = 16.0


_QUANTIZING: Final = frozenset(
    (
        *("quantize", "quantize_rows", "rms_norm_quantize", "dequantize", "dequantize_rows"),
        *("round_nearest_even", "round_nearest_afz"),
    )
)


def integer_budget(ops: Iterable[Op]) -> float | None:
    """The largest relative difference in float64, with integers rounded, of right programs.

    Args:
        ops: of both programs.

    Returns:
        ``None`` where one of them quantizes: a difference is a fault.
    """
    every = list(ops)
    if any(op.name in _QUANTIZING for op in every):
        return None
    if any(op.name == "bitcast_convert" and computes_with_bits(op) for op in every):
        return max(MEANING_BUDGET, _ROUNDINGS * unit_of(every))
    return MEANING_BUDGET
