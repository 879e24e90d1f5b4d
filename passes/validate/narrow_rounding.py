"""Rounding budgets that element types explain, in front of numbers of 8 bits too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

from graphgen.ir import DType, Module, Op
from graphgen.ir.dtype import f32, part_of, rounding_unit, s8, u8
from graphgen.ops import OPS
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


@dataclass(frozen=True, slots=True)
class DeclaredBudget:
    """The rounding budget that a pass declares, beside the one that element types explain.

    Attributes:
        declared: the pass's own.
        explained: see :func:`explained_budget`.
        plugin: the pass is not one of graphgen.
    """

    declared: float
    explained: float
    plugin: bool

    @classmethod
    def of(cls, item: Pass, before: Module, after: Module) -> DeclaredBudget:
        """The budget of a pass that made ``after`` of ``before``."""
        plugin = not type(item).__module__.startswith("graphgen.")
        explained = explained_budget(before, after) if item.budget else 0.0
        return cls(item.budget, explained, plugin)

    @property
    def is_explained(self) -> bool:
        """True if it is within what the types explain."""
        return self.declared <= self.explained


# Roundings on a path through layers, and steps of a sum for the root of each number summed up.
_ROUNDINGS, _SUM_STEPS = 16.0, 64.0
_SUMS = ("reduce", "all_reduce", "convolution")


def explained_budget(before: Module, after: Module) -> float:
    """The largest rounding budget that the element types of a pass's two modules explain.

    16 roundings to the coarsest float; 64 times the root of the longest sum in roundings of its
    accumulator, which is f32 for narrower floats; and what rounding to 8 bits and fewer makes. So
    0.06 for bf16, and 3e-5 for f32 with sums of 64.

    Args:
        before, after: the module that the pass is given, and the one that it leaves.
    """
    functions = [*before.functions.values(), *after.functions.values()]
    ops = [op for function in functions for op in function.block]
    unit = unit_of(ops)
    longest = max((_summed(op) for op in ops), default=1)
    narrow = max((NARROW_BUDGETS.get(_element(op), 0.0) for op in ops if op.results), default=0.0)
    sums = _SUM_STEPS * min(unit, rounding_unit(f32)) * longest**0.5
    return _ROUNDINGS * unit + sums + narrow


def unit_of_modules(*modules: Module) -> float:
    """:func:`unit_of` of all ops of some modules."""
    functions = [function for module in modules for function in module.functions.values()]
    return unit_of(op for function in functions for op in function.block)


def unit_of(ops: Iterable[Op]) -> float:
    """Half a step at 1 of the coarsest float that ops read or make; 1 where they round to 8 bits.

    0 without floats.
    """
    found: set[DType] = set()
    for op in ops:
        if _rounds(op):
            return 1.0
        for value in (*op.operands, *op.results):
            found.add(value.type.dtype)
    parts = [part_of(kind) for kind in found]
    return max((rounding_unit(kind) for kind in parts if kind.is_float), default=0.0)


def _summed(op: Op) -> int:
    """Number of elements that one of the result sums up, if its longest dimension is summed."""
    if op.name == "dot_general":
        shape = op.operands[0].type.shape
        return prod(_fixed(shape[dim]) for dim in op.attrs.integers("lhs_contracting_dims"))
    if not (OPS[op.name].composite or op.name.startswith(_SUMS)):
        return 1
    return max((_fixed(size) for value in op.operands for size in value.type.shape), default=1)


def _fixed(size: object) -> int:
    """A size that is a number; 1 for a symbol."""
    return size if isinstance(size, int) else 1


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
    # Most ops fail the cheaper test.
    return any(result.type.dtype in _ROUNDING for result in op.results) and any(
        value.dtype.is_float and value.dtype.bits > 8 for value in op.operands
    )


def _element(op: Op) -> DType:
    """The type of the numbers, which a row with its scale holds as bytes."""
    return op.attrs.element("element") if "element" in op.attrs else op.results[0].dtype
