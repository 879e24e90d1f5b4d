"""Compute products with 8-bit weights in integer arithmetic, the fastest on CPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import Module, Op, Value
from graphgen.ir.dtype import f32, f64, s8, s32
from graphgen.passes.core import NoMatch, Pass, Rewriter, Rule, no_match, register, rule
from graphgen.passes.weights.materialization import widened

# The largest digit, how many steps of one digit make a step of the one before, the smallest unit.
_LARGEST, _BASE, _SMALLEST = 127.0, 254.0, 2.0**-126
# More products of two 8-bit numbers may not fit into 32 bits.
_DEEPEST = (2**31 - 1) // (127 * 128)


@register
@dataclass(frozen=True)
class IntegerProducts(Pass):
    """Compute a product with widened 8-bit integers as a product of 8-bit integers.

    XLA's CPU backend widens the whole weight on every call, which takes longer by far than the
    product (measured; see ``benchmarks/README.md``). Here each row of activations is written in
    digits from -127 to 127 of base 254, the first in units of 1/127 of the row's largest element;
    the digits are rows of one exact product of integers, whose sums are added up again. Two digits
    leave 1/65,000 of the largest element, a hundredth of what the rounding of the weights leaves.

    Options:
        digits: for each activation.

    Given:
        module @m level=canonical {
          input %x : f32[1,4]
          weight %w : s8[6,4]
          output %y : f32[1,6]
        }

        func @f phase=decode {
          arg %x : f32[1,4]
          arg %w : s8[6,4]
          %0 = convert(%w) dtype=f32 : f32[6,4]
          %y = dot_general(%x, %0) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[1,6]
          return y = %y
        }

    Result (``integer-products,dce``):
        module @m level=canonical {
          input %x : f32[1,4]
          weight %w : s8[6,4]
          output %y : f32[1,6]
        }

        func @f phase=decode {
          arg %x : f32[1,4]
          arg %w : s8[6,4]
          %0 = abs(%x) : f32[1,4]
          %1 = reduce(%0) dimensions=[1] kind=maximum : f32[1]
          %2 = constant() value=f32[](0.007874016) : f32[]
          %3 = broadcast_in_dim(%2) shape=[1] : f32[1]
          %4 = multiply(%1, %3) : f32[1]
          %5 = constant() value=f32[](1.1754944e-38) : f32[]
          %6 = broadcast_in_dim(%5) shape=[1] : f32[1]
          %7 = maximum(%4, %6) : f32[1]
          %8 = broadcast_in_dim(%7) shape=[1,4] dimensions=[0] : f32[1,4]
          %9 = divide(%x, %8) : f32[1,4]
          %10 = round_nearest_even(%9) : f32[1,4]
          %11 = convert(%10) dtype=s8 : s8[1,4]
          %12 = subtract(%9, %10) : f32[1,4]
          %13 = constant() value=f32[](254.0) : f32[]
          %14 = broadcast_in_dim(%13) shape=[1,4] : f32[1,4]
          %15 = multiply(%12, %14) : f32[1,4]
          %16 = round_nearest_even(%15) : f32[1,4]
          %17 = convert(%16) dtype=s8 : s8[1,4]
          %18 = concatenate(%11, %17) dimension=0 : s8[2,4]
          %19 = dot_general(%18, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] \
dtype=s32 : s32[2,6]
          %20 = convert(%19) dtype=f32 : f32[2,6]
          %21 = slice(%20) start_indices=[1,0] limit_indices=[2,6] : f32[1,6]
          %22 = slice(%20) start_indices=[0,0] limit_indices=[1,6] : f32[1,6]
          %23 = constant() value=f32[](0.003937008) : f32[]
          %24 = broadcast_in_dim(%23) shape=[1,6] : f32[1,6]
          %25 = multiply(%21, %24) : f32[1,6]
          %26 = add(%22, %25) : f32[1,6]
          %27 = broadcast_in_dim(%7) shape=[1,6] dimensions=[0] : f32[1,6]
          %y = multiply(%26, %27) : f32[1,6]
          return y = %y
        }
    """

    name: ClassVar[str] = "integer-products"
    finite_math_only: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = ("specialized",)
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical", "sharded")
    # Two digits leave 1e-5; a 16-bit float that this takes over an edge is rounded to the next one.
    rounding: ClassVar[float] = 2e-2
    digits: int = 2

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Rewrite the products of every program."""
        if self.digits < 1:
            raise GraphgenError(
                "GG0302", f"integer-products: digits={self.digits} must be at least 1"
            )
        for function in module.programs():
            rewriter.apply_rules(function, (integer_product(self.digits),))


def integer_product(digits: int) -> Rule:
    """The rule that writes each activation in ``digits`` digits."""

    @rule("dot_general")
    def integer_product(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """``x @ convert(q)`` is a sum of products of the digits of ``x`` with ``q``."""
        lhs, wide = op.operands[0], widened(op)
        if wide is None or wide.operands[0].dtype is not s8:
            return no_match("its right operand is not a widened 8-bit integer", op.operands[1])
        (weight,) = wide.operands
        if weight.type.rank != 2 or op.attrs.integers("lhs_batch_dims"):
            return no_match("not a product with a weight matrix", weight, depth=2)
        if lhs.dtype is f64:
            return no_match("digits would lose what f64 holds", lhs, depth=3)
        *outer, depth = lhs.type.dims
        if op.attrs.integers("lhs_contracting_dims") != (len(outer),):
            return no_match("the left side does not contract its last dimension", lhs, depth=4)
        if depth > _DEEPEST:
            return no_match(f"{depth} products do not fit into 32 bits", lhs, depth=5)
        rows = prod(outer)
        flat = b.convert(b.reshape(lhs, (rows, depth)), f32)
        unit, stacked = _digits(b, flat, digits)
        (axis,) = op.attrs.integers("rhs_contracting_dims")
        sums = b.convert(b.dot_general(stacked, weight, ([1], [axis]), dtype=s32), f32)
        total = b.slice_dim(sums, 0, (digits - 1) * rows, digits * rows)
        for index in reversed(range(digits - 1)):
            total = b.slice_dim(sums, 0, index * rows, (index + 1) * rows) + total * (1 / _BASE)
        scaled = total * b.broadcast_in_dim(unit, total.shape, [0])
        return [b.convert(b.reshape(scaled, op.result.shape), op.result.dtype)]

    return integer_product


def _digits(b: Builder, x: Value, count: int) -> tuple[Value, Value]:
    """The unit of each row of x [M,K], f32 [M], and its digits one below the other, s8 [count*M,K].

    x is the sum of its digits times the unit, each digit's 1/254 of that of the one before.
    """
    largest = b.reduce(b.abs(x), [1], "maximum")
    unit = b.binary("maximum", largest * (1 / _LARGEST), _SMALLEST)
    rest = x / b.broadcast_in_dim(unit, x.shape, [0])
    found: list[Value] = []
    for index in range(count):
        digit = b.round_nearest_even(rest)
        found.append(b.convert(digit, s8))
        if index + 1 < count:
            rest = (rest - digit) * _BASE
    return unit, b.concatenate(found, 0)
