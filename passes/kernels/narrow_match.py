"""Match a weight in 8 bits that a product widens, and the scale of its columns behind it.

convert -> dot_general [-> * broadcast(scale)]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from graphgen.ir import DType, Op, Value
from graphgen.ir.dtype import f8e4m3fn, f8e5m2, f32, s8
from graphgen.passes.weights.derived import PreparedValues
from graphgen.passes.weights.materialization import widened

# Types that the kernel widens to that of the product, which is exact.
NARROW: Final[tuple[DType, ...]] = (s8, f8e4m3fn, f8e5m2)


@dataclass(slots=True)
class NarrowWeight:
    """A weight in 8 bits with its scale.

    Attributes:
        widen: the conversion of the numbers.
        scale: f32, one for each column of the product, or one for all; ``None`` for no scale.
        scaling: the ops that multiply the product with it, in order; the last has the result.
    """

    widen: Op
    scale: Value | None = None
    scaling: list[Op] = field(default_factory=list[Op])

    @property
    def numbers(self) -> Value:
        """The weight in 8 bits."""
        return self.widen.operands[0]


def match_narrow(dot: Op, prepared: PreparedValues) -> NarrowWeight | None:
    """The weight of a product if the kernel widens it; ``None`` for any other weight."""
    widen = widened(dot)
    if widen is None or widen.operands[0].dtype not in NARROW:
        return None
    found = NarrowWeight(widen)
    multiply = prepared.only_reader(dot.result)
    if multiply is None or multiply.name != "multiply" or dot.result.dtype is not f32:
        return found
    factor = multiply.operands[1 if multiply.operands[0] is dot.result else 0]
    spread = factor.producer("broadcast_in_dim")
    if spread is not None and _is_scale(spread):
        found.scale, found.scaling = spread.operands[0], [spread, multiply]
    return found


def _is_scale(spread: Op) -> bool:
    """True where a value is spread over all but the columns, or over them too."""
    columns = spread.result.type.rank - 1
    dimensions = spread.attrs.integers("dimensions")
    return dimensions == () or (
        dimensions == (columns,)
        and spread.operands[0].type.dims[0] == spread.result.type.dims[columns]
    )
