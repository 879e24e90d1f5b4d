"""Match rows that are rounded to integers before a product with integers.

quantize -> dequantize -> dot_general
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphgen.ir import Op, Value
from graphgen.ir.dtype import s4, s8, u4
from graphgen.passes.kernels.narrow_match import GroupedWeight, NarrowWeight
from graphgen.passes.kernels.packed_weight import depth_of_step
from graphgen.passes.quantize.rows.integer_blocks import LIMIT
from graphgen.passes.weights.derived import PreparedValues

# Sums of a group's numbers are exact in f32 up to here.
_DEEPEST: Final = 2**24 // 128


@dataclass(frozen=True, slots=True)
class IntegerRows:
    """The left operand of a product as integers of 8 bits.

    Attributes:
        quantize: gives the numbers, and a scale a block.
        widen: multiplies them.
        group: numbers of a row that share a scale.
    """

    quantize: Op
    widen: Op
    group: int

    @property
    def ops(self) -> list[Op]:
        """Both, in order."""
        return [self.quantize, self.widen]

    @property
    def x(self) -> Value:
        """The rows before they are rounded."""
        return self.quantize.operands[0]

    def only_op(self, prepared: PreparedValues) -> Op | None:
        """The op that rounds, if its numbers are read for one product alone."""
        readers = [prepared.only_reader(value) for value in self.quantize.results]
        alone = readers == [self.widen] * 2 and prepared.only_reader(self.widen.result) is not None
        return self.quantize if alone else None


def match_integer_rows(dot: Op, weight: NarrowWeight | GroupedWeight | None) -> IntegerRows | None:
    """The integers that the left operand of a product is, if the kernel computes with them.

    Args:
        dot: the product.
        weight: what the kernel widens of its right operand, if it does.
    """
    widen = dot.operands[0].producer("dequantize")
    quantize = widen.operands[0].producer("quantize") if widen is not None else None
    if widen is None or quantize is None or list(widen.operands) != list(quantize.results):
        return None
    if weight is None or weight.numbers.dtype not in (s8, s4, u4):
        return None
    block = widen.attrs.integers("block")
    plain = quantize.attrs.element("dtype") is s8 and quantize.attrs.number("limit") == LIMIT
    rows = all(size == 1 for size in block[:-1]) and quantize.attrs.integers("block") == block
    if not (plain and rows and quantize.operands[0].dtype is widen.result.dtype):
        return None
    depth = dot.operands[0].type.dims[-1]
    group = min(block[-1], depth)
    if isinstance(weight, GroupedWeight):
        fits = group == weight.group
    else:
        fits = group == depth or group % depth_of_step(s8) == 0
    return IntegerRows(quantize, widen, group) if fits and group <= _DEEPEST else None
