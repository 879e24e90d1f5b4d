"""Match a weight in 8 or 4 bits that a product widens, and its scale.

convert -> dot_general [-> * broadcast(scale)]
dequantize -> dot_general
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from graphgen.build import Builder
from graphgen.composites.quantization import spread_blocks
from graphgen.ir import Dim, DType, Op, Value, tensor
from graphgen.ir.clone import Cloner
from graphgen.ir.dtype import bf16, f8e4m3fn, f8e5m2, f16, f32, s4, s8, u4
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

    def packed(self, b: Builder) -> tuple[Value, Value | None, Value | None]:
        """The numbers, the scales and the zero points in the kernel's layout."""
        numbers, scale, zero = self.numbers, *self._facts(b)
        if numbers.dtype is u4:
            half = b.full(_HALF, b.convert(numbers, s8).type)
            numbers = b.convert(b.binary("subtract", b.convert(numbers, s8), half), s4)
        packed = pack(b, self._turned(b, numbers))
        facts = [pack(b, self._turned(b, each), 1) if each else None for each in (scale, zero)]
        return packed, facts[0], facts[1]

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
        """Scales and zero points, one for each column and group."""
        columns = 1 - self.axis
        block = list(self.widen.attrs.integers("block"))
        shape: list[Dim] = list(self.numbers.shape)
        shape[self.axis] = self.widen.operands[1].shape[self.axis]
        block[self.axis] = 1
        scale, *zeros = self.widen.operands[1:]
        zero = _fact(b, zeros[0]) if zeros else None
        if self.numbers.dtype is u4:
            zero = _less_half(b, zeros[0] if zeros else None, scale)
        scale = _fact(b, scale)
        if block[columns] == 1:
            return scale, zero
        zero = spread_blocks(b, zero, block, shape) if zero else None
        return spread_blocks(b, scale, block, shape), zero

    def _turned(self, b: Builder, value: Value) -> Value:
        return value if self.axis == 1 else b.transpose(value, (1, 0))


def _fact(b: Builder, fact: Value) -> Value:
    """Scales or zero points in a type of the kernel that holds them all; f32 if none is smaller."""
    if fact.dtype in (f32, bf16, f16):
        return fact
    return b.convert(fact, bf16 if fact.dtype.is_integer and fact.dtype.bits <= 8 else f32)


def _less_half(b: Builder, zero: Value | None, scale: Value) -> Value:
    """Zero points of numbers that became half their range smaller; without any, of 0 before."""
    if zero is None:
        return b.full(-_HALF, tensor(bf16, scale.shape))
    wide = b.convert(zero, f32)
    # bf16 has all integers to 256.
    exact = bf16 if zero.dtype.is_integer and zero.dtype.bits <= 8 else f32
    return b.convert(b.binary("subtract", wide, b.full(_HALF, wide.type)), exact)


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
