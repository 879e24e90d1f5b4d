"""Match a weight in 8 or 4 bits that a product widens, and its scale.

convert -> dot_general [-> * broadcast(scale)]
dequantize -> dot_general
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from graphgen.build import Builder
from graphgen.composites.quantize import spread_blocks
from graphgen.ir import Dim, DType, Op, Value
from graphgen.ir.clone import Cloner
from graphgen.ir.dtype import f8e4m3fn, f8e5m2, f32, s4, s8, u4
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.kernels.packed_weight import depth_of_step, pack, unpack
from graphgen.passes.weights.derived import PreparedValues
from graphgen.passes.weights.materialization import only_enlarges, widened

# Types that the kernel widens to that of the product, which is exact.
NARROW: Final[tuple[DType, ...]] = (s8, f8e4m3fn, f8e5m2)
# Those that have a scale a group; without a sign, half their range is subtracted first.
GROUPED: Final[tuple[DType, ...]] = (*NARROW, s4, u4)
_HALF: Final = 8


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


@dataclass(slots=True)
class GroupedWeight:
    """A weight in 8 or 4 bits with a scale, and perhaps a zero point, a group of its depth.

    Attributes:
        widen: the ``dequantize``.
        axis: of the weight that is contracted.
    """

    widen: Op
    axis: int

    @property
    def numbers(self) -> Value:
        """The weight in few bits."""
        return self.widen.operands[0]

    @property
    def group(self) -> int:
        """Numbers of a column that share a scale."""
        return min(self.widen.attrs.integers("block")[self.axis], self.depth)

    @property
    def depth(self) -> int:
        """K."""
        return self.numbers.type.dims[self.axis]

    def packed(self, b: Builder) -> tuple[Value, Value, Value | None]:
        """The numbers, the scales and the zero points in the kernel's layout."""
        numbers, scale, zero = self.numbers, *self._facts(b)
        if numbers.dtype is u4:
            half = b.full(_HALF, b.convert(numbers, s8).type)
            numbers = b.convert(b.binary("subtract", b.convert(numbers, s8), half), s4)
            zero = b.binary("subtract", zero or b.full(0.0, scale.type), b.full(_HALF, scale.type))
        packed = [pack(b, self._turned(b, each)) for each in (numbers, scale)]
        return packed[0], packed[1], pack(b, self._turned(b, zero)) if zero else None

    def meaning(self, b: Builder, cloner: Cloner, packed: Sequence[Value | None]) -> None:
        """Let a body compute the widened weight of what was packed."""
        columns = self.numbers.type.dims[1 - self.axis]
        groups = -(-self.depth // self.group)
        found: list[Value] = []
        for value, depth in zip(packed, (self.depth, groups, groups), strict=True):
            if value is not None:
                found.append(self._turned(b, unpack(b, cloner.mapping[value], columns, depth)))
        block = (1, self.group)[:: 1 if self.axis == 1 else -1]
        dtype = self.widen.result.dtype
        cloner.mapping[self.widen.result] = b.dequantize(*found, block=block, dtype=dtype)

    def _facts(self, b: Builder) -> tuple[Value, Value | None]:
        """Scales and zero points in f32, one for each column and group."""
        columns = 1 - self.axis
        block = list(self.widen.attrs.integers("block"))
        shape: list[Dim] = list(self.numbers.shape)
        shape[self.axis] = self.widen.operands[1].shape[self.axis]
        block[self.axis] = 1
        found: list[Value | None] = [
            spread_blocks(b, b.convert(fact, f32), block, shape)
            if block[columns] > 1
            else b.convert(fact, f32)
            for fact in self.widen.operands[1:]
        ]
        scale, zero = (*found, None)[:2]
        assert scale is not None
        return scale, zero

    def _turned(self, b: Builder, value: Value) -> Value:
        return value if self.axis == 1 else b.transpose(value, (1, 0))


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


def match_grouped(dot: Op, prepared: PreparedValues) -> GroupedWeight | NoMatch | None:
    """The weight of a product with a scale a group; ``None`` where it is not dequantized.

    A weight that ``lift-weights`` stores widened is left as it is.
    """
    widen = dot.operands[1].producer("dequantize")
    if widen is None or widen.result.type.rank != 2 or not only_enlarges(widen):
        return None
    axes = dot.attrs.integers("rhs_contracting_dims")
    if len(axes) != 1 or not all(map(prepared.of_weights, widen.operands)):
        return None
    found = GroupedWeight(widen, axes[0])
    numbers = found.numbers
    if numbers.dtype not in GROUPED:
        return no_match(f"the kernel has no groups of {numbers.dtype}", numbers, depth=8)
    step = depth_of_step(s4 if numbers.dtype is u4 else numbers.dtype)
    if found.group % step and found.group < found.depth:
        what = f"groups of {found.group} are not whole steps of {step} numbers"
        return no_match(what, numbers, depth=8)
    return found


def _is_scale(spread: Op) -> bool:
    """True where a value is spread over all but the columns, or over them too."""
    columns = spread.result.type.rank - 1
    dimensions = spread.attrs.integers("dimensions")
    return dimensions == () or (
        dimensions == (columns,)
        and spread.operands[0].type.dims[0] == spread.result.type.dims[columns]
    )
