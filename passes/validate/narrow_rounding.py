"""Rounding differences of passes in front of numbers of 8 bits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from graphgen.ir import DType, Module, Op
from graphgen.ir.dtype import s8, u8
from graphgen.passes.core import Pass
from graphgen.passes.quantization.narrow_budgets import NARROW_BUDGETS
from graphgen.passes.weights.derived import PreparedValues

# Values that cross from one number to the next differ by a step, which is what rounding all of them
# does. Rows with a scale are bytes.
_ROUNDING: Final[Mapping[DType, float]] = {
    **{dtype: budget for dtype, budget in NARROW_BUDGETS.items() if dtype.bits == 8},
    u8: NARROW_BUDGETS[s8],
}


def rounding_budget(item: Pass, before: Module) -> float:
    """The relative rounding difference that a pass may make in a module.

    A pass that keeps every bit does so in front of narrow numbers too. One that may round moves
    some of the values before a rounding to 8 bits over a boundary.

    Args:
        item: the pass.
        before: what it is given.
    """
    return item.budget + narrow_rounding(before) if item.budget else 0.0


def narrow_rounding(module: Module) -> float:
    """The rounding of the coarsest 8-bit type that programs round their values to; 0 for none."""
    return max((_ROUNDING.get(dtype, 0.0) for dtype in _rounded_to(module)), default=0.0)


def rounding_of(ops: Iterable[Op]) -> float:
    """The rounding of the coarsest 8-bit type that some of the ops round to; 0 for none."""
    return max((_ROUNDING.get(_element(op), 0.0) for op in ops if _rounds(op)), default=0.0)


def _rounded_to(module: Module) -> Iterator[DType]:
    """Types that values are rounded to; what is made of weights alone has one value for good."""
    for function in module.functions.values():
        rounding = [op for op in function.block if _rounds(op)]
        # Most functions round nothing to 8 bits: only others are classified.
        prepared = PreparedValues(module, function, {}) if rounding else ()
        for op in rounding:
            if op.operands[0] not in prepared:
                yield _element(op)


def _rounds(op: Op) -> bool:
    """True for an op from wide floats to numbers of 8 bits."""
    wide = any(value.dtype.is_float and value.dtype.bits > 8 for value in op.operands)
    return wide and any(result.dtype in _ROUNDING for result in op.results)


def _element(op: Op) -> DType:
    """The type of the numbers, which a row with its scale holds as bytes."""
    return op.attrs.element("element") if "element" in op.attrs else op.results[0].dtype
