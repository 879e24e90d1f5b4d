"""Builder methods of elementwise and bitwise ops, each named like its op."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from graphgen.ir import AttrValue, Op, Value


class ElementwiseMethods(ABC):
    """A Python number beside a value is broadcast to that value's type."""

    @abstractmethod
    def emit(
        self, name: str, operands: Sequence[Value], attrs: dict[str, AttrValue] | None = None
    ) -> Op:
        """Append the op ``name`` with inferred result types."""

    @abstractmethod
    def binary(self, name: str, lhs: Value | float, rhs: Value | float) -> Value:
        """An elementwise op of two operands."""

    def _one(self, name: str, *operands: Value, **attrs: AttrValue) -> Value:
        return self.emit(name, operands, attrs).result

    def exponential(self, x: Value) -> Value:
        """exp(x) for each element."""
        return self._one("exponential", x)

    def exponential_minus_one(self, x: Value) -> Value:
        """exp(x) - 1 for each element, accurate for small x."""
        return self._one("exponential_minus_one", x)

    def log(self, x: Value) -> Value:
        """The natural logarithm of each element."""
        return self._one("log", x)

    def log_plus_one(self, x: Value) -> Value:
        """log(1 + x) for each element, accurate for small x."""
        return self._one("log_plus_one", x)

    def sqrt(self, x: Value) -> Value:
        """The square root of each element; NaN below 0."""
        return self._one("sqrt", x)

    def rsqrt(self, x: Value) -> Value:
        """1 / sqrt(x) for each element."""
        return self._one("rsqrt", x)

    def cbrt(self, x: Value) -> Value:
        """The cube root of each element, which has the element's sign."""
        return self._one("cbrt", x)

    def logistic(self, x: Value) -> Value:
        """1 / (1 + exp(-x)) for each element."""
        return self._one("logistic", x)

    def tanh(self, x: Value) -> Value:
        """The hyperbolic tangent of each element."""
        return self._one("tanh", x)

    def cosine(self, x: Value) -> Value:
        """The cosine of each element, in radians."""
        return self._one("cosine", x)

    def sine(self, x: Value) -> Value:
        """The sine of each element, in radians."""
        return self._one("sine", x)

    def tan(self, x: Value) -> Value:
        """The tangent of each element, in radians."""
        return self._one("tan", x)

    def erf(self, x: Value) -> Value:
        """The error function, 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x."""
        return self._one("erf", x)

    def ceil(self, x: Value) -> Value:
        """The least integer >= x for each element."""
        return self._one("ceil", x)

    def floor(self, x: Value) -> Value:
        """The greatest integer <= x for each element."""
        return self._one("floor", x)

    def round_nearest_even(self, x: Value) -> Value:
        """Round each element to the nearest integer, ties to even."""
        return self._one("round_nearest_even", x)

    def round_nearest_afz(self, x: Value) -> Value:
        """Round each element to the nearest integer, ties away from zero."""
        return self._one("round_nearest_afz", x)

    def abs(self, x: Value) -> Value:
        """The absolute value; the lowest integer wraps around to itself."""
        return self._one("abs", x)

    def sign(self, x: Value) -> Value:
        """-1, 0 or 1 as each element is negative, zero or positive; NaN and -0 stay."""
        return self._one("sign", x)

    def negate(self, x: Value) -> Value:
        """-x for each element."""
        return self._one("negate", x)

    def is_finite(self, x: Value) -> Value:
        """True for each element that is neither infinite nor NaN."""
        return self._one("is_finite", x)

    def add(self, lhs: Value | float, rhs: Value | float) -> Value:
        """The sum; integers wrap around."""
        return self.binary("add", lhs, rhs)

    def subtract(self, lhs: Value | float, rhs: Value | float) -> Value:
        """The difference; integers wrap around."""
        return self.binary("subtract", lhs, rhs)

    def multiply(self, lhs: Value | float, rhs: Value | float) -> Value:
        """The product; integers wrap around."""
        return self.binary("multiply", lhs, rhs)

    def divide(self, lhs: Value | float, rhs: Value | float) -> Value:
        """The quotient; integers truncate toward zero, and x/0 is -1 (all ones) as in XLA."""
        return self.binary("divide", lhs, rhs)

    def remainder(self, lhs: Value | float, rhs: Value | float) -> Value:
        """The remainder of the division, with the sign of ``lhs``; integer x%0 is x."""
        return self.binary("remainder", lhs, rhs)

    def power(self, lhs: Value | float, rhs: Value | float) -> Value:
        """``lhs`` to the power of ``rhs``; integers to negative powers are 0, except 1 and -1."""
        return self.binary("power", lhs, rhs)

    def maximum(self, lhs: Value | float, rhs: Value | float) -> Value:
        """The greater one; NaN if either is NaN."""
        return self.binary("maximum", lhs, rhs)

    def minimum(self, lhs: Value | float, rhs: Value | float) -> Value:
        """The lesser one; NaN if either is NaN."""
        return self.binary("minimum", lhs, rhs)

    def atan2(self, lhs: Value | float, rhs: Value | float) -> Value:
        """The angle of the point (x = ``rhs``, y = ``lhs``), in radians."""
        return self.binary("atan2", lhs, rhs)

    def clamp(self, low: Value, x: Value, high: Value) -> Value:
        """``min(max(x, low), high)``; the bounds are scalars or of x's type."""
        return self._one("clamp", low, x, high)

    def and_(self, lhs: Value | float, rhs: Value | float) -> Value:
        """Logical and of pred, bitwise and of integers."""
        return self.binary("and", lhs, rhs)

    def or_(self, lhs: Value | float, rhs: Value | float) -> Value:
        """Logical or of pred, bitwise or of integers."""
        return self.binary("or", lhs, rhs)

    def xor(self, lhs: Value | float, rhs: Value | float) -> Value:
        """Logical exclusive or of pred, bitwise exclusive or of integers."""
        return self.binary("xor", lhs, rhs)

    def not_(self, x: Value) -> Value:
        """Logical not of pred, bitwise complement of integers."""
        return self._one("not", x)

    def shift_left(self, lhs: Value | float, rhs: Value | float) -> Value:
        """``lhs`` shifted left by ``rhs`` bits."""
        return self.binary("shift_left", lhs, rhs)

    def shift_right_logical(self, lhs: Value | float, rhs: Value | float) -> Value:
        """``lhs`` shifted right by ``rhs`` bits, filled with 0."""
        return self.binary("shift_right_logical", lhs, rhs)

    def shift_right_arithmetic(self, lhs: Value | float, rhs: Value | float) -> Value:
        """``lhs`` shifted right by ``rhs`` bits, filled with its sign bit."""
        return self.binary("shift_right_arithmetic", lhs, rhs)

    def popcnt(self, x: Value) -> Value:
        """The number of set bits of each integer."""
        return self._one("popcnt", x)

    def count_leading_zeros(self, x: Value) -> Value:
        """The number of zero bits above the highest set bit of each integer."""
        return self._one("count_leading_zeros", x)

    def reduce_precision(self, x: Value, exponent_bits: int, mantissa_bits: int) -> Value:
        """Round each element to these numbers of bits, keeping its type."""
        return self._one(
            "reduce_precision", x, exponent_bits=exponent_bits, mantissa_bits=mantissa_bits
        )
