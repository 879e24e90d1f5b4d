"""Interval analysis: the lowest and highest element of a value, and whether NaN can occur.

Ranges of the operands of a rewrite exclude counterexamples that its context cannot give it. They
follow from producers alone: no samples are drawn. An op without a rule has every number of its
type; a composite has the range of its decomposition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from graphgen.composites import DECOMPOSITIONS, decompose
from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.ir import Dim, DType, Function, Op, Value
from graphgen.ir.dims import bind
from graphgen.ops import OPS
from graphgen.passes.proof.integers import range_of

# Producers that are followed from a value; beyond them every number is possible.
_DEPTH = 40
# Largest constant whose elements are looked at.
_CONSTANT = 1 << 16

Number = int | float


def _least(*numbers: Number) -> Number:
    """The lowest number, with -0 below +0."""
    return min(numbers, key=lambda x: (x, math.copysign(1, x)))


@dataclass(frozen=True, slots=True)
class Interval:
    """Elements of a value.

    Attributes:
        low: at most the lowest element that is not NaN; ``-inf`` for floats without a bound. -0 is
            below +0.
        high: at least the highest.
        nan: whether an element may be NaN.
        distinct: whether integers along the last dimension differ from each other.
    """

    low: Number
    high: Number
    nan: bool = False
    distinct: bool = False

    def union(self, other: Interval) -> Interval:
        """The elements of both."""
        low, high = _least(self.low, other.low), max(self.high, other.high)
        return Interval(low, high, self.nan or other.nan)

    def meet(self, other: Interval) -> Interval:
        """The elements that are in both; this one where they exclude each other."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Interval(low, high, self.nan and other.nan) if low <= high else self

    @property
    def finite(self) -> bool:
        """True if neither infinities nor NaN occur."""
        return not self.nan and math.isfinite(self.low) and math.isfinite(self.high)


def numbers_inside(found: Array, within: Interval) -> Array:
    """The integers or floats [n] that are in an interval."""
    if found.dtype.kind in "iu":
        return found[(found >= within.low) & (found <= within.high)]
    wide = found.astype(np.float64)
    kept = np.where(np.isnan(wide), within.nan, (wide >= within.low) & (wide <= within.high))
    if within.low == 0 and not np.signbit(within.low):
        kept &= ~((wide == 0) & np.signbit(wide))
    return found[kept]


def every_number(dtype: DType) -> Interval:
    """All elements of a type; for floats infinities and NaN, too."""
    if dtype.name == "pred":
        return Interval(0, 1)
    if dtype.is_float or dtype.name.startswith("c"):
        return Interval(-math.inf, math.inf, nan=True)
    return Interval(*range_of(dtype))


Rule = Callable[["Intervals", Op, int], "Interval | None"]
_RULES: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def wrap(rule: Rule) -> Rule:
        for name in names:
            _RULES[name] = rule
        return rule

    return wrap


@dataclass(slots=True)
class Intervals:
    """Intervals of values of one function as it is now.

    Attributes:
        arguments: intervals of arguments by name, where less than every number is legal.
        sizes: of symbols.
    """

    arguments: Mapping[str, Interval]
    sizes: Mapping[str, Dim]
    _known: dict[Value, Interval] = field(default_factory=dict[Value, Interval])
    _stand_for: dict[Value, Value] = field(default_factory=dict[Value, Value])
    _kept: list[Function] = field(default_factory=list[Function])

    def of(self, value: Value, depth: int = _DEPTH) -> Interval:
        """The interval of a value of any type."""
        value = self._stand_for.get(value, value)
        found = self._known.get(value)
        if found is None:
            every = every_number(value.dtype)
            found = every if depth == 0 else self._found(value, depth) or every
            if not value.dtype.is_float:
                # A number that does not fit wraps around.
                inside = every.low <= found.low and found.high <= every.high
                found = found if inside else every
            self._known[value] = found
        return found

    def _found(self, value: Value, depth: int) -> Interval | None:
        op = value.op
        if op is None:
            return self.arguments.get(value.name or "")
        if op.name == "top_k" and value is op.results[1]:
            return Interval(0, self.size(op.operands[0].shape[-1]) - 1, distinct=True)
        if op.name in _RULES:
            return _RULES[op.name](self, op, depth)
        if OPS[op.name].composite and op.name in DECOMPOSITIONS:
            return self._decomposed(op, value, depth)
        return None

    def _decomposed(self, op: Op, value: Value, depth: int) -> Interval | None:
        try:
            body = decompose(op, DECOMPOSITIONS[op.name])
        except (GraphgenError, AssertionError):
            return None
        self._stand_for.update(zip(body.args, op.operands, strict=True))
        place = next(n for n, result in enumerate(op.results) if result is value)
        self._kept.append(body)
        return self.of([made for _, made in body.outputs][place], depth - 1)

    def operands(self, op: Op, depth: int) -> list[Interval]:
        """The intervals of all operands."""
        return [self.of(operand, depth - 1) for operand in op.operands]

    def size(self, dim: Dim) -> Number:
        """A bound of a size: infinite where a symbol has none."""
        try:
            bound = bind(dim, self.sizes)
        except (GraphgenError, KeyError):
            return math.inf
        return bound if isinstance(bound, int) else math.inf


def _all(found: Sequence[Interval]) -> Interval:
    out = found[0]
    for one in found[1:]:
        out = out.union(one)
    return out


@_rule("constant")
def _constant(of: Intervals, op: Op, depth: int) -> Interval | None:
    value = op.attrs["value"]
    if op.results[0].dtype.is_complex:
        return None
    if math.prod(op.results[0].type.dims) > _CONSTANT:
        return None
    numbers = [float(n) if op.results[0].dtype.is_float else int(n) for n in value.values()]  # pyright: ignore
    real = [n for n in numbers if n == n]
    if not real:
        return Interval(0, 0, nan=True) if numbers else None
    return Interval(_least(*real), max(real), len(real) < len(numbers))


@_rule("iota")
def _iota(of: Intervals, op: Op, depth: int) -> Interval | None:
    shape = op.results[0].shape
    return Interval(0, of.size(shape[op.attrs.integer("dimension")]) - 1)


@_rule("reshape", "transpose", "broadcast_in_dim", "slice", "reverse", "dynamic_slice", "gather")
@_rule("copy", "all_gather", "all_to_all", "optimization_barrier")
def _same_elements(of: Intervals, op: Op, depth: int) -> Interval | None:
    return replace(of.of(op.operands[0], depth - 1), distinct=False)


@_rule("take", "collective_permute")
def _or_zero(of: Intervals, op: Op, depth: int) -> Interval | None:
    return of.of(op.operands[0], depth - 1).union(Interval(0, 0))


@_rule("concatenate", "pad")
def _any_operand(of: Intervals, op: Op, depth: int) -> Interval | None:
    return _all(of.operands(op, depth))


@_rule("dynamic_update_slice")
def _either(of: Intervals, op: Op, depth: int) -> Interval | None:
    return _all([of.of(operand, depth - 1) for operand in op.operands[:2]])


@_rule("select")
def _select(of: Intervals, op: Op, depth: int) -> Interval | None:
    return _all([of.of(operand, depth - 1) for operand in op.operands[1:]])


@_rule("is_finite")
def _is_finite(of: Intervals, op: Op, depth: int) -> Interval | None:
    return _truth(always=of.of(op.operands[0], depth - 1).finite, never=False)


def _truth(*, always: bool, never: bool) -> Interval:
    return Interval(int(always), int(not never))


@_rule("compare")
def _compare(of: Intervals, op: Op, depth: int) -> Interval | None:
    if op.operands[0].dtype.is_complex:
        return None
    (a, b), direction = of.operands(op, depth), op.attrs.text("direction")
    if direction in ("GT", "GE"):
        a, b = b, a
    if direction in ("EQ", "NE"):
        same, apart = a.low == a.high == b.low == b.high, a.high < b.low or b.high < a.low
        always, never = (same, apart) if direction == "EQ" else (apart, same)
    elif direction in ("LT", "GT"):
        always, never = a.high < b.low, b.high <= a.low
    else:
        always, never = a.high <= b.low, b.high < a.low
    # NaN is unequal to everything, and no other comparison with it holds.
    nan = a.nan or b.nan
    if direction == "NE":
        return _truth(always=always, never=never and not nan)
    return _truth(always=always and not nan, never=never)


@_rule("convert")
def _convert(of: Intervals, op: Op, depth: int) -> Interval | None:
    source, dtype = op.operands[0], op.results[0].dtype
    found, every = of.of(source, depth - 1), every_number(dtype)
    if dtype.name.startswith("c") or source.dtype.name.startswith("c") or dtype.name == "pred":
        return None
    if dtype.is_float:
        if source.dtype.is_float and dtype.bits >= source.dtype.bits:
            return found
        # Rounding to fewer digits moves a bound by less than its own size.
        low = found.low - abs(found.low) * 0.25 if found.low else found.low
        high = found.high + abs(found.high) * 0.25 if found.high else found.high
        limit = 32768.0 if dtype.name == "f16" else math.inf
        if dtype.bits < 16 or not (abs(low) <= limit and abs(high) <= limit):
            return every
        return Interval(_above_zero(dtype, float(low)), _below_zero(dtype, float(high)), found.nan)
    if source.dtype.is_float:
        if not found.finite:
            return None
        found = Interval(math.trunc(found.low), math.trunc(found.high))
    return found


@_rule("add")
def _add(of: Intervals, op: Op, depth: int) -> Interval | None:
    a, b = of.operands(op, depth)
    return _arithmetic(op, [(a.low, b.low), (a.high, b.high)], lambda x, y: x + y, a, b)


@_rule("subtract")
def _subtract(of: Intervals, op: Op, depth: int) -> Interval | None:
    a, b = of.operands(op, depth)
    return _arithmetic(op, [(a.low, b.high), (a.high, b.low)], lambda x, y: x - y, a, b)


@_rule("multiply")
def _multiply(of: Intervals, op: Op, depth: int) -> Interval | None:
    a, b = of.operands(op, depth)
    if op.operands[0] is op.operands[1] and op.results[0].dtype.is_float:
        # A square; an infinity has one, too.
        top = max(abs(a.low), abs(a.high))
        return Interval(0.0, _outward(op, float(top) * float(top), 1), a.nan)
    pairs = [(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return _arithmetic(op, pairs, lambda x, y: x * y, a, b)


def _arithmetic(
    op: Op,
    pairs: Sequence[tuple[Number, Number]],
    compute: Callable[[Number, Number], Number],
    *operands: Interval,
) -> Interval | None:
    """The interval of a monotone function of the ends; of floats only without infinities."""
    if not all(one.finite for one in operands):
        return None
    found = [compute(x, y) for x, y in pairs]
    low, high = _least(*found), max(found)
    if op.results[0].dtype.is_float:
        low, high = _outward(op, low, -1), _outward(op, high, 1)
    return Interval(low, high)


def _outward(op: Op, bound: Number, sign: int) -> float:
    """A float bound moved outward by more than the rounding of its type.

    It is infinite beyond the range of the type, and 0 near 0, where numbers underflow.
    """
    dtype = op.results[0].dtype
    limit = 60000.0 if dtype.name == "f16" else 1e38 if dtype.bits >= 16 else 0.0
    if not abs(bound) <= limit:
        return sign * math.inf
    moved = float(bound) + sign * abs(bound) * (2.0**-20 if dtype.bits >= 32 else 2.0**-6)
    return _above_zero(dtype, moved) if sign < 0 else _below_zero(dtype, moved)


def _underflows(dtype: DType, bound: float) -> bool:
    limit = 1e-300 if dtype.bits == 64 else 1e-37 if dtype.name in ("f32", "bf16") else 0.02
    return 0 < abs(bound) < limit


def _above_zero(dtype: DType, low: float) -> float:
    """A lower bound of numbers that may underflow to 0."""
    return 0.0 if low > 0 and _underflows(dtype, low) else low


def _below_zero(dtype: DType, high: float) -> float:
    """An upper bound of numbers that may underflow to 0."""
    return 0.0 if high < 0 and _underflows(dtype, high) else high


@_rule("negate")
def _negate(of: Intervals, op: Op, depth: int) -> Interval | None:
    (a,) = of.operands(op, depth)
    # The upper end 0 may be +0.
    return Interval(_zero_of_any_sign(op, -a.high), -a.low, a.nan)


@_rule("abs")
def _abs(of: Intervals, op: Op, depth: int) -> Interval | None:
    (a,) = of.operands(op, depth)
    low = 0 if a.low <= 0 <= a.high else min(abs(a.low), abs(a.high))
    return Interval(low, max(abs(a.low), abs(a.high)), a.nan)


@_rule("maximum")
def _maximum(of: Intervals, op: Op, depth: int) -> Interval | None:
    a, b = of.operands(op, depth)
    low = _zero_of_any_sign(op, max(a.low, b.low))
    return Interval(low, max(a.high, b.high), a.nan or b.nan)


def _zero_of_any_sign(op: Op, low: Number) -> Number:
    """A lower bound; of zeros of both signs either may be the greater one."""
    return low if low or not op.results[0].dtype.is_float else -0.0


@_rule("minimum")
def _minimum(of: Intervals, op: Op, depth: int) -> Interval | None:
    a, b = of.operands(op, depth)
    low = _zero_of_any_sign(op, min(a.low, b.low))
    return Interval(low, min(a.high, b.high), a.nan or b.nan)


@_rule("clamp")
def _clamp(of: Intervals, op: Op, depth: int) -> Interval | None:
    low, x, high = of.operands(op, depth)
    nan = low.nan or x.nan or high.nan
    bottom = _zero_of_any_sign(op, min(max(x.low, low.low), high.low))
    return Interval(bottom, min(max(x.high, low.high), high.high), nan)


@_rule("remainder")
def _remainder(of: Intervals, op: Op, depth: int) -> Interval | None:
    a, b = of.operands(op, depth)
    if op.results[0].dtype.is_float or b.low <= 0:
        return None
    # The sign is that of the dividend.
    return Interval(0 if a.low >= 0 else max(a.low, 1 - b.high), max(0, min(a.high, b.high - 1)))


@_rule("divide")
def _divide(of: Intervals, op: Op, depth: int) -> Interval | None:
    a, b = of.operands(op, depth)
    if op.results[0].dtype.is_float or b.low <= 0:
        return None
    ends = [
        int(abs(x) // y) * (1 if x >= 0 else -1) for x in (a.low, a.high) for y in (b.low, b.high)
    ]
    return Interval(min(ends), max(ends))


@_rule("and")
def _and(of: Intervals, op: Op, depth: int) -> Interval | None:
    every = of.operands(op, depth)
    found = [one for one in every if one.low >= 0]
    if op.results[0].dtype.name == "pred":
        return Interval(min(one.low for one in every), min(one.high for one in every))
    return Interval(0, min(one.high for one in found)) if found else None


@_rule("or")
def _or(of: Intervals, op: Op, depth: int) -> Interval | None:
    if op.results[0].dtype.name != "pred":
        return None
    every = of.operands(op, depth)
    return Interval(max(one.low for one in every), max(one.high for one in every))


@_rule("not")
def _not(of: Intervals, op: Op, depth: int) -> Interval | None:
    if op.results[0].dtype.name != "pred":
        return None
    a = of.of(op.operands[0], depth - 1)
    return Interval(1 - a.high, 1 - a.low)


@_rule("shift_right_logical", "shift_right_arithmetic")
def _shift_right(of: Intervals, op: Op, depth: int) -> Interval | None:
    a = of.of(op.operands[0], depth - 1)
    return Interval(0, a.high) if a.low >= 0 else None


@_rule("exponential")
def _exponential(of: Intervals, op: Op, depth: int) -> Interval | None:
    return Interval(0.0, math.inf, of.of(op.operands[0], depth - 1).nan)


@_rule("logistic")
def _logistic(of: Intervals, op: Op, depth: int) -> Interval | None:
    return Interval(0.0, 1.0, of.of(op.operands[0], depth - 1).nan)


@_rule("tanh")
def _tanh(of: Intervals, op: Op, depth: int) -> Interval | None:
    return Interval(-1.0, 1.0, of.of(op.operands[0], depth - 1).nan)


@_rule("sign")
def _sign(of: Intervals, op: Op, depth: int) -> Interval | None:
    return Interval(-1, 1, of.of(op.operands[0], depth - 1).nan)


@_rule("cosine", "sine")
def _wave(of: Intervals, op: Op, depth: int) -> Interval | None:
    return Interval(-1.0, 1.0, not of.of(op.operands[0], depth - 1).finite)


@_rule("sqrt")
def _root(of: Intervals, op: Op, depth: int) -> Interval | None:
    a = of.of(op.operands[0], depth - 1)
    # The root of -0 is -0.
    return Interval(-0.0, math.inf, a.nan or a.low < 0)


@_rule("rsqrt")
def _inverse_root(of: Intervals, op: Op, depth: int) -> Interval | None:
    a = of.of(op.operands[0], depth - 1)
    # That of -0 is negative infinity.
    return Interval(0.0, math.inf, a.nan) if math.copysign(1, a.low) > 0 else None


@_rule("sort", "top_k")
def _sort(of: Intervals, op: Op, depth: int) -> Interval | None:
    # Each result has the elements of one operand.
    return _all(of.operands(op, depth))


@_rule("reduce")
def _reduce(of: Intervals, op: Op, depth: int) -> Interval | None:
    a, kind = of.of(op.operands[0], depth - 1), op.attrs.text("kind")
    dtype = op.results[0].dtype
    if kind in ("maximum", "minimum"):
        axes = op.attrs.integers("dimensions")
        sizes = [of.size(op.operands[0].shape[axis]) for axis in axes]
        # An empty dimension gives the neutral element.
        return a if all(1 <= size < math.inf for size in sizes) else None
    if kind == "add" and dtype.is_float and a.low >= 0:
        return Interval(0.0 if math.copysign(1, a.low) > 0 else -0.0, math.inf, a.nan)
    return None
